"""The audit of the rows: for each unit one Parquet file in ``_audit``, with a row for each row of the output.

A row has keyed digests, the outcome, and the replacements by column, type, method and rule: no values and no places in
a text. The rows are the leaves of a Merkle tree, hashed as in RFC 9162, whose root is in the manifest.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from deid_agent.audit import Frontier, leaf_hash
from deid_agent.batch.arrow import is_text, load_arrow
from deid_agent.batch.cells import as_text
from deid_agent.batch.manifest import AUDIT
from deid_agent.batch.outputs import OutputFormat, UnitFile, encode_batch
from deid_agent.batch.row_state import ChangeKey, RowCounts
from deid_agent.batch.schema import OUTCOME, REFUSED
from deid_agent.batch.sources import InputFile, Unit, name_faults
from deid_agent.config import SecretKey

if TYPE_CHECKING:
    import pyarrow as pa

_LEAF = "leaf"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Digests:
    """Keyed digests of inputs, their names and their rows: without the key nobody can confirm a guess of them."""

    key: SecretKey = field(repr=False)

    def derive_secret(self, use: bytes) -> bytes:
        """The secret for one use."""
        return hashlib.blake2b(self.key.secret, person=use, digest_size=32).digest()

    def name_unit(self, unit: Unit) -> str:
        """The name of a unit. It begins with that of the input: a file, or a table and its data file."""
        names = [unit.source.name] if unit.source.layout is None else [unit.source.layout.table, unit.source.name]
        key = self.derive_secret(b"deid-batch-name")
        data = [name.encode("utf-8", "surrogateescape") for name in names]
        digests = [hashlib.blake2b(each, key=key, digest_size=8).hexdigest() for each in data]
        return f"{'-'.join(digests)}-{unit.first:05d}"

    def start(self) -> "hashlib.blake2b":
        """The empty digest of a content."""
        return hashlib.blake2b(key=self.derive_secret(b"deid-batch-file"), digest_size=16)

    def digest_file(self, path: Path) -> str:
        """The digest of a file. Raises ``UnreadableError``, since an ``OSError`` has the name of the file."""
        digest = self.start()
        with name_faults(), path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        return digest.hexdigest()

    def digest_source(self, source: InputFile) -> str:
        """The digest of what decides the rows of an input: the file, and the table of a data file."""
        content = self.digest_file(source.path)
        return content if source.layout is None else source.layout.digest(content)


def _part_schema(*, leaf: bool) -> "pa.Schema":
    pa = load_arrow()
    text, digest = pa.string(), pa.binary(_DIGEST_BYTES)
    names = [pa.field(name, text) for name in ("column", "type", "method", "rule")]
    columns = [pa.field("row", digest), pa.field("document", digest)]
    columns += [pa.field(name, text) for name in ("outcome", "reason", "where")]
    columns += [pa.field("words", pa.int32()), pa.field("in_texts", pa.int32())]
    columns += [pa.field("counts", pa.list_(pa.struct([*names, pa.field("count", pa.int32())])))]
    return pa.schema([*columns, *([pa.field(_LEAF, pa.binary(32))] if leaf else [])])


def encode_leaf(row: Mapping[str, object]) -> bytes:
    """The bytes of a row of a part that the tree covers: a JSON array of its members, digests in hex."""
    counts = row["counts"]
    cells = [value.hex() if isinstance(value := row[name], bytes) else None for name in ("row", "document")]
    others = [row[name] for name in ("outcome", "reason", "where", "words", "in_texts")]
    changes = [list(change.values()) for change in counts] if isinstance(counts, list) else []
    return orjson.dumps([*cells, *others, changes])


@dataclass(frozen=True, slots=True)
class RowAuditor:
    """Makes the rows of a part, with their leaf hashes. ``document`` is the column that names the document of a row."""

    digests: Digests
    document: str | None

    def audit(
        self, batch: "pa.RecordBatch", output: "pa.RecordBatch", counts: Sequence[RowCounts] = ()
    ) -> "pa.RecordBatch":
        """The audit of some rows: their input, their output, and their counts in the same order."""
        rows = []
        cells = [(column.name.lower(), _encode_cells(array)) for column, array in zip(batch.schema, batch, strict=True)]
        outcomes = output.column(output.schema.get_field_index(OUTCOME)).to_pylist()
        of_row = self.digests.derive_secret(b"deid-batch-row")
        of_document = self.digests.derive_secret(b"deid-batch-doc")
        documents = [values for name, values in cells if name == self.document]
        heads = [b"%d:%s" % (len(name.encode()), name.encode()) for name, _ in cells]
        for n, outcome in enumerate(outcomes):
            digest = hashlib.blake2b(key=of_row, digest_size=_DIGEST_BYTES)
            for head, (_, values) in zip(heads, cells, strict=True):
                value = values[n]
                digest.update(head + (b"-" if value is None else b"%d:%s" % (len(value), value)))
            document = documents[0][n] if documents else None
            count = counts[n] if counts else RowCounts()
            row = {
                "row": digest.digest(),
                "document": digest_keyed(document, of_document) if document else None,
                "outcome": outcome["outcome"],
                "reason": outcome["reason"],
                "where": outcome["where"],
                "words": count.words,
                "in_texts": count.in_texts,
                "counts": _list_changes(count.changes),
            }
            rows.append(row | {_LEAF: leaf_hash(encode_leaf(row))})
        return load_arrow().RecordBatch.from_pylist(rows, _part_schema(leaf=True))


def digest_keyed(data: bytes, key: bytes) -> bytes:
    """The digest of a row or document in a part; ``key`` is a secret of ``Digests``."""
    return hashlib.blake2b(data, key=key, digest_size=_DIGEST_BYTES).digest()


def _list_changes(changes: Mapping[ChangeKey, int]) -> list[dict[str, object]]:
    return [
        {"column": column, "type": type_, "method": method, "rule": rule, "count": count}
        for (column, type_, method, rule), count in sorted(changes.items())
    ]


def _encode_cells(array: "pa.Array") -> list[bytes | None]:
    """The cells of a column as bytes, whatever their type; equal cells of equal types are equal bytes."""
    pa = load_arrow()
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        # Not as strings: they may not be UTF-8.
        values: list[bytes | None] = array.view(
            pa.large_binary() if types.is_large_string(array.type) else pa.binary()
        ).to_pylist()
        return values
    if types.is_timestamp(array.type) or types.is_date(array.type):
        array = array.cast(pa.int32() if types.is_date32(array.type) else pa.int64())
    try:
        return [None if value is None else _encode(value) for value in array.to_pylist()]
    except (ValueError, OverflowError, pa.ArrowException):
        # A text inside a structure that is not UTF-8, or a time that Python cannot hold.
        parts = [pa.RecordBatch.from_arrays([array.take(pa.array([n]))], ["cell"]) for n in range(len(array))]
        return [encode_batch(part) if part.column(0).null_count == 0 else None for part in parts]


def _encode(value: object) -> bytes:
    return value if isinstance(value, bytes) else as_text(value).encode("utf-8", "surrogatepass")


@dataclass(slots=True, kw_only=True)
class UnitSums:
    """The tree over the rows of one unit and their sums, while they are written; then the SHA-256 of the part."""

    tree: Frontier = field(default_factory=Frontier)
    words: int = 0
    in_texts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    changes: Counter[ChangeKey] = field(default_factory=Counter)
    digest: str = ""

    @property
    def counts(self) -> tuple[tuple[str, str, str, str, int], ...]:
        """The replacements of the unit, in the form of the manifest."""
        return tuple((*key, count) for key, count in sorted(self.changes.items()))


@dataclass(slots=True)
class UnitAudit(UnitSums):
    """The audit of one unit while its rows are written, with the part. A context manager."""

    part: UnitFile
    rows: int = 0

    @classmethod
    def begin(cls, folder: Path, name: str) -> "UnitAudit":
        """The audit of the unit with this name, in the folder of the outputs."""
        (folder / AUDIT).mkdir(mode=0o700, exist_ok=True)
        schema = _part_schema(leaf=False)
        return cls(UnitFile(folder / AUDIT, f"{name}.parquet", schema, OutputFormat.PARQUET, "zstd"))

    def __enter__(self) -> "UnitAudit":
        self.part.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.part.__exit__(*error)

    def add(self, batch: "pa.RecordBatch", changes: Iterable[tuple[ChangeKey, int]]) -> None:
        """Append rows of ``RowAuditor`` with the sum of their replacements."""
        for leaf in batch.column(_LEAF).to_pylist():
            self.tree = self.tree.add(leaf)
        self.rows += batch.num_rows
        self.words += sum(batch.column("words").to_pylist())
        self.in_texts += sum(batch.column("in_texts").to_pylist())
        outcomes, reasons = batch.column("outcome").to_pylist(), batch.column("reason").to_pylist()
        self.refused.update(reason for reason, each in zip(reasons, outcomes, strict=True) if each == REFUSED)
        for key, count in changes:
            self.changes[key] += count
        self.part.write(batch.drop_columns([_LEAF]), ends_group=False)

    def finish(self) -> None:
        """Make the part durable under its name, and note its digest."""
        self.digest = self.part.finish()


def sum_changes(counts: Iterable[RowCounts]) -> Counter[ChangeKey]:
    """The replacements in some rows together."""
    found: Counter[ChangeKey] = Counter()
    for each in counts:
        found.update(each.changes)
    return found
