"""Is a trail whole? Every line of every segment is looked at; a fault says where."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from deid_agent.audit.folder import HEAD, read_head, segments
from deid_agent.audit.lines import Kind, is_signed, start_of
from deid_agent.audit.walk import Code, Fault, Fields, Segment, Walk
from deid_agent.errors import ConfigurationError


@dataclass(slots=True)
class Stream:
    """What stands in a trail of one partition.

    ``absent`` offsets below the highest are those that no entry has passed upward over: markers of transactions,
    records of another agent, or nothing at all. ``repeated`` entries stand at or below an offset that was there
    before: a record that came again after a crash, the last entry counts.
    """

    entries: int = 0
    first: int = -1
    last: int = -1
    absent: int = 0
    repeated: int = 0

    def see(self, offset: int) -> None:
        """One entry, in the order of the trail."""
        self.entries += 1
        if self.first < 0:
            self.first = offset
        elif offset > self.last:
            self.absent += offset - self.last - 1
        else:
            self.repeated += 1
        self.last = max(self.last, offset)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. ``doubts`` are no faults by themselves: a running or crashed agent leaves them too."""

    faults: Sequence[Fault]
    doubts: Sequence[Fault]
    segments: int
    lines: int
    entries: int
    checkpoints: int
    keys: Sequence[str]
    streams: Mapping[str, Stream] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Head:
    """What a ``head.json`` says, and the bytes that are signed."""

    name: str
    lines: int
    chain: bytes
    body: bytes


def verify(folder: Path, trusted: Collection[str] | None = None, kept: Path | None = None) -> Report:
    """Look at the whole trail in ``folder``; ``kept`` is a ``head.json`` from elsewhere.

    ``trusted`` are the public keys (hex) that may have signed; with None the keys that the trail itself names are
    taken, which proves no more than that nobody changed it without signing anew. A trail that an agent is writing
    can be verified. Raises ``ConfigurationError`` where folder or ``kept`` cannot be read.
    """
    faults: list[Fault] = []
    try:
        # The heads first: what they sign stood in the trail before.
        line = read_head(folder)
        own = head_of(HEAD, line, faults) if line is not None else None
        other = head_of(str(kept), kept.read_bytes(), faults) if kept is not None else None
        found = segments(folder)
        streams: dict[str, Stream] = {}

        def see(fields: Fields, _: Segment) -> None:
            topic, partition, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
            if isinstance(offset, int):
                streams.setdefault(f"{topic}/{partition}", Stream()).see(offset)

        walk = Walk(trusted=trusted, wanted=[head.lines for head in (own, other) if head], entry=see)
        expected, before = 1, 0
        for number, path in found.items():
            if number != expected:
                walk.missing(expected, number - 1)
            before = walk.begun
            walk.read(number, path, last=number == max(found))
            expected = number + 1
        # An agent signs a head before the first entry of a segment. Where one writes meanwhile this head is an old one.
        least = (walk.begun if walk.within else before) if read_head(folder) == line else 0
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    faults[:0] = walk.faults
    last = max(found.values(), default=None)
    name = last.name if last else ""
    told = [_against(head, walk, name, trusted, over) for head, over in ((own, least), (other, 0)) if head]
    faults += [fault for fault in told if fault is not None]
    if not found:
        faults.append(Fault(Code.SEGMENT, "the folder holds no segment"))
    elif line is None and (walk.entries or len(found) > 1):
        faults.append(Fault(Code.HEAD, "is missing: whether the end of the trail was cut off cannot be told", HEAD))
    doubts = []
    if walk.unsigned:
        doubts.append(Fault(Code.UNSIGNED, f"{walk.unsigned} entries stand behind the last checkpoint", name))
    if walk.torn:
        what = f"{walk.torn} bytes without an end: a crash, or a write that goes on; the next start cuts them off"
        doubts.append(Fault(Code.TORN, what, name))
    keys = sorted(walk.keys)
    return Report(faults, doubts, len(found), walk.lines, walk.entries, walk.checkpoints, keys, streams)


def head_of(name: str, line: bytes, faults: list[Fault]) -> Head | None:
    """What a head says; a fault where it is none."""
    try:
        fields = orjson.loads(line)
        lines, chain = fields["lines"], fields["head"].encode()
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        lines = chain = None
    if not isinstance(lines, int) or not line.startswith(start_of(Kind.HEAD)) or not line.endswith(b"}\n"):
        faults.append(Fault(Code.HEAD, "is no head of a trail", name))
        return None
    return Head(name, lines, chain, line[:-2])


def _against(head: Head, walk: Walk, last: str, trusted: Collection[str] | None, least: int) -> Fault | None:
    """What is wrong between a head and the trail that was walked. It signs more than ``least`` lines."""
    keys = walk.keys if trusted is None else trusted
    if not any(is_signed(head.body, key) for key in keys):
        return Fault(Code.HEAD, "is not signed by a key of this trail", head.name)
    if head.lines > walk.lines:
        return Fault(Code.TRUNCATED, f"the trail ends after line {walk.lines}, {head.name} signs {head.lines}", last)
    if head.chain not in walk.seen.get(head.lines, ()):
        return Fault(Code.HEAD, f"signs another line {head.lines} than stands in the trail", head.name)
    if head.lines <= least:
        return Fault(Code.HEAD, "is too old: it signs no line of the last segment", head.name)
    return None
