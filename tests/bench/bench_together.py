"""The gain from batching the texts of several messages: tokens per second by size of text and of group.

    python tests/bench/bench_together.py [--tokens 24000]

Texts of the corpus's dev part, whole (notes) or line by line (as in OBX and NTE segments), through the default system's
tagger in groups of 1, 4 and 16; best of five rounds of processor time, the groups by turns. See decision 0011.
"""

# ruff: noqa: E402 - the threads are limited before numpy is imported

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads

limit_blas_threads()  # as the agent does; before numpy is imported

from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.model.text import Document
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.resolve import Profile
from deid_agent.recognize.tagger import Tagger

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 5
GROUPS = (1, 4, 16)


def seconds(reader: Tagger, texts: Sequence[str], group: int) -> float:
    """Processor time to read all of them, so many at once."""
    start = time.process_time()
    for at in range(0, len(texts), group):
        reader.find_all([Document(text) for text in texts[at : at + group]])
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=24_000)
    args = parser.parse_args()
    notes = [note.annotated.text for note in select_part(list(read_corpus(ROOT / "corpus")), CorpusPart.DEV)]
    lines = [line for note in notes for line in note.splitlines() if len(line) > 20]
    reader = load_tagger(load_rules(ROOT / "rules"), ROOT / "models", "default", Profile.RECALL)
    sys.stdout.write("| texts | tokens each | " + " | ".join(f"{group} at once" for group in GROUPS) + " |\n")
    sys.stdout.write("|---|---|" + "---|" * len(GROUPS) + "\n")
    for name, texts in (("lines", lines[:: max(1, len(lines) // 1200)]), ("notes", notes[::2])):
        some: list[str] = []
        tokens = 0
        for text in texts:
            if tokens < args.tokens:
                some.append(text)
                tokens += len(Document(text).tokens)
        best = dict.fromkeys(GROUPS, float("inf"))
        for _ in range(ROUNDS):
            for group in GROUPS:
                best[group] = min(best[group], seconds(reader, some, group))
        cells = " | ".join(f"{tokens / best[group]:,.0f}" for group in GROUPS)
        sys.stdout.write(f"| {len(some)} {name} | {tokens / len(some):.0f} | {cells} |\n")


if __name__ == "__main__":
    main()
