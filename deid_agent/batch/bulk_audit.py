"""The audit of the lines of a FHIR export, and their form for readers of a sample.

An audit part is a file in ``_audit`` with one line for each line of the input that is not empty: the leaf of the Merkle
tree as it is hashed, in the form of ``encode_leaf``. It needs no Arrow.
"""

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from deid_agent.audit import leaf_hash
from deid_agent.batch.audit_parts import Digests, UnitSums, digest_keyed, encode_leaf
from deid_agent.batch.bulk_lines import LineResult
from deid_agent.batch.bulk_outputs import LineFile
from deid_agent.batch.manifest import AUDIT, LINE_PART
from deid_agent.batch.sampling import SampledCell
from deid_agent.batch.schema import DONE, REFUSED

_BELOW = "(below)"
_NO_TEXT = "(not text)"


@dataclass(slots=True)
class LineAudit(UnitSums):
    """The audit of one unit while its lines are written, with the part."""

    digests: Digests
    file: LineFile

    @classmethod
    @contextmanager
    def begin(cls, digests: Digests, folder: Path, name: str) -> Iterator["LineAudit"]:
        """The audit of the unit with this name, in the folder of the outputs. Without ``finish`` nothing is left."""
        (folder / AUDIT).mkdir(mode=0o700, exist_ok=True)
        with LineFile(folder / AUDIT, f"{name}{LINE_PART}") as file:
            yield cls(digests, file)

    def add(self, content: bytes | None, result: LineResult) -> bytes:
        """Append a line, None for one that was too long; return its keyed digest."""
        document = result.document.encode("utf-8", "surrogatepass")
        row = digest_keyed(content or b"", self.digests.derive_secret(b"deid-batch-row"))
        counts = [
            {"column": column, "type": type_, "method": method, "rule": rule, "count": count}
            for column, type_, method, rule, count in result.changes
        ]
        leaf = encode_leaf(
            {
                "row": row,
                "document": digest_keyed(document, self.digests.derive_secret(b"deid-batch-doc")) if document else None,
                "outcome": REFUSED if result.reason else DONE,
                "reason": result.reason or None,
                "where": "line" if result.reason else None,
                "words": result.words,
                "in_texts": result.in_texts,
                "counts": counts,
            }
        )
        self.tree = self.tree.add(leaf_hash(leaf))
        self.file.write(leaf)
        self.words += result.words
        self.in_texts += result.in_texts
        self.refused.update([result.reason] if result.reason else [])
        for *key, count in result.changes:
            self.changes[key[0], key[1], key[2], key[3]] += count
        return row

    def finish(self) -> None:
        """Make the part durable under its name, and note its digest."""
        self.digest = self.file.finish()


def list_cells(before: bytes, after: bytes) -> list[SampledCell]:
    """A line for readers: the resource, and each encoded text of it decoded, before and after."""
    one, two = orjson.loads(before), orjson.loads(after)
    texts = list(zip_longest(_take_texts(one, ""), _take_texts(two, ""), fillvalue=("", None)))
    shown = [orjson.dumps(each, option=orjson.OPT_INDENT_2).decode() for each in (one, two)]
    found: list[SampledCell] = [("resource", "fhir", shown[0], shown[1])]
    found += [(path or other, "text", old, new) for (path, old), (other, new) in texts]
    return found


def _take_texts(node: Any, path: str) -> Iterator[tuple[str, str | None]]:
    """The encoded texts of a resource, each replaced by a note that it follows."""
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from _take_texts(item, f"{path}[{number}]")
    elif isinstance(node, dict):
        for name, value in list(node.items()):
            if name == "data" and isinstance(value, str):
                node[name] = _BELOW
                yield f"{path}.data".removeprefix("."), _decode(value)
            else:
                yield from _take_texts(value, f"{path}.{name}")


def _decode(value: str) -> str:
    try:
        found = base64.b64decode(value).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return value
    return _NO_TEXT if "\0" in found else found
