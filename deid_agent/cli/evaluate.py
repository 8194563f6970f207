"""``deid-agent eval``: scores of a system over an annotated corpus, or of findings that are there already."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import orjson

from deid_agent import resources
from deid_agent.cli.common import Exit, guarded, say, shown
from deid_agent.cli.text import INTRODUCED
from deid_agent.config import refuse_unknown_variables
from deid_agent.errors import ConfigurationError
from deid_agent.eval import tagging
from deid_agent.eval.labels import coarse
from deid_agent.eval.lines import read_lines
from deid_agent.eval.markup import Note
from deid_agent.eval.page import page
from deid_agent.eval.readers import Corpus, Form, read
from deid_agent.eval.report import Benign, Report, as_json, benign, table
from deid_agent.eval.score import Pair, score
from deid_agent.eval.split import Part, part
from deid_agent.markup import Annotated


@click.command("eval")
@click.argument("corpus", required=False, metavar="[CORPUS]", type=click.Path(path_type=Path))
@click.option(
    "--gold", metavar="FILE", type=click.Path(path_type=Path), help="Annotations to compare with; no tagger runs."
)
@click.option("--pred", metavar="FILE", type=click.Path(path_type=Path), help="Findings as JSON lines, by id.")
@click.option("--format", "form", type=click.Choice([f.value for f in Form]), help="Form of CORPUS or of --gold.")
@click.option("--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run.")
@click.option(
    "--profile",
    type=click.Choice(["precision", "balanced", "recall"]),
    default="recall",
    show_default=True,
    envvar="DEID_PROFILE",
    help="How findings are weighed.",
)
@click.option(
    "--split",
    type=click.Choice([p.value for p in Part]),
    default="all",
    show_default=True,
    help="Part of our own corpus.",
)
@click.option("--authors", metavar="LIST", help="Only these prefixes: dd,dk.")
@click.option(
    "--context",
    type=click.Choice(["none", "profile"]),
    default="none",
    show_default=True,
    help="What is known beforehand: nothing, or the corpus's profile of the patient, as a message would say it.",
)
@click.option("--by-patient", is_flag=True, help="Notes of one patient share what they know; tags twice.")
@click.option(
    "--benign", "clean", metavar="DIR", type=click.Path(path_type=Path), help="Text without PHI: counts alarms."
)
@click.option("--ablate", is_flag=True, help="What each recognizer of the system adds.")
@click.option("--json", "json_file", metavar="FILE", help="Write everything as JSON; - is standard output.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Write a page with every mistake in its context. It holds text."
)
@click.option("--rules", metavar="DIR", envvar="DEID_RULES", help="Rules folder in place of the packaged one.")
@click.option("--models", metavar="DIR", envvar="DEID_MODELS", help="Models folder in place of the packaged one.")
@guarded
def evaluate(
    corpus: Path | None,
    gold: Path | None,
    pred: Path | None,
    form: str | None,
    system: str,
    profile: str,
    split: str,
    authors: str | None,
    context: str,
    by_patient: bool,
    clean: Path | None,
    ablate: bool,
    json_file: str | None,
    html_file: str | None,
    rules: str | None,
    models: str | None,
) -> Exit:
    """Score a system over an annotated corpus, or findings against annotations.

    CORPUS is a folder of ours, of i2b2 2014 XML or of brat, or a file of i2b2 2006 XML or JSON lines. With --gold and
    --pred no tagger runs: both may be JSON lines {"id", "text"?, "spans"}, and --gold any corpus.
    """
    if (corpus is None) == (gold is None) or (gold is None) != (pred is None):
        raise ConfigurationError("give either CORPUS, or --gold and --pred")
    chosen = Form(form) if form else None
    about: dict[str, object] = {"split": split, "authors": authors}
    if gold is not None and pred is not None:
        if clean or ablate or by_patient or context != "none":
            raise ConfigurationError("--benign, --ablate, --by-patient and --context run a tagger: give CORPUS")
        notes = _notes(gold, chosen, split, authors)
        pairs, complete = _paired(notes, pred)
        about |= {"gold": str(gold), "pred": str(pred), "form": notes.form.value}
        report = Report(about, score(_alike(pairs, notes.form)), authors=notes.form is Form.MARKUP)
        _write(report, json_file, html_file)
        return Exit.DONE if complete else Exit.REFUSED
    refuse_unknown_variables()
    tagger = tagging.load(resources.folder("rules", rules), resources.folder("models", models), system, profile)
    notes = _notes(corpus or Path(), chosen, split, authors)
    alarms = _benign(clean, tagger) if clean else None
    done = _run(notes, tagger, context, by_patient, ablate)
    about |= {"corpus": str(corpus), "form": notes.form.value, "system": system, "profile": profile}
    about |= {
        "context": context,
        "by_patient": by_patient,
        "parts": [part for part in tagger.without if not part.startswith(tagging.LIST)],
    }
    report = Report(
        about,
        score(_alike(done.pairs, notes.form)),
        {name: score(_alike(pairs, notes.form)) for name, pairs in done.without.items()},
        alarms,
        authors=notes.form is Form.MARKUP,
    )
    _write(report, json_file, html_file)
    return Exit.DONE


def _notes(path: Path, form: Form | None, split: str, authors: str | None) -> Corpus:
    """The notes that were asked for. Raises ``ConfigurationError`` where none is left."""
    corpus = read(path, form)
    for remark in corpus.remarks:
        say(remark)
    if (split != Part.ALL or authors) and corpus.form is not Form.MARKUP:
        raise ConfigurationError(f"--split and --authors are of our own corpus; {path} has the form {corpus.form}")
    notes = part(corpus.notes, Part(split))
    wanted = {name.strip() for name in authors.split(",")} if authors else set()
    if unknown := wanted - {note.author for note in corpus.notes}:
        raise ConfigurationError(f"--authors {','.join(sorted(unknown))}: {path} has no such prefix")
    notes = [note for note in notes if not wanted or note.author in wanted]
    if not notes:
        raise ConfigurationError(f"no note of {path} is of these authors and in {split}")
    return replace(corpus, notes=tuple(notes))


def _run(corpus: Corpus, tagger: tagging.System, context: str, by_patient: bool, ablate: bool) -> tagging.Run:
    facts: tagging.Facts = tagging.profile_known if context == "profile" else tagging.nothing_known
    if by_patient:
        with _progress(corpus.notes, "reading") as notes:
            facts = tagging.patient_known(tagger, notes, facts, INTRODUCED)
    with _progress(corpus.notes, "tagging") as notes:
        return tagging.run(tagger, notes, facts, ablate=ablate)


def _benign(path: Path, tagger: tagging.System) -> Benign:
    """Alarms in the texts of a folder (plain text, JSON lines) or file; spans that lines may have are not looked at."""
    if not path.exists():
        raise ConfigurationError(f"--benign {path}: no such file or folder")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    clean: list[Note] = []
    for file in files:
        if file.suffix in {".jsonl", ".ndjson"}:
            clean += read_lines(file, bound=False, annotated=False)
        elif file.suffix == ".txt":
            clean.append(Note(file.stem, "", "", file.stem, Annotated(_decoded(file), ()), {}))
    if not clean:
        raise ConfigurationError(f"--benign {path}: holds no *.txt and no *.jsonl")
    with _progress(clean, "text without PHI") as notes:
        return benign(tagging.run(tagger, notes, tagging.nothing_known).pairs)


def _decoded(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"{path}: byte {problem.start}: not UTF-8; convert it first") from None


def _paired(gold: Corpus, pred: Path) -> tuple[list[Pair], bool]:
    """Gold with the findings of the same id; False where one side lacks a note of the other, which is told."""
    found = {note.id: note.annotated.spans for note in read_lines(pred, bound=False)}
    for note in gold.notes:
        end = max((span.end for span in found.get(note.id, ())), default=0)
        if note.annotated.text and end > len(note.annotated.text):
            raise ConfigurationError(f"{pred}: {shown(note.id)}: a span ends at {end}, behind the gold's text")
    ids = {note.id for note in gold.notes}
    for missing in sorted(ids - set(found)):
        say(f"{pred}: {shown(missing)}: not there; counted as nothing found")
    for strange in sorted(set(found) - ids):
        say(f"{pred}: {shown(strange)}: not among the gold notes; not counted")
    return [Pair(note, found.get(note.id, ())) for note in gold.notes], ids == set(found)


def _alike(pairs: Iterable[Pair], form: Form) -> list[Pair]:
    """Findings in the types of the annotations: those of 2006 are coarse."""
    if form is not Form.I2B2_2006:
        return list(pairs)
    return [Pair(pair.note, coarse(pair.found)) for pair in pairs]


@contextmanager
def _progress(notes: Sequence[Note], label: str) -> Iterator[Iterable[Note]]:
    """A bar on a terminal, on standard error; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield notes
        return
    with click.progressbar(notes, label=label, file=sys.stderr) as bar:
        yield bar


def _write(report: Report, json_file: str | None, html_file: str | None) -> None:
    if json_file is not None:
        data = orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2) + b"\n"
        if json_file == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(json_file).write_bytes(data)
    if html_file is not None:
        Path(html_file).write_text(page(report), "utf-8")
    if json_file != "-":
        click.echo(table(report), nl=False)
