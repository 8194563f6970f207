"""Random rows for the tables of ``batch``: odd types, broken texts, numbers and dates at their bounds, odd contexts."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from support.tables import deidentifier, parts, shipped, table

from deid_agent.batch.audit_parts import Digests, RowAuditor, encode_leaf
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.schema import check_schema
from deid_agent.batch.table_file import ColumnKind
from deid_agent.model import ConfigurationError

CANARY = "Quixwell"
TABLES = (
    "omop/note",
    "omop/person",
    "omop/visit_occurrence",
    "omop/measurement",
    "omop/death",
    "mimic-iv-note/discharge",
)
OWN = {
    "columns": {
        "id": {"kind": "template", "template": "{who}-{n}"},
        "who": "id", "n": "keep", "born": {"kind": "date", "birth": True}, "day": "date", "name": "name",
        "doctor": {"kind": "family", "role": "provider"}, "phone": "PHONE", "ward": "keep-guarded", "text": "text",
        "y": "date-parts", "m": "date-parts", "d": "date-parts", "flag": "keep", "value": "keep-guarded",
        "gone": "drop",
    },
    "row": {"document": "id", "patient": "who", "reference": "day"},
    "when": {"value": {"kind": "text", "column": "flag", "in": ["T"]}},
    "date-parts": {"seen": {"year": "y", "month": "m", "day": "d"}},
}  # fmt: skip
WORDS = (
    CANARY, "Zyblorq", "4471902", "3/4", "2019-03-04", "31.02.2020", "Dr. Okafor", "T", "F", "-1", "0", "007",
    "12-DS-21", "740-555-0183", "9999-12-31", "0000-00-00", "1e309", "NaN", "\x00", "\x1b[2J", "\u202e", "\u00df\u0301",
    "\ud7ff", "\U0001f600", "<script>", "&#x0;", "' OR 1=1", "{{7*7}}", "=cmd|' /C'!A0", "\r\n", "\t", "\u2028",
    "\ufeff", "a" * 300,
)  # fmt: skip
BROKEN = (b"\xff\xfe", b"Quixwell\xff", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"\xe2\x28\xa1")
NUMBERS = (0, 1, -1, 7, 12, 31, 99, 1900, 2019, 310017, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)


@dataclass(frozen=True)
class FuzzedRows:
    """Some rows with the de-identifier of their table."""

    maker: RowDeidentifier
    rows: Rows


def make_rows(seed: int, count: int, size: int = 20) -> Iterator[FuzzedRows]:
    """``count`` random rows in batches of at most ``size``."""
    random_ = random.Random(seed)
    makers = [*(shipped(name) for name in TABLES), RowDeidentifier.of(table(**OWN), deidentifier(), "0" * 16)]
    while count > 0:
        maker, rows = random_.choice(makers), min(size, count)
        columns = {}
        for name, column in maker.table.columns.items():
            needed = name in {maker.table.document, maker.table.patient}
            if needed or random_.random() < 0.7:
                columns[name] = _make_column(random_, column.kind, rows)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        try:
            check_schema(maker.table, batch.schema)
        except ConfigurationError:
            continue
        contexts = [random_.choice((None, _make_context(random_))) for _ in range(rows)]
        faults = [random_.choice((None, None, None, "row", *columns)) for _ in range(rows)]
        yield FuzzedRows(maker, Rows(batch, contexts, faults))
        count -= rows


def check_rows(fuzzed: FuzzedRows) -> None:
    """Process the rows, and assert that each has an outcome, an audit, and no canary that its identity names."""
    maker, rows = fuzzed.maker, fuzzed.rows
    output, counts = maker.process_counted(rows)
    output.validate(full=True)
    audit = RowAuditor(Digests(parts().key), maker.table.document).audit(rows.batch, output, counts)
    audit.validate(full=True)
    assert output.num_rows == audit.num_rows == rows.batch.num_rows
    searched = {n for n, c in maker.table.columns.items() if c.kind in {ColumnKind.TEXT, ColumnKind.KEEP_GUARDED}}
    output = output.select([name for name in output.schema.names if name in {"deid", *searched}])
    for n, (read, part) in enumerate(zip(output.to_pylist(), audit.to_pylist(), strict=True)):
        assert encode_leaf(part)
        outcome = read.pop("deid")
        assert outcome["outcome"] in {"done", "refused"}
        assert (outcome["reason"] is None) == (outcome["outcome"] == "done")
        if outcome["outcome"] == "refused":
            assert not any(read.values()) and not part["counts"]
        elif _names_canary(rows.contexts[n]):
            assert CANARY.lower() not in str(read).lower()


def _names_canary(context: Mapping[str, object] | None) -> bool:
    name = (context or {}).get("name")
    return isinstance(name, dict) and name.get("family") == CANARY


def _make_context(random_: random.Random) -> dict[str, Any]:
    odd: Sequence[Any] = (None, "", 7, [], {}, ["x"], {"family": 1}, "x" * 5000, "\x00", True)
    context = {
        "mrn": random_.choice(("4471902", "\ud7ff", *odd)),
        "name": random_.choice(({"family": CANARY}, {"given": "Zyblorq", "family": CANARY}, *odd)),
        "birth_date": random_.choice(("1957-04-22", "1957-02-30", "0000-00-00", *odd)),
        "address": random_.choice(({"zip": "48109"}, *odd)),
    }
    return {name: value for name, value in context.items() if random_.random() < 0.5}


def _make_column(random_: random.Random, kind: ColumnKind, rows: int) -> "pa.Array":
    numbers = kind in {ColumnKind.ID, ColumnKind.VALUE, ColumnKind.DATE_PARTS, ColumnKind.KEEP, ColumnKind.DROP}
    draw = random_.random()
    if draw < 0.03:
        return pa.nulls(rows)
    if numbers and draw < 0.5:
        return _make_numbers(random_, rows)
    if kind in {ColumnKind.DATE, ColumnKind.KEEP} and draw < 0.7:
        return _make_dates(random_, rows)
    return _make_texts(random_, rows)


def _make_numbers(random_: random.Random, rows: int) -> "pa.Array":
    type_ = random_.choice((pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()))
    signed = pa.types.is_signed_integer(type_)
    low, high = (
        (-(1 << type_.bit_width - 1), (1 << type_.bit_width - 1) - 1) if signed else (0, (1 << type_.bit_width) - 1)
    )
    fitting = [number for number in NUMBERS if low <= number <= high]
    return pa.array([random_.choice((None, *fitting)) for _ in range(rows)], type_)


def _make_dates(random_: random.Random, rows: int) -> "pa.Array":
    type_ = random_.choice((
        pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"),
    ))  # fmt: skip
    plain = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    high = 2**31 - 1 if plain == pa.int32() else 2**63 - 1
    day = 1 if plain == pa.int32() else 86_400_000
    values = [random_.choice((None, 0, -1, 17_959 * day, -25_567 * day, high - day, day - high)) for _ in range(rows)]
    if pa.types.is_date64(type_):  # it holds whole days only
        values = [None if value is None else int(value / day) * day for value in values]
    return pa.array(values, plain).view(type_)


def _make_texts(random_: random.Random, rows: int) -> "pa.Array":
    cells: list[bytes | None] = []
    for _ in range(rows):
        draw = random_.random()
        words = " ".join(random_.choices(WORDS, k=random_.randrange(1, 9))).encode("utf-8", "replace")
        cells.append(None if draw < 0.1 else b"" if draw < 0.15 else random_.choice(BROKEN) if draw < 0.2 else words)
    large = random_.random() < 0.2
    array = pa.array(cells, pa.large_binary() if large else pa.binary()).view(
        pa.large_string() if large else pa.string()
    )
    if random_.random() < 0.1:
        try:
            return array.dictionary_encode()
        except (pa.ArrowException, UnicodeDecodeError):
            return array
    return array
