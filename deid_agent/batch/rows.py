"""The rows of a table in, sanitized rows out: a function of the rows alone, in any order and grouping.

Each row is treated as a message: its columns are the fields. Their names, numbers and birth dates, and the identity of
its patient, are the facts for which its texts and kept values are searched. A row that cannot be published is refused:
it stays in the output, without texts and without the value at fault. No exception leaves ``RowDeidentifier.process``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from deid_agent.batch.arrow import decode_type, highest_number, is_text, load_arrow, units_of_a_day
from deid_agent.batch.cells import Cell, as_text, day_of, digest_cells, fit_number, make_array, read_cells, read_day
from deid_agent.batch.ids import IdMap, Template, map_template
from deid_agent.batch.row_state import RowCounts, RowState, reason_of
from deid_agent.batch.schema import OUTCOME, make_output_schema
from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import Column, DateParts, Table
from deid_agent.model import (
    DateKind,
    Fact,
    MessageError,
    PhiType,
    Reason,
    Site,
    Subject,
    ValueKind,
)
from deid_agent.pipeline import (
    DeidentifiedText,
    Deidentifier,
    RefusedText,
    collect_facts,
    facts_from_context,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = {ColumnKind.NAME: ValueKind.NAME, ColumnKind.FAMILY: ValueKind.FAMILY, ColumnKind.GIVEN: ValueKind.GIVEN}
_READ = frozenset({ColumnKind.TEXT, ColumnKind.KEEP_GUARDED})


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of an input. ``contexts`` are the identities of their patients; ``faults`` name the broken columns."""

    batch: "pa.RecordBatch" = field(repr=False)
    contexts: Sequence[Mapping[str, object] | None] = field(default=(), repr=False)
    faults: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class RowDeidentifier:
    """De-identifies rows of one table. ``build`` is written beside each row."""

    table: Table
    deidentifier: Deidentifier
    build: str
    ids: IdMap

    @classmethod
    def of(cls, table: Table, deidentifier: Deidentifier, build: str) -> "RowDeidentifier":
        """The de-identifier with an empty map of identifiers."""
        return cls(table, deidentifier, build, IdMap(deidentifier.values.replace_id))

    def process(self, rows: Rows) -> "pa.RecordBatch":
        """The sanitized rows with their outcomes. The schema of ``rows.batch`` has passed ``check_schema``."""
        return self.process_counted(rows)[0]

    def process_counted(self, rows: Rows) -> tuple["pa.RecordBatch", list[RowCounts]]:
        """The same, and the replacements in each row."""
        pa = load_arrow()
        batch = rows.batch
        types = {column.name.lower(): decode_type(column.type) for column in batch.schema}
        kinds = {name: self.table.columns[name].kind for name in types}
        arrays = {
            name: array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            for name, array in zip(types, batch.columns, strict=True)
        }
        faults: list[str | None] = [*(rows.faults or [None] * batch.num_rows)]
        cells = {
            name: read_cells(array, types[name], name, faults)
            for name, array in arrays.items()
            if self._reads(name, types[name])
        }
        for name, values in cells.items():
            if kinds[name] is ColumnKind.KEEP and arrays[name].null_count != values.count(None):
                arrays[name] = pa.array(values, types[name])  # without the cells that are not UTF-8
        contexts = list(rows.contexts) or [None] * batch.num_rows
        made = [self._open_row(cells, n, contexts[n], faults[n], types) for n in range(batch.num_rows)]
        columns = _Columns(self, types, made)
        done = columns.replace_all(cells, kinds)
        late = False
        for name, values in done.items():
            arrays[name], failed = make_array(values, types[name])
            late = late or bool(failed)
            for n in failed:
                made[n].refuse(Reason.INTERNAL, name)
        if late:
            columns.hide_texts(done, kinds)
            arrays |= {name: make_array(values, types[name])[0] for name, values in done.items()}
        schema = make_output_schema(self.table, batch.schema)
        out = [arrays[name] for name in types if kinds[name] is not ColumnKind.DROP]
        outcomes = [row.describe(self.build) for row in made]
        out.append(pa.array(outcomes, type=schema.field(OUTCOME).type))
        return pa.RecordBatch.from_arrays(out, schema=schema), [RowCounts.of(row) for row in made]

    def _reads(self, name: str, type_: "pa.DataType") -> bool:
        """True for a column whose cells are read: those that are replaced, place a row or decide about a column."""
        table = self.table
        if name in {table.document, table.patient, table.reference, *(each.column for each in table.when.values())}:
            return True
        kind = table.columns[name].kind
        return is_text(type_) if kind is ColumnKind.KEEP else kind is not ColumnKind.DROP

    def _open_row(
        self,
        columns: Mapping[str, list[Cell]],
        number: int,
        context: Mapping[str, object] | None,
        fault: str | None,
        types: Mapping[str, "pa.DataType"],
    ) -> RowState:
        cells = {name: values[number] for name, values in columns.items()}
        document = as_text(cells.get(self.table.document or ""))
        row = RowState(cells, document or digest_cells(cells), as_text(cells.get(self.table.patient or "")) or None)
        if fault is not None:
            row.refuse(Reason.MALFORMED, fault)
            # Without its patient the dates of a row would move by other days.
            row.broken = fault not in cells or (self.table.patient is not None and row.patient is None)
        known: tuple[Fact, ...] = ()
        try:
            known = facts_from_context(context or {})
        except MessageError as problem:
            row.refuse(problem.reason, f"identities.{problem.where.removeprefix('context').strip('.')}".rstrip("."))
            if isinstance(number_of_record := (context or {}).get("mrn"), str):
                # The dates of a refused row still move as those of the patient.
                known = facts_from_context({"mrn": number_of_record})
        try:
            row.facts = (*collect_facts(self._list_sites(row, types), "row"), *known)
            at = self.table.reference
            reference = None if at is None else read_day(cells.get(at), types.get(at))
            values = self.deidentifier.values
            found = values.find_patient(row.facts, row.patient, self.table.patient_key)
            row.listing = found.listing
            row.scope = values.make_scope(row.document, found, row.facts, reference)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in one row must not affect the others
            row.broken = True
            row.refuse(*reason_of(error, "row"))
        return row

    def _list_sites(self, row: RowState, types: Mapping[str, "pa.DataType"]) -> Iterator[Site]:
        """The values of a row that its texts are searched for."""
        for name, value in row.cells.items():
            column = self.table.columns[name]
            if value is None:
                continue
            if name == self.table.patient:
                yield Site(name, 0, 0, PhiType.IDNUM, subject=Subject.PATIENT, value=as_text(value))
            elif column.kind in _NAMES:
                # The parts of one person's name are one person: all those of one role.
                yield Site(name, 0, 0, column.type, _NAMES[column.kind], column.subject, column.subject, as_text(value))
            elif column.kind is ColumnKind.VALUE:
                yield Site(name, 0, 0, column.type, subject=column.subject, value=as_text(value))
            elif column.date_kind is DateKind.BIRTH and (born := read_day(value, types[name])) is not None:
                day, kind = born.isoformat(), DateKind.BIRTH
                yield Site(name, 0, 0, PhiType.DATE, subject=Subject.PATIENT, value=day, date_kind=kind)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Replaces the cells of some rows, column by column."""

    maker: RowDeidentifier
    types: Mapping[str, "pa.DataType"]
    rows: Sequence[RowState]

    def replace_all(self, cells: Mapping[str, list[Cell]], kinds: Mapping[str, ColumnKind]) -> dict[str, list[Cell]]:
        """The new cells of each column; a column that is kept unread is left out."""
        table = self.maker.table
        done: dict[str, list[Cell]] = {}
        for parts in table.date_parts:
            if all(name is None or name in cells for name in parts.columns[:1]):
                done |= self._replace_date_parts(parts, cells)
        texts: list[tuple[str, int]] = []
        for name, values in cells.items():
            condition = table.when.get(name)
            if name in done or (kinds[name] in {ColumnKind.KEEP, ColumnKind.DROP} and condition is None):
                continue
            done[name] = new = [None] * len(values)
            for n, row in enumerate(self.rows):
                if values[n] is None or row.broken:
                    continue
                column = table.columns[name]
                if condition is not None and condition.applies(as_text(row.cells.get(condition.column))):
                    column = condition.treatment
                if column.kind is ColumnKind.TEXT:
                    texts.append((name, n))
                else:
                    new[n] = self._replace_counted(column, name, values[n], row)
        self._replace_texts(texts, done)
        self.hide_texts(done, kinds)
        return done

    def hide_texts(self, done: Mapping[str, list[Cell]], kinds: Mapping[str, ColumnKind]) -> None:
        """Remove the texts of refused rows."""
        for name in done:
            for n, row in enumerate(self.rows):
                if row.reason is not None and (kinds[name] in _READ or name in self.maker.table.when):
                    done[name][n] = None

    def _replace_counted(self, column: Column, name: str, value: Cell, row: RowState) -> Cell:
        new = row.guard(name, partial(self._replace, column, name, value, row))
        if column.kind is not ColumnKind.KEEP_GUARDED and new != value:
            self._count(row, name, column.type, column.kind)
        return new

    def _replace(self, column: Column, name: str, value: Cell, row: RowState) -> Cell:
        values, type_ = self.maker.deidentifier.values, self.types[name]
        new: Cell
        match column.kind:
            case ColumnKind.KEEP:
                new = value
            case ColumnKind.ID:
                new = self._map_id(name, value)
            case ColumnKind.TEMPLATE:
                ids = [part for part in column.parts if self.maker.table.columns[part].kind is ColumnKind.ID]
                template = Template(column.parts, column.separators)
                new = map_template(template, value, {part: self._map_part(part) for part in ids})
            case ColumnKind.KEEP_GUARDED:
                new, remarks = values.scrub_counted(value, name, row.facts, row.scope)
                for remark in remarks:
                    row.changes[name, remark.type, remark.method, remark.source] += remark.count
            case ColumnKind.DATE if not is_text(type_):
                new = self._shift_typed(value, type_, column.date_kind, row)
            case ColumnKind.DATE:
                new = self._replace_site(name, PhiType.DATE, value, row, date_kind=column.date_kind) or None
            case _:
                kind = _NAMES.get(column.kind, ValueKind.VALUE)
                text = self._replace_site(name, column.type, as_text(value), row, kind, column.subject) or None
                new = text if is_text(type_) or text is None else fit_number(text, type_)
        return new

    def _count(self, row: RowState, name: str, type_: PhiType, kind: ColumnKind) -> None:
        """Count a cell that its column's kind has changed."""
        method = self.maker.deidentifier.values.policy.method(type_, name)
        row.changes[name, type_.value, method.value, f"table:{kind}"] += 1

    def _replace_site(
        self,
        path: str,
        type_: PhiType,
        value: str,
        row: RowState,
        kind: ValueKind = ValueKind.VALUE,
        subject: Subject = Subject.OTHER,
        date_kind: DateKind = DateKind.EVENT,
    ) -> str:
        site = Site(path, 0, 0, type_, kind, subject, value=value, date_kind=date_kind)
        return self.maker.deidentifier.values.replace(site, row.scope)

    def _map_id(self, name: str, value: Cell) -> Cell:
        highest = highest_number(self.types[name])
        return self.maker.ids.map_text(value) if highest is None else self.maker.ids.map_number(value, highest)

    def _map_part(self, name: str) -> Callable[[str], str]:
        """The map of a part of a template: that of the column of its name, with its leading zeros kept."""
        highest = None if name not in self.types else highest_number(self.types[name])

        def map_part(part: str) -> str:
            if highest is None or not (part.isascii() and part.isdigit()) or int(part) > highest:
                return self.maker.ids.map_text(part)
            number = part.lstrip("0") or "0"
            zeros = part[: len(part) - len(number)]
            return zeros + str(self.maker.ids.map_number(int(number), highest))

        return map_part

    def _shift_typed(self, value: int, type_: "pa.DataType", kind: DateKind, row: RowState) -> int:
        per_day = units_of_a_day(type_)
        old = day_of(value, per_day)
        new = date.fromisoformat(self._replace_site("date", PhiType.DATE, old.isoformat(), row, date_kind=kind))
        return value + (new - old).days * per_day

    def _replace_date_parts(self, parts: DateParts, cells: Mapping[str, list[Cell]]) -> dict[str, list[Cell]]:
        names = [name for name in parts.columns if name is not None and name in cells]
        done: dict[str, list[Cell]] = {name: [None] * len(self.rows) for name in names}
        for n, row in enumerate(self.rows):
            new = None if row.broken else row.guard(names[0], partial(self._shift_parts, parts, names, row))
            for name, value in (new or {}).items():
                done[name][n] = value
                if value != row.cells[name]:
                    self._count(row, name, PhiType.DATE, ColumnKind.DATE_PARTS)
        return done

    def _shift_parts(self, parts: DateParts, names: Sequence[str], row: RowState) -> dict[str, Cell]:
        """The parts of the moved date. A month without a year, or a day without a month, is no date and is left out."""
        given: list[tuple[str, int]] = []
        for name, width in zip(names, (4, 2, 2), strict=False):
            if row.cells[name] is None or not as_text(row.cells[name]).strip():
                break
            given.append((name, width))
        if not given:
            return {}
        numbers = [int(as_text(row.cells[name])) for name, _ in given]
        date(*numbers, *[1] * (3 - len(numbers)))
        text = "-".join(f"{number:0{width}d}" for number, (_, width) in zip(numbers, given, strict=True))
        new = self._replace_site(names[0], PhiType.DATE, text, row, date_kind=parts.date_kind).split("-")
        if len(new) != len(given):
            raise ValueError
        return {
            name: str(int(part)).zfill(len(row.cells[name]))
            if is_text(self.types[name])
            else fit_number(part, self.types[name])
            for (name, _), part in zip(given, new, strict=True)
        }

    def _replace_texts(self, places: Sequence[tuple[str, int]], done: dict[str, list[Cell]]) -> None:
        """Read the texts of all rows together."""
        at = [(name, n) for name, n in places if self.rows[n].reason is None]
        requests = [self.rows[n].make_request(name, self.maker.table.patient_key) for name, n in at]
        try:
            results = list(self.maker.deidentifier.texts(requests))
        except Exception as error:  # noqa: BLE001 - the boundary
            results = [RefusedText(Reason.INTERNAL, detail=type(error).__name__)] * len(requests)
        for (name, n), result in zip(at, results, strict=True):
            if isinstance(result, DeidentifiedText):
                done[name][n] = result.text
                self.rows[n].count_text(name, self.rows[n].cells[name], result.remarks)
            else:
                self.rows[n].refuse(result.reason, name)
