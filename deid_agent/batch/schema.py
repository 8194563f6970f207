"""Compares the columns of an input with a table file, and derives the columns of the output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deid_agent.batch.arrow import decode_type, highest_number, is_date, is_text, load_arrow
from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import Table
from deid_agent.model import ConfigurationError, PhiType, Reason
from deid_agent.pipeline import Method, Policy

if TYPE_CHECKING:
    import pyarrow as pa

OUTCOME = "deid"
"""The column of the output with the outcome of each row."""
DONE, REFUSED = "done", "refused"


def _is_number(type_: "pa.DataType") -> bool:
    return highest_number(type_) is not None


def _is_text_or_number(type_: "pa.DataType") -> bool:
    return is_text(type_) or _is_number(type_)


def _is_text_or_date(type_: "pa.DataType") -> bool:
    return is_text(type_) or is_date(type_)


_FITS: dict[ColumnKind, tuple[Callable[["pa.DataType"], bool], str]] = {
    ColumnKind.ID: (_is_text_or_number, "strings or whole numbers"),
    ColumnKind.VALUE: (_is_text_or_number, "strings or whole numbers"),
    ColumnKind.DATE_PARTS: (_is_text_or_number, "strings or whole numbers"),
    ColumnKind.DATE: (_is_text_or_date, "dates, timestamps or strings"),
    ColumnKind.TEMPLATE: (is_text, "strings"),
    ColumnKind.NAME: (is_text, "strings"),
    ColumnKind.FAMILY: (is_text, "strings"),
    ColumnKind.GIVEN: (is_text, "strings"),
    ColumnKind.TEXT: (is_text, "strings"),
    ColumnKind.KEEP_GUARDED: (is_text, "strings"),
}


def check_schema(table: Table, schema: "pa.Schema") -> None:
    """Raises ``ConfigurationError`` if a column is undeclared, occurs twice, or has a type that its kind cannot have.

    An undeclared column is named by its place: without a header line, the names of columns are the first row.
    """
    seen: set[str] = set()
    undeclared: list[int] = []
    for place, column in enumerate(schema, 1):
        name = column.name.lower()
        kind = table.find_kind(name)
        if kind is None:
            undeclared.append(place)
            continue
        if name in seen:
            raise ConfigurationError(f"column {name} occurs twice: rename or leave out one")
        seen.add(name)
        kinds = {kind, *([table.when[name].treatment.kind] if name in table.when else [])}
        for each in kinds:
            fits, wanted = _FITS.get(each, (lambda _: True, ""))
            type_ = decode_type(column.type)
            if not (fits(type_) or load_arrow().types.is_null(type_)):  # a column of the type null has no values
                raise ConfigurationError(f"column {name}: kind {each} needs {wanted}: change the type or the kind")
        if name == OUTCOME and kind is not ColumnKind.DROP:
            raise ConfigurationError(f"column {OUTCOME}: the output has a column of that name; declare it as drop")
    if undeclared:
        places = ", ".join(map(str, undeclared[:10]))
        raise ConfigurationError(
            f"{len(undeclared)} of {len(schema)} columns are not declared in the table file (place {places}): "
            "declare each; drop leaves it out"
        )
    missing = [name for name in (table.patient, table.document) if name is not None and name not in seen]
    if missing:
        raise ConfigurationError(f"column {missing[0]} of [row] is not in the input: add it, or change [row]")
    if odd := [name for name, condition in table.when.items() if name in seen and condition.column not in seen]:
        raise ConfigurationError(f"column {table.when[odd[0]].column}, on which {odd[0]} depends, is not in the input")


def make_output_schema(table: Table, schema: "pa.Schema") -> "pa.Schema":
    """The columns of the output: those of the input without dropped ones, and the outcome.

    Every column may be null: a refused row has no texts. Metadata is left out, since tools write values into it.
    """
    pa = load_arrow()
    kept = [
        pa.field(column.name, _without_metadata(decode_type(column.type)))
        for column in schema
        if table.find_kind(column.name) is not ColumnKind.DROP
    ]
    return pa.schema([*kept, pa.field(OUTCOME, outcome_type())])


def _without_metadata(type_: "pa.DataType") -> "pa.DataType":
    """The type without the metadata of the fields in it: the footer of Parquet would have it."""
    pa = load_arrow()
    types = pa.types

    def clean(field: Any) -> Any:
        return pa.field(field.name, _without_metadata(field.type), field.nullable)

    if types.is_struct(type_):
        return pa.struct([clean(field) for field in type_])
    if types.is_map(type_):
        return pa.map_(clean(type_.key_field), clean(type_.item_field), type_.keys_sorted)
    if types.is_fixed_size_list(type_):
        return pa.list_(clean(type_.value_field), type_.list_size)
    if types.is_list(type_) or types.is_large_list(type_):
        return (pa.list_ if types.is_list(type_) else pa.large_list)(clean(type_.value_field))
    return type_


def outcome_type() -> "pa.DataType":
    """The type of the column ``OUTCOME``: a structure of strings."""
    pa = load_arrow()
    return pa.struct([pa.field(name, pa.string()) for name in ("outcome", "reason", "where", "build")])


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Makes the output of rows that could not be processed: nothing but the outcome."""

    schema: "pa.Schema"
    build: str

    def make(self, reason: Reason, where: str, count: int = 1) -> "pa.RecordBatch":
        """Rows of the schema in which everything else is null."""
        pa = load_arrow()
        outcome = {"outcome": REFUSED, "reason": reason.value, "where": where or None, "build": self.build}
        arrays = [
            pa.array([outcome] * count, column.type) if column.name == OUTCOME else pa.nulls(count, column.type)
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def check_bulk_policy(policy: Policy) -> None:
    """Raises ``ConfigurationError`` if the lines of a FHIR bulk export would not join under the policy."""
    check_policy(Table("fhir", "", {}, patient="patient"), policy)
    paths = ("Patient.id", "Observation.subject.reference")
    odd = sorted(path for path, method in policy.paths.items() if method is Method.LINK)
    odd += [path for path in paths if policy.method(PhiType.IDNUM, path) is not Method.SURROGATE]
    if odd:
        raise ConfigurationError(
            f"policy {policy.name}: {odd[0]} is not replaced by surrogates, so the lines of an export would not join "
            "(codes of link are those of one line): use research"
        )


def check_policy(table: Table, policy: Policy) -> None:
    """Raises ``ConfigurationError`` if the rows of a table would not join under the policy."""
    name = f"policy {policy.name}"
    if policy.published is not None or policy.unlinked:
        raise ConfigurationError(f"{name}: is for messages that nothing joins; use research for tables")
    for type_ in (PhiType.IDNUM, PhiType.DATE):
        if policy.method(type_, "") is not Method.SURROGATE:
            raise ConfigurationError(f"{name}: {type_} is not replaced by surrogates; use research for tables")
    if table.patient is not None and (policy.dates.offset_days or not policy.dates.by_patient):
        raise ConfigurationError(
            f"{name}: dates of a patient move by other days in each document; use research, with offset_days = 0"
        )
