"""Tokens per second of our systems and of other de-identifiers, with load time and memory, in one run on one core.

    python tests/bench/bench_tagger.py [--notes 150] [--spacy REQUIREMENT]

Notes of the corpus's dev part, tagged one by one; a token is a run of letters or of digits or a single sign
(``Document.tokens``), counted once and the same for all. Each tagger has a process of its own, held to one core, its
models loaded before the clock starts; the best of three rounds of processor time counts. Memory is the growth of that
process, loading included, over a bare interpreter that holds the texts. ``20 pages`` is the time of one note of about
20 pages by the time of the same number of tokens in short notes.

The others are installed by this script into temporary environments, pinned. Those that cannot be installed or run
are listed with the reason. They look for less (the third column). A language model for Presidio (names, places) is not
fetched by default: spaCy publishes its models on its own pages; ``--spacy`` takes a requirement such as the address of
a wheel of en_core_web_sm.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.model.text import Document

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("rivals.py")
PAGES = 20 * 3_000
"""Characters of a note of 20 pages."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tagger: its name in ``rivals.py``, the types it looks for, the packages to install (none for ours)."""

    name: str
    shown: str
    looks_for: str
    needs: tuple[str, ...] = ()


ENTRIES = (
    Entry("ours:rules:balanced", "deid-agent rules", "28 types by patterns and labels"),
    Entry("ours:hybrid:balanced", "deid-agent hybrid, balanced", "28 types, names and places without cue too"),
    Entry("ours:hybrid:recall", "deid-agent hybrid, recall", "the same, doubts too"),
    Entry("presidio", "Presidio, patterns", "numbers, dates, contacts; no names", ("presidio-analyzer==2.2.366",)),
    Entry("scrubadub", "scrubadub", "contacts, numbers; no names, no dates", ("scrubadub==2.0.1",)),
    Entry("phileas", "phileas-redact", "ages, dates, contacts, numbers; no names", ("phileas-redact==1.0.0",)),
)


def environment(folder: Path, needs: Sequence[str]) -> Path:
    """A new interpreter that has these packages. Raises ``CalledProcessError`` if they cannot be installed."""
    uv = shutil.which("uv")
    python = folder / "bin" / "python"
    if uv:
        made = [[uv, "venv", "-q", "-p", sys.executable, str(folder)]]
        made.append([uv, "pip", "install", "-q", "-p", str(python), *needs])
    else:
        made = [[sys.executable, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "-q", *needs]]
    for command in made:
        subprocess.run(command, check=True, capture_output=True, text=True)
    return python


def measured(entry: Entry, texts: Path, folder: Path) -> dict[str, float] | str:
    """The report of ``rivals.py``, or the reason for its absence."""
    try:
        python = environment(folder, entry.needs) if entry.needs else Path(sys.executable)
        limit_blas_threads()  # as the agent does
        command = [str(python), str(WORKER), entry.name, str(texts)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.CalledProcessError as fault:
        lines = str(fault.stderr).strip().splitlines()
        return lines[-1][:160] if lines else f"exit code {fault.returncode}"
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"{type(fault).__name__}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=150)
    parser.add_argument("--spacy", default="")
    args = parser.parse_args()
    notes = [note.annotated.text for note in select_part(list(read_corpus(ROOT / "corpus")), CorpusPart.DEV)]
    spread = notes[:: max(1, len(notes) // args.notes)][: args.notes]
    pages = "\n\n".join(spread)[:PAGES]
    tokens, long = sum(len(Document(text).tokens) for text in spread), len(Document(pages).tokens)
    entries = list(ENTRIES)
    if args.spacy:
        model = Entry(
            "presidio:en_core_web_sm",
            "Presidio, spaCy",
            "the same, names and places",
            (ENTRIES[3].needs[0], args.spacy),
        )
        entries.insert(4, model)
    write = sys.stdout.write
    write("| tagger | looks for | tokens/s | times ours | 20 pages | found | loads in s | MiB |\n")
    write("|---|---|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps({"notes": spread, "pages": pages}), "utf-8")
        results = [(entry, measured(entry, texts, Path(folder) / f"env{at}")) for at, entry in enumerate(entries)]
    for row in rows(results, tokens, long):
        write(row)
    write(f"\n{len(spread)} notes, {tokens:,} tokens; ours: hybrid, balanced. ")
    write(
        f"Python {platform.python_version()}, {platform.machine()}; {', '.join(n for e in entries for n in e.needs)}\n"
    )
    if not args.spacy:
        write("Presidio with a language model: not measured, none is fetched without --spacy.\n")


def rows(results: Sequence[tuple[Entry, dict[str, float] | str]], tokens: int, long: int) -> Iterator[str]:
    base = next(
        figures["seconds"] for e, figures in results if e.name == "ours:hybrid:balanced" and isinstance(figures, dict)
    )
    for entry, figures in results:
        if isinstance(figures, str):
            yield f"| {entry.shown} | {entry.looks_for} | not measured: {figures} | | | | | |\n"
            continue
        seconds, pages = figures["seconds"], figures["pages"] / long / (figures["seconds"] / tokens)
        yield (
            f"| {entry.shown} | {entry.looks_for} | {tokens / seconds:,.0f} | {seconds / base:.2f} | {pages:.2f} "
            f"| {figures['found']:.0f} | {figures['load']:.2f} | {figures['grown']:.0f} |\n"
        )


if __name__ == "__main__":
    main()
