"""The form of a record of CSV in one table: which lines may be records, and which lines inside a text surely are.

A text whose quotes are not doubled ends at the wrong place. The lines after it may be its rest, whose parts would be
cells of columns that are kept; and a quote that is never closed hides the records after it inside one text. No syntax
decides these cases, so the cells do: numbers, dates, identifiers, and patients that the identities have.
"""

import csv
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from deid_agent.batch.table_file import CellType, ColumnKind
from deid_agent.batch.tables import Table

_LONGEST_CELL = 64
_DIGITS_OF_A_DATE = 4
_SURE = 2
"""Cells of a checked column that are filled and fit, from which a line inside a text is a record."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """The places of the columns that are checked in a record of ``width`` cells. ``known`` are all known patients."""

    width: int
    numbers: frozenset[int] = frozenset()
    dates: frozenset[int] = frozenset()
    ids: frozenset[int] = frozenset()
    patient: int | None = None
    known: Container[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, table: Table, names: Sequence[str], known: Container[str] | None = None) -> "LineForm":
        """The form of the records of a file with these columns. ``known`` are the patients of the identities."""
        kinds = {place: table.find_kind(name) for place, name in enumerate(names)}
        types = {place: table.types.get(name.lower(), CellType.STRING) for place, name in enumerate(names)}
        patient = next((place for place, name in enumerate(names) if name.lower() == table.patient), None)
        return cls(
            len(names),
            frozenset(place for place, type_ in types.items() if type_ is not CellType.STRING),
            frozenset(place for place, kind in kinds.items() if kind is ColumnKind.DATE),
            frozenset(place for place, kind in kinds.items() if kind in {ColumnKind.ID, ColumnKind.TEMPLATE}),
            patient,
            known,
        )

    def may_be(self, cells: Sequence[str]) -> bool:
        """True for a record whose checked cells fit, and one of them is filled; for any if no column is checked."""
        found = self._count_fitting(cells)
        return found is not None and (found > 0 or not (self.numbers | self.dates | self.ids))

    def is_hidden(self, line: str) -> bool:
        """True if a line inside of a text is a record: of a known patient, or with several cells that fit."""
        try:
            cells = next(csv.reader([line]))
        except (csv.Error, StopIteration):
            return False
        found = self._count_fitting(cells)
        known = self.known is not None and self.patient is not None
        return found is not None and found >= (1 if known else _SURE)

    def _count_fitting(self, cells: Sequence[str]) -> int | None:
        """The number of checked cells that have a digit; None if one of them does not fit."""
        if len(cells) != self.width:
            return None
        if self.known is not None and self.patient is not None and cells[self.patient].strip() not in self.known:
            return None
        filled = 0
        for places, fits in ((self.numbers, _is_number), (self.dates, _is_date), (self.ids, _is_id)):
            for place in places:
                cell = cells[place].strip()
                if cell and not fits(cell):
                    return None
                filled += any(map(str.isdigit, cell))
        return filled


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.removeprefix("-").isdigit()


def _is_date(cell: str) -> bool:
    return len(cell) <= _LONGEST_CELL and sum(map(str.isdigit, cell)) >= _DIGITS_OF_A_DATE


def _is_id(cell: str) -> bool:
    return len(cell) <= _LONGEST_CELL and not any(map(str.isspace, cell))
