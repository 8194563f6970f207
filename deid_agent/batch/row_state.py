"""A row while it is treated: its cells and facts, the reason of its refusal, and its replacements."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from deid_agent.batch.cells import Cell
from deid_agent.batch.schema import DONE, REFUSED
from deid_agent.model import Fact, Listing, MessageError, Reason, Remark
from deid_agent.pipeline import TextRequest
from deid_agent.surrogate import Scope

ChangeKey = tuple[str, str, str, str]
"""Column, PHI type, method and rule of a replacement."""


@dataclass(slots=True)
class RowState:
    """The state of a row. The first fault counts. Of a ``broken`` row no cell is published that is not kept."""

    cells: Mapping[str, Cell] = field(repr=False)
    document: str = field(repr=False)
    patient: str | None = field(repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    scope: Scope = field(default_factory=lambda: Scope(""), repr=False)
    reason: Reason | None = None
    where: str = ""
    broken: bool = False
    listing: Listing | None = None
    changes: Counter[ChangeKey] = field(default_factory=Counter)
    words: int = 0
    in_texts: int = 0

    def refuse(self, reason: Reason, where: str) -> None:
        """Refuse the row, unless it is refused already."""
        if self.reason is None:
            self.reason, self.where = reason, where

    def make_request(self, name: str, key: str) -> TextRequest:
        """The text of a column to read. The patient is one of the column ``key`` of the identities."""
        return TextRequest(self.cells[name], self.document, self.patient, self.facts, None, self.scope.reference, key)

    def count_text(self, column: str, text: str, remarks: Iterable[Remark]) -> None:
        """Count the words and the replacements of a text."""
        self.words += len(text.split())
        for remark in remarks:
            self.changes[column, remark.type, remark.method, remark.source] += remark.count
            self.in_texts += remark.count

    def describe(self, build: str) -> dict[str, str | None]:
        """The outcome, as the output has it."""
        if self.reason is None:
            return {"outcome": DONE, "reason": None, "where": None, "build": build}
        return {"outcome": REFUSED, "reason": self.reason.value, "where": self.where or None, "build": build}

    def guard(self, where: str, work: Callable[[], Cell]) -> Cell:
        """The result of ``work``; None if it fails, which refuses the row."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in one cell must not affect the others
            self.refuse(*reason_of(error, where))
            return None


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The replacements in a row by column, type, method and rule; its words, and the replacements in its texts.

    A refused row has none: its texts are not published. ``listing`` is that of its patient.
    """

    changes: Mapping[ChangeKey, int] = field(default_factory=dict)
    words: int = 0
    in_texts: int = 0
    listing: Listing | None = None

    @classmethod
    def of(cls, row: RowState) -> "RowCounts":
        """The counts of a row at its end."""
        if row.reason is not None:
            return cls(listing=row.listing)
        return cls(row.changes, row.words, row.in_texts, row.listing)


def reason_of(error: Exception, where: str) -> tuple[Reason, str]:
    """The reason for which an exception refuses its row."""
    if isinstance(error, MessageError):
        return error.reason, where
    malformed = isinstance(error, (ValueError, OverflowError))
    return Reason.MALFORMED if malformed else Reason.INTERNAL, where
