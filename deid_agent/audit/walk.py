"""Reads a trail line by line and collects the faults. It continues after a fault."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path

import orjson

from deid_agent.audit.storage import (
    FORMAT,
    START,
    TAIL,
    ChainPosition,
    LineKind,
    chain_value,
    is_public_key,
    is_signed,
    line_end,
    line_prefix,
    segment_name,
)
from deid_agent.model import counted

_SEGMENT, _ENTRY, _CHECKPOINT = (line_prefix(kind) for kind in (LineKind.SEGMENT, LineKind.ENTRY, LineKind.CHECKPOINT))

_REMARKS = b',"remarks":'

Fields = Mapping[str, object]
"""The members of a line."""


class FaultCode(StrEnum):
    """The kind of a fault; part of the interface."""

    CHAIN = "CHAIN"
    """A line does not follow the line before: one of them was changed, or lines between them."""
    LINE = "LINE"
    """A line that is chained but has no known kind."""
    COUNT = "COUNT"
    """A signed count of lines differs from the lines present: lines were dropped or added."""
    SIGNATURE = "SIGNATURE"
    """The lines before a checkpoint differ from the signed ones."""
    KEY = "KEY"
    """A segment is signed by a key that is not trusted."""
    SEGMENT = "SEGMENT"
    """A segment is missing, or its first line belongs to another one."""
    TRUNCATED = "TRUNCATED"
    """The trail has fewer lines than a signed head states."""
    HEAD = "HEAD"
    """A head is missing, not signed by a key of this trail, signs a different line, or is too old."""
    UNSIGNED = "UNSIGNED"
    """Entries after the last checkpoint: they are chained, but anyone who can write the file can change them."""
    TORN = "TORN"
    """The last line is incomplete: a crash, or a write in progress."""


@dataclass(frozen=True, slots=True)
class TrailFault:
    """One fault. ``line`` counts from 1 within the segment; ``coordinates`` is empty if they are unknown."""

    code: FaultCode
    detail: str
    segment: str = ""
    line: int = 0
    coordinates: str = ""

    @property
    def where(self) -> str:
        """Segment and line as ``file:line``, a form that editors accept."""
        return f"{self.segment}:{self.line}" if self.line else self.segment


@dataclass(frozen=True, slots=True)
class TrailSegment:
    """The content of the first line of a segment."""

    number: int
    public: str
    build: Mapping[str, str]


class TrailWalk:
    """Reads segments in order and collects ``faults``.

    ``before`` is the position before the first of them; with None it is read from that segment. ``trusted`` are the
    public keys (hex) that may sign; with None the key that each segment names is trusted. ``wanted`` are numbers of
    lines whose chain values are kept in ``seen``. ``entry`` is called with the members of each entry and its segment.
    """

    def __init__(
        self,
        before: ChainPosition | None = ChainPosition(),  # noqa: B008 - frozen
        *,
        trusted: Collection[str] | None = None,
        wanted: Collection[int] = (),
        entry: Callable[[Fields, TrailSegment], None] | None = None,
    ) -> None:
        self.faults: list[TrailFault] = []
        self.seen: dict[int, frozenset[bytes]] = {}
        self.keys: set[str] = set()
        self.segment: TrailSegment | None = None
        self.lines = before.lines if before else 0
        self.entries = 0
        self.checkpoints = 0
        self.unsigned = 0
        """Entries after the last valid checkpoint."""
        self.signed = 0
        """Lines up to and including that checkpoint."""
        self.torn = 0
        """Bytes of an incomplete last line."""
        self.begun = 0
        """Lines before the last segment read."""
        self.within = 0
        """Entries in the last segment read."""
        # Chain values that the next line may follow: after a fault both the recorded and the computed one.
        self._chains: tuple[bytes, ...] = (before.chain,) if before else ()
        self._before: tuple[bytes, ...] = self._chains
        self._adopt = before is None
        self._trusted = trusted
        self._wanted = frozenset(wanted)
        self._entry = entry
        self._name = ""
        self._line = 0

    @property
    def place(self) -> ChainPosition:
        """The position after the last line read."""
        return ChainPosition(self.lines, self._chains[0] if self._chains else START)

    def report_missing(self, first: int, last: int) -> None:
        """Record missing segments; the position of the next segment is then read from its first line."""
        names = segment_name(first) if first == last else f"{segment_name(first)} to {segment_name(last)}"
        self.faults.append(TrailFault(FaultCode.SEGMENT, f"missing: {names}", segment_name(first)))
        self._adopt = True

    def read(self, number: int, path: Path, *, last: bool) -> int:
        """Read one segment and return the bytes of its complete lines.

        Only in the ``last`` segment an incomplete line may be due to a crash.
        """
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
            self._fault(FaultCode.SEGMENT, "the segment is empty")
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
            self._fault(FaultCode.CHAIN, detail, at)
        if opening and not line.startswith(_SEGMENT):
            self._fault(FaultCode.SEGMENT, f"the first line is not that of segment {number}")
        if opening and line.startswith(_SEGMENT):
            self._open(line, number)
        elif line.startswith(_ENTRY):
            self._see_entry(line, fits=fits)
        elif line.startswith(_CHECKPOINT):
            self._check(line, body)
        elif fits:
            self._fault(FaultCode.LINE, "neither an entry nor a checkpoint")
        self.lines += 1
        if self.lines in self._wanted:
            self.seen[self.lines] = frozenset(self._chains)

    def _follow(self, body: bytes, tail: bytes) -> bool:
        """Whether the line follows. Continues with its chain value, or with both possible values if it does not."""
        for before in self._chains:
            if tail == line_end(chain := chain_value(before, body)):
                self._before, self._chains = (before,), (chain,)
                return True
        self._before = self._chains
        self._chains = (tail[10:74], *(chain_value(before, body) for before in self._chains[:1]))
        return False

    def _open(self, line: bytes, number: int) -> None:
        fields = _fields(line)
        if _int(fields, "segment") != number:
            self._fault(FaultCode.SEGMENT, f"the first line is not that of segment {number}")
        if _int(fields, "format") != FORMAT:
            self._fault(
                FaultCode.SEGMENT, f"unknown format {_int(fields, 'format')}: read it with the release that wrote it"
            )
        public, build = str(fields.get("public_key")), fields.get("build")
        self._count(fields)
        self.begun = self.lines
        if not is_public_key(public):
            self._fault(FaultCode.KEY, "names no key")
        elif self._trusted is not None and public not in self._trusted:
            self._fault(FaultCode.KEY, f"signed by the key {public}, which is not trusted")
        else:
            self.keys.add(public)
        words = {str(k): str(v) for k, v in build.items()} if isinstance(build, dict) else {}
        self.segment = TrailSegment(number, public, words)

    def _see_entry(self, line: bytes, *, fits: bool) -> None:
        self.entries += 1
        self.within += 1
        self.unsigned += 1
        if self._entry is None:
            return
        # The remarks are most of a line and hold no coordinates.
        fields = _fields(line.partition(_REMARKS)[0] + b"}") or _fields(line)
        if fields and self.segment is not None:
            self._entry(fields, self.segment)
        elif fits:
            self._fault(FaultCode.LINE, "an entry that is not JSON")

    def _check(self, line: bytes, body: bytes) -> None:
        fields = _fields(line)
        self.checkpoints += 1
        public = self.segment.public if self.segment else ""
        head = str(fields.get("head")).encode()
        genuine = is_signed(body, public)
        follows = head in self._before
        if not genuine or not follows:
            detail = f"the lines after line {self.signed} of the trail, or this line, differ from the signed ones"
            self._fault(FaultCode.SIGNATURE, detail)
        # A signed checkpoint that does not follow may come after dropped lines, or be an old one inserted here.
        if not genuine or not (follows or _int(fields, "lines") > self.lines):
            return
        self._count(fields)
        self.unsigned, self.signed = 0, self.lines + 1

    def _count(self, fields: Fields) -> None:
        """Compare the count in a line with the lines read, and continue from its count."""
        stated = _int(fields, "lines")
        if stated != self.lines:
            change = f"{counted(abs(stated - self.lines), 'line')} {'dropped' if stated > self.lines else 'added'}"
            self._fault(FaultCode.COUNT, f"states {counted(stated, 'line')} before it, found {self.lines}: {change}")
            self.lines = max(stated, 0)

    def _fault(self, code: FaultCode, detail: str, coordinates: str = "") -> None:
        self.faults.append(TrailFault(code, detail, self._name, self._line, coordinates))


def is_unfinished(path: Path, signed: int) -> bool:
    """True for a segment without an entry of which a head with ``signed`` lines signs no line.

    A head covers a segment before its first entry is written, so a crash came before that head.
    """
    with path.open("rb") as file:
        lines = [line for line in islice(file, 3) if line.endswith(b"\n")]
    if len(lines) > 2 or not all(line.startswith(_CHECKPOINT) for line in lines[1:]):
        return False
    return not lines or signed <= _int(_fields(lines[0]), "lines")


def _fields(line: bytes) -> Fields:
    """The members of a line; empty if it is not a JSON object."""
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
