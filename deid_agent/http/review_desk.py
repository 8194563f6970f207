"""The port between the review pages of the console and the folder of reviewed notes.

Notes, decisions and gold are PHI: no value of these classes appears in a ``repr``, an error or a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class NoteState(StrEnum):
    """The state of a note for one reviewer."""

    OPEN = "open"
    DRAFT = "draft"  # the reviewer has saved decisions and not finished
    FINISHED = "finished"  # the reviewer has finished; another one may not
    DISPUTED = "disputed"  # two reviewers have finished and differ: a third decision is needed
    AGREED = "agreed"  # gold: two reviewers agree, or the note is adjudicated


@dataclass(frozen=True, slots=True)
class DeskSpan:
    """A span of characters, half-open, with the name of its PHI type.

    ``source`` is what proposed it, such as ``crf:token``; empty if a reviewer added it.
    ``uncertain`` spans are those on which the components of the tagger disagree.
    """

    begin: int
    end: int
    type: str
    source: str = ""
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class DeskItem:
    """A note in a reviewer's queue, in the order of the queue. ``reasons`` are codes such as ``random``."""

    note: str
    state: NoteState
    reasons: tuple[str, ...]
    characters: int


@dataclass(frozen=True, slots=True)
class DeskNote:
    """A note for one reviewer.

    ``spans`` are the reviewer's own decisions, or the proposals if there are none. ``others`` are the decisions of the
    two reviewers, and only a reviewer who may adjudicate this disputed note has them.
    """

    note: str
    state: NoteState
    text: str = field(repr=False)
    spans: tuple[DeskSpan, ...] = field(repr=False)
    others: tuple[tuple[str, tuple[DeskSpan, ...]], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class DeskFigures:
    """Counts of notes, and the agreement of reviewers over notes that two have finished.

    ``strict_f1`` counts equal spans of equal types, ``kappa`` is Cohen's over tokens; ``None`` without such notes.
    """

    notes: int
    finished: int
    disputed: int
    agreed: int
    random_agreed: int
    strict_f1: float | None
    kappa: float | None


class DeskError(Exception):
    """A request that the desk refuses. ``code`` is a fixed word, ``advice`` says what to do and names no value."""

    def __init__(self, code: str, advice: str) -> None:
        super().__init__(code)
        self.code = code
        self.advice = advice


class ReviewDesk(Protocol):
    """What the console needs. Methods block on a disk, so the console calls them in a thread. They raise ``DeskError``
    for a request that cannot be obeyed, and ``OSError`` if the disk fails; nothing is then changed."""

    def reviewer_of(self, token: str) -> str | None:
        """The name of the reviewer with this token, compared in constant time, or ``None``."""

    def queue(self, reviewer: str) -> Sequence[DeskItem]:
        """The notes of the reviewer: unfinished ones first, in the order of the queue."""

    def open(self, reviewer: str, note: str) -> DeskNote:
        """A note with the decisions of this reviewer."""

    def save(
        self, reviewer: str, note: str, spans: Sequence[DeskSpan], *, finished: bool, adjudicates: bool = False
    ) -> NoteState:
        """Save the decisions, durably. Spans are disjoint and inside the note. A finished decision is never changed.

        On a disputed note a reviewer who is neither of the two adjudicates by it; so may one of the two if the folder
        has only two reviewers. Only decisions of a page that has shown both others (``adjudicates``) do: those of a
        page that was opened before, or a repeated request, would be gold without a look at the differences.
        """

    def figures(self) -> DeskFigures:
        """Counts and agreement."""
