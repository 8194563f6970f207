"""Proofs that an entry is in a trail, and that a trail only grew, for people who do not have the trail.

A proof holds the statements of the agent as it signed them: the first line of the trail, the changes of key up to the
epoch of the head, and the head. The head of an entry is the first statement after it, because its key is destroyed
earliest: a thief of a later key cannot make such a proof.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from deid_agent.audit.faults import Fields, int_member, read_fields
from deid_agent.audit.merkle import (
    consistency_ranges,
    hash_ranges,
    inclusion_ranges,
    is_consistent,
    is_included,
    leaf_hash,
)
from deid_agent.audit.reading import EntryFilter
from deid_agent.audit.storage import (
    FORMAT,
    TAIL,
    LineKind,
    is_public_key,
    is_signed,
    line_prefix,
    read_head,
    segment_files,
    trail_id,
)
from deid_agent.model import ConfigurationError

_SEGMENT, _ENTRY, _KEY = (line_prefix(kind) for kind in (LineKind.SEGMENT, LineKind.ENTRY, LineKind.KEY))
_STATEMENTS = tuple(line_prefix(kind) for kind in (LineKind.CHECKPOINT, LineKind.KEY, LineKind.HEAD))

Proof = Mapping[str, object]
"""A proof as JSON: ``kind``, ``segment``, ``keys``, ``head``, ``path``, and ``index`` and ``entry``, or ``old``."""


class ProofError(Exception):
    """A proof does not hold; the text names the failing step."""


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """What a valid proof shows: the trail and its agent, the members of head and entry (empty for consistency)."""

    head: Fields
    entry: Fields


def prove_entry(folder: Path, choice: EntryFilter, head: bytes | None = None) -> Proof:
    """The proof that the last entry that matches ``choice`` is in the trail.

    ``head`` is a head that somebody else kept, in place of the first statement after the entry. Raises
    ``ConfigurationError`` if no entry matches, if it is not signed yet, or if segments are missing.
    """
    own = _statement(head) if head is not None else None
    index, entry, count, statement = -1, b"", 0, own or b""
    limit = int_member(read_fields(own), "size") if own is not None else None
    for line in _lines(folder):
        if line.startswith(_ENTRY):
            if (limit is None or count < limit) and choice.matches(read_fields(line)):
                index, entry, statement = count, line, own or b""
            count += 1
        elif index >= 0 and not statement and line.startswith(_STATEMENTS):
            statement = line[: -TAIL + 1] + b"}"
    if index < 0:
        raise ConfigurationError("no entry matches" if limit is None else "no entry that the head covers matches")
    if not statement:
        raise ConfigurationError("the entry is not signed yet: try again after audit.checkpoint_s")
    size = int_member(read_fields(statement), "size")
    path = hash_ranges(_leaves(folder), inclusion_ranges(index, size))
    found = {"kind": "inclusion", "index": index, "entry": entry.decode()}
    return found | _proof_members(folder, statement, path)


def prove_growth(folder: Path, old: bytes) -> Proof:
    """The proof that the trail, up to its newest head, begins with the one that the head ``old`` signs.

    Raises ``ConfigurationError`` if a head cannot be read or segments are missing.
    """
    newest = read_head(folder)
    if newest is None:
        raise ConfigurationError(f"audit folder {folder}: has no head")
    former, statement = _statement(old), _statement(newest)
    sizes = [int_member(read_fields(each), "size") for each in (former, statement)]
    path = hash_ranges(_leaves(folder), consistency_ranges(sizes[0], sizes[1]))
    return {"kind": "consistency", "old": former.decode(), **_proof_members(folder, statement, path)}


def check_proof(proof: object, trusted: Collection[str]) -> CheckedProof:
    """What a proof shows. ``trusted`` are the first key of the trail or identities. Raises ``ProofError``."""
    if not isinstance(proof, dict):
        raise ProofError("is not a proof")
    opening, keys, head = (_texts(proof, name) for name in ("segment", "keys", "head"))
    path = [bytes.fromhex(step) for step in _hashes(proof)]
    first = read_fields(opening[0])
    public, identity, trail = (str(first.get(name)) for name in ("public_key", "identity", "trail"))
    if not opening[0].startswith(_SEGMENT) or not is_signed(opening[0][:-1], identity):
        raise ProofError("the first line of the trail is not signed by the identity that it names")
    begins = (int_member(first, "epoch"), int_member(first, "size")) == (0, 0)
    if not begins or not is_public_key(public) or trail != trail_id(public):
        raise ProofError("the first line does not begin a trail")
    if not {public, identity} & set(trusted):
        raise ProofError(f"the trail begins with the key {public} of {identity}: neither is trusted")
    in_force = [public]
    for number, line in enumerate(keys):
        fields = _signed_members(line, in_force[-1], trail, number)
        if not line.startswith(_KEY):
            raise ProofError(f"the statement {number} of keys changes no key")
        in_force.append(str(fields.get("public_key")))
    newest = _head_members(head[0], in_force, trail)
    root = bytes.fromhex(str(newest["root"]))
    if proof.get("kind") == "inclusion":
        line = _texts(proof, "entry")[0]
        index = proof.get("index")
        if type(index) is not int or not is_included(leaf_hash(line), index, int_member(newest, "size"), path, root):
            raise ProofError("the path does not lead from the entry to the signed root")
        return CheckedProof(newest, read_fields(line))
    line = _texts(proof, "old")[0]
    former = _head_members(line, in_force, trail)
    sizes = [int_member(each, "size") for each in (former, newest)]
    if not is_consistent(sizes[0], bytes.fromhex(str(former["root"])), sizes[1], root, path):
        raise ProofError("the trail does not begin with the one that the old head signs")
    return CheckedProof(newest, {})


def _proof_members(folder: Path, statement: bytes, path: Sequence[bytes]) -> dict[str, object]:
    epoch = int_member(read_fields(statement), "epoch")
    keys = [line[: -TAIL + 1] + b"}" for line in _lines(folder) if line.startswith(_KEY)]
    opening = next(line for line in _lines(folder) if line.startswith(_SEGMENT))
    return {
        "segment": (opening[: -TAIL + 1] + b"}").decode(),
        "keys": [key.decode() for key in keys[:epoch]],
        "head": statement.decode(),
        "path": [step.hex() for step in path],
    }


def _lines(folder: Path) -> Iterator[bytes]:
    """The complete lines of the present format, without their line feeds."""
    try:
        found = segment_files(folder)
        if [*found] != [*range(1, len(found) + 1)]:
            raise ConfigurationError(f"audit folder {folder}: segments are missing: bring all together")
        for path in found.values():
            with path.open("rb") as file:
                present = int_member(read_fields(file.readline()), "format") == FORMAT
                file.seek(0)
                yield from (line[:-1] for line in file if present and line.endswith(b"\n"))
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None


def _leaves(folder: Path) -> Iterator[bytes]:
    return (leaf_hash(line) for line in _lines(folder) if line.startswith(_ENTRY))


def _statement(head: bytes) -> bytes:
    """The newest head of a file of heads, as one object. Raises ``ConfigurationError`` if it is none."""
    lines = [line for line in head.splitlines(keepends=True) if line.endswith(b"\n")]
    if not lines or not lines[-1].startswith(line_prefix(LineKind.HEAD)) or "root" not in read_fields(lines[-1]):
        raise ConfigurationError("the head is not one of a trail of this format")
    return lines[-1][:-1]


def _head_members(line: bytes, in_force: Sequence[str], trail: str) -> Fields:
    epoch = int_member(read_fields(line), "epoch")
    if not line.startswith(_STATEMENTS) or not 0 <= epoch < len(in_force):
        raise ProofError("the head is not a statement of an epoch of this trail")
    return _signed_members(line, in_force[epoch], trail, epoch)


def _signed_members(line: bytes, public: str, trail: str, epoch: int) -> Fields:
    fields = read_fields(line)
    root = fields.get("root")
    if not is_signed(line[:-1], public):
        raise ProofError(f"a statement of epoch {epoch} is not signed by the key of that epoch")
    if (fields.get("trail"), int_member(fields, "epoch")) != (trail, epoch) or not _is_hash(root):
        raise ProofError(f"a statement of epoch {epoch} belongs to another trail or epoch")
    return fields


def _texts(proof: Mapping[str, object], name: str) -> list[bytes]:
    """A text member, or the texts of a list, as bytes."""
    value = proof.get(name)
    found = value if isinstance(value, list) else [value]
    texts = [text.encode() for text in found if isinstance(text, str)]
    if len(texts) != len(found) or (not texts and name != "keys"):
        raise ProofError(f"{name} is not text")
    return texts


def _hashes(proof: Mapping[str, object]) -> list[str]:
    path = proof.get("path")
    if not isinstance(path, list) or not all(_is_hash(step) for step in path):
        raise ProofError("path is not a list of hashes")
    return path


def _is_hash(value: object) -> bool:
    try:
        return isinstance(value, str) and len(value) == 64 and len(bytes.fromhex(value)) == 32
    except ValueError:
        return False


def read_proof(data: bytes) -> object:
    """The JSON of a proof. Raises ``ProofError`` if it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ProofError("is not JSON") from None
