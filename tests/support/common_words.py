"""Makes ``rules/lexicon/common.txt``: words that an annotated corpus writes in lower case outside of PHI.

Run from the repository root: ``PYTHONPATH=tests python -m support.common_words corpus > rules/lexicon/common.txt``.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from deid_agent.eval.markup import FIRST_AUTHORS, CorpusPart, Note, read_corpus, select_part

HEADER = """\
# Words of clinical notes: in the annotated corpus at least twice in lower case and outside of PHI.
# A known name that is one of these words needs the context of a name (deid_agent/recognize/known_name_finder.py).
# Made by tests/support/common_words.py; do not edit.
"""
_WORD = re.compile(r"(?<![^\W_])[a-z]+(?![^\W_])")


def lower_case_words(note: Note) -> Iterator[str]:
    """Words in lower case that touch no annotation."""
    taken = note.annotated.spans
    at = 0
    for span in (*taken, None):
        yield from _WORD.findall(note.annotated.text, at, span.start if span else len(note.annotated.text))
        at = span.end if span else at


def common_words(folder: Path) -> list[str]:
    """The list, sorted. Training notes alone, so that dev stays unseen; first authors alone, so that later notes leave
    the rules as they are."""
    notes = (note for note in select_part(read_corpus(folder), CorpusPart.TRAIN) if note.author in FIRST_AUTHORS)
    counts = Counter(word for note in notes for word in lower_case_words(note) if len(word) > 1)
    return sorted(word for word, count in counts.items() if count > 1)


if __name__ == "__main__":
    sys.stdout.write(HEADER + "\n".join(common_words(Path(sys.argv[1]))) + "\n")
