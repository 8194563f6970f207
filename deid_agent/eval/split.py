"""The fixed split of ``corpus/``: what is tuned on, what is trained on, and one author out at a time.

Whether a patient is in dev depends on its id alone, so notes that are added later move nobody. Patients are never
divided: notes of one patient share names and numbers. Whole authors are held out because a new site is a new author.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from deid_agent.eval.markup import Note

DEV_AUTHORS = frozenset({"dd", "dk"})
"""Prefixes that are dev as a whole."""
FIRST_AUTHORS = frozenset(f"d{letter}" for letter in "abcdefghijkl")
"""The prefixes of which patients may be in dev; notes of later prefixes are for training alone."""
_SHARE = 10


class Part(StrEnum):
    """A part of the split that a command may name."""

    DEV = "dev"
    TRAIN = "train"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Fold:
    """One author held out: ``train`` holds no note of it."""

    author: str
    train: tuple[Note, ...]
    held_out: tuple[Note, ...]


def in_dev(patient: str) -> bool:
    """True for a patient of dev: of a dev author, or of the tenth of the first authors' that its digest chooses."""
    author = patient.partition("-")[0]
    if author in DEV_AUTHORS:
        return True
    return author in FIRST_AUTHORS and int.from_bytes(hashlib.sha256(patient.encode()).digest()[:8]) % _SHARE == 0


def part(notes: Iterable[Note], which: Part) -> list[Note]:
    """The notes of one part, in order."""
    if which is Part.ALL:
        return list(notes)
    return [note for note in notes if in_dev(note.patient) == (which is Part.DEV)]


def folds(notes: Sequence[Note]) -> Iterator[Fold]:
    """Leave one author out, by author: each of them held out once."""
    for author in sorted({note.author for note in notes}):
        rest = tuple(note for note in notes if note.author != author)
        yield Fold(author, rest, tuple(note for note in notes if note.author == author))
