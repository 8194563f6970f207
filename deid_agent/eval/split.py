"""The fixed split of ``corpus/``: what is tuned on and what is trained on.

Whether a patient is in dev depends on its id alone, so notes that are added later move nobody. Patients are never
divided: notes of one patient share names and numbers. Whole authors are held out because a new site is a new author.
"""

import hashlib
from collections.abc import Iterable
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
