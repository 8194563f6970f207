"""Reads a trail line by line and tells what does not fit. Never stops at a fault: the rest is looked at too."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path

import orjson

from deid_agent.audit.folder import segment_name
from deid_agent.audit.lines import (
    FORMAT,
    START,
    TAIL,
    Kind,
    Place,
    chain_of,
    is_public_key,
    is_signed,
    start_of,
    tail_of,
)

_SEGMENT, _ENTRY, _CHECKPOINT = (start_of(kind) for kind in (Kind.SEGMENT, Kind.ENTRY, Kind.CHECKPOINT))

_REMARKS = b',"remarks":'

Fields = Mapping[str, object]
"""The members of a line."""


class Code(StrEnum):
    """What is wrong; part of the interface."""

    CHAIN = "CHAIN"
    """A line does not follow from the one before: one of them was changed, or what stood between them."""
    LINE = "LINE"
    """A line that follows but is none of a trail."""
    COUNT = "COUNT"
    """A signed count of lines is not what stands here: lines were dropped or added."""
    SIGNATURE = "SIGNATURE"
    """What stands before a checkpoint is not what was signed."""
    KEY = "KEY"
    """A segment is signed by a key that is not trusted."""
    SEGMENT = "SEGMENT"
    """A segment is missing, or its first line is that of another."""
    TRUNCATED = "TRUNCATED"
    """The trail ends before what a signed head says stands in it."""
    HEAD = "HEAD"
    """A head is missing, not signed by a key of this trail, signs a line that is not the one here, or is too old."""
    UNSIGNED = "UNSIGNED"
    """Entries behind the last checkpoint: chained, but whoever can write can change them."""
    TORN = "TORN"
    """The last line has no end: a crash, or a write that goes on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that does not fit. ``line`` counts from 1 within the segment; coordinates where they are known."""

    code: Code
    detail: str
    segment: str = ""
    line: int = 0
    coordinates: str = ""

    @property
    def where(self) -> str:
        """Segment and line, as an editor takes them."""
        return f"{self.segment}:{self.line}" if self.line else self.segment


@dataclass(frozen=True, slots=True)
class Segment:
    """What the first line of a segment says."""

    number: int
    public: str
    build: Mapping[str, str]


class Walk:
    """Goes through segments in order; ``faults`` gathers what it meets.

    ``before`` is what stands before the first of them; None takes what that segment itself says. ``trusted`` are
    the keys that may sign (hex); None trusts what each segment names. ``wanted`` are numbers of lines whose
    chain values are kept in ``seen``. ``entry`` is told the members of each entry and the segment it stands in.
    """

    def __init__(
        self,
        before: Place | None = Place(),  # noqa: B008 - frozen
        *,
        trusted: Collection[str] | None = None,
        wanted: Collection[int] = (),
        entry: Callable[[Fields, Segment], None] | None = None,
    ) -> None:
        self.faults: list[Fault] = []
        self.seen: dict[int, frozenset[bytes]] = {}
        self.keys: set[str] = set()
        self.segment: Segment | None = None
        self.lines = before.lines if before else 0
        self.entries = 0
        self.checkpoints = 0
        self.unsigned = 0
        """Entries behind the last checkpoint that is signed well."""
        self.signed = 0
        """Lines up to and with that checkpoint."""
        self.torn = 0
        """Bytes of a last line without an end."""
        self.begun = 0
        """Lines before the segment that was read last."""
        self.within = 0
        """Entries in the segment that was read last."""
        # What the next line may follow from: after a fault both what stood there and what should have.
        self._chains: tuple[bytes, ...] = (before.chain,) if before else ()
        self._before: tuple[bytes, ...] = self._chains
        self._adopt = before is None
        self._trusted = trusted
        self._wanted = frozenset(wanted)
        self._entry = entry
        self._name = ""
        self._line = 0

    @property
    def place(self) -> Place:
        """Where the walk has come to."""
        return Place(self.lines, self._chains[0] if self._chains else START)

    def missing(self, first: int, last: int) -> None:
        """Segments that are not there; the next one is taken by its word."""
        what = segment_name(first) if first == last else f"{segment_name(first)} to {segment_name(last)}"
        self.faults.append(Fault(Code.SEGMENT, f"missing: {what}", segment_name(first)))
        self._adopt = True

    def read(self, number: int, path: Path, *, last: bool) -> int:
        """One segment; how many whole bytes it has. Only in the ``last`` one a line without an end may be a crash."""
        self._name, self._line, size = path.name, 0, 0
        self.begun, self.within = self.lines, 0
        with path.open("rb") as file:
            while line := file.readline():
                if last and not line.endswith(b"\n"):
                    self.torn = len(line)
                    break
                self._line += 1
                size += len(line)
                self._take(line, number)
        if not self._line and not last:
            self._fault(Code.SEGMENT, "the segment is empty")
        return size

    def _take(self, line: bytes, number: int) -> None:
        body, tail = line[:-TAIL], line[-TAIL:]
        opening = self._line == 1
        if opening and self._adopt and (fields := _fields(line)):
            self._adopt = False
            self._chains, self.lines = (str(fields.get("previous")).encode(),), _int(fields, "lines")
        fits = self._follow(body, tail)
        if not fits:
            at = _coordinates(_fields(line)) if line.startswith(_ENTRY) else ""
            detail = "does not follow from the line before: changed, moved, or lines between them were added or dropped"
            self._fault(Code.CHAIN, detail, at)
        if opening and not line.startswith(_SEGMENT):
            self._fault(Code.SEGMENT, f"the first line is not that of segment {number}")
        if opening and line.startswith(_SEGMENT):
            self._open(line, number)
        elif line.startswith(_ENTRY):
            self._see_entry(line, fits=fits)
        elif line.startswith(_CHECKPOINT):
            self._check(line, body)
        elif fits:
            self._fault(Code.LINE, "neither an entry nor a checkpoint")
        self.lines += 1
        if self.lines in self._wanted:
            self.seen[self.lines] = frozenset(self._chains)

    def _follow(self, body: bytes, tail: bytes) -> bool:
        """Does the line follow? Moves on to its chain value, or to both values it may have."""
        for before in self._chains:
            if tail == tail_of(chain := chain_of(before, body)):
                self._before, self._chains = (before,), (chain,)
                return True
        self._before = self._chains
        self._chains = (tail[10:74], *(chain_of(before, body) for before in self._chains[:1]))
        return False

    def _open(self, line: bytes, number: int) -> None:
        fields = _fields(line)
        if _int(fields, "segment") != number:
            self._fault(Code.SEGMENT, f"the first line is not that of segment {number}")
        if _int(fields, "format") != FORMAT:
            self._fault(Code.SEGMENT, f"form {_int(fields, 'format')} of the trail: read it with the release it is of")
        public, build = str(fields.get("public_key")), fields.get("build")
        self._count(fields)
        self.begun = self.lines
        if not is_public_key(public):
            self._fault(Code.KEY, "names no key")
        elif self._trusted is not None and public not in self._trusted:
            self._fault(Code.KEY, f"signed by the key {public}, which is not trusted")
        else:
            self.keys.add(public)
        words = {str(k): str(v) for k, v in build.items()} if isinstance(build, dict) else {}
        self.segment = Segment(number, public, words)

    def _see_entry(self, line: bytes, *, fits: bool) -> None:
        self.entries += 1
        self.within += 1
        self.unsigned += 1
        if self._entry is None:
            return
        # What was replaced is most of a line and says nothing of where it belongs.
        fields = _fields(line.partition(_REMARKS)[0] + b"}") or _fields(line)
        if fields and self.segment is not None:
            self._entry(fields, self.segment)
        elif fits:
            self._fault(Code.LINE, "an entry that is no JSON")

    def _check(self, line: bytes, body: bytes) -> None:
        fields = _fields(line)
        self.checkpoints += 1
        public = self.segment.public if self.segment else ""
        head = str(fields.get("head")).encode()
        genuine = is_signed(body, public)
        follows = head in self._before
        if not genuine or not follows:
            detail = f"what stands behind line {self.signed} of the trail, or this line, is not what was signed"
            self._fault(Code.SIGNATURE, detail)
        # One that was signed and does not follow may stand behind dropped lines, or be an old one put in here.
        if not genuine or not (follows or _int(fields, "lines") > self.lines):
            return
        self._count(fields)
        self.unsigned, self.signed = 0, self.lines + 1

    def _count(self, fields: Fields) -> None:
        """A line that counts those before it; what follows is counted from there."""
        told = _int(fields, "lines")
        if told != self.lines:
            some = f"{abs(told - self.lines)} lines were {'dropped' if told > self.lines else 'added'}"
            self._fault(Code.COUNT, f"says {told} lines stand before it, here are {self.lines}: {some}")
            self.lines = max(told, 0)

    def _fault(self, code: Code, detail: str, coordinates: str = "") -> None:
        self.faults.append(Fault(code, detail, self._name, self._line, coordinates))


def is_unfinished(path: Path, signed: int) -> bool:
    """True for a segment without an entry, of which a head that signs so many lines signs none.

    A head speaks of a segment before its first entry, so one was to come when a crash did.
    """
    with path.open("rb") as file:
        lines = [line for line in islice(file, 3) if line.endswith(b"\n")]
    if len(lines) > 2 or not all(line.startswith(_CHECKPOINT) for line in lines[1:]):
        return False
    return not lines or signed <= _int(_fields(lines[0]), "lines")


def _fields(line: bytes) -> Fields:
    """The members of a line; none where it is no JSON object."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _int(fields: Fields, name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else -1


def _coordinates(fields: Fields) -> str:
    if not fields:
        return ""
    return f"{fields.get('topic')}/{fields.get('partition')}/{fields.get('offset')}"
