"""Reads a trail line by line and collects the faults. It continues after a fault."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from deid_agent.audit.faults import FaultCode, Fields, TrailFault, coordinates_of, int_member, read_fields
from deid_agent.audit.merkle import Frontier, leaf_hash, parse_frontier
from deid_agent.audit.storage import (
    CHAINED_FORMAT,
    ENTRY_KINDS,
    FORMAT,
    START,
    TAIL,
    ChainPosition,
    LineKind,
    TrailOrigin,
    chain_value,
    is_public_key,
    is_signed,
    line_end,
    line_prefix,
    segment_name,
    trail_id,
)
from deid_agent.model import counted

_SEGMENT, _ENTRY, _CHECKPOINT, _KEY = (
    line_prefix(kind) for kind in (LineKind.SEGMENT, LineKind.ENTRY, LineKind.CHECKPOINT, LineKind.KEY)
)

_ENTRY_PREFIXES = {line_prefix(kind): kind for kind in ENTRY_KINDS}
_REMARKS = b',"remarks":'


@dataclass(frozen=True, slots=True)
class TrailSegment:
    """The content of the first line of a segment. ``identity`` is the public key of the agent's secret."""

    number: int
    identity: str
    build: Mapping[str, object]
    agent: str = ""
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class SeenLine:
    """The state after a line that a head may sign: chain values, key and origin in force, the tree if it is sound."""

    chains: frozenset[bytes]
    key: str
    origin: TrailOrigin | None
    tree: Frontier | None


EntryCallback = Callable[[Fields, TrailSegment], None]
"""Receives the members of an entry, and its segment."""


class TrailWalk:
    """Reads segments in order and collects ``faults``.

    ``before`` is the position before the first of them; with None it is read from that segment. ``trusted`` are public
    keys (hex): the first key of the trail, or the identities of agents that may have begun its segments; with None
    those that the trail names are trusted. ``wanted`` are numbers of lines whose state is kept in ``seen``. ``entry``
    is called with the members of each entry and its segment, without the remarks unless ``whole``.
    """

    def __init__(
        self,
        before: ChainPosition | None = ChainPosition(),  # noqa: B008 - frozen
        *,
        trusted: Collection[str] | None = None,
        wanted: Collection[int] = (),
        entry: EntryCallback | None = None,
        whole: bool = False,
    ) -> None:
        self.faults: list[TrailFault] = []
        self.seen: dict[int, SeenLine] = {}
        self.identities: set[str] = set()
        self.agents: set[str] = set()
        self.segment: TrailSegment | None = None
        self.origin: TrailOrigin | None = None
        """The trail, agent and epoch of the last segment; None before a segment of the present format."""
        self.key = ""
        """The public key in force."""
        self.first_key = ""
        """The key of the first epoch; empty if its segment was not read."""
        self.lines = before.lines if before else 0
        self.entries = 0
        self.checkpoints = 0
        self.unsigned = 0
        """Entries after the last valid checkpoint."""
        self.signed = 0
        """Lines up to and including that checkpoint."""
        self.in_epoch = 0
        """Entries of the segment in the present epoch."""
        self.torn = 0
        """Bytes of an incomplete last line."""
        self.begun = 0
        """Lines before the last segment read."""
        self.within = 0
        """Entries in the last segment read."""
        self.kind: LineKind | None = None
        """The kind of the entries; None before the first one."""
        self._entries = tuple(_ENTRY_PREFIXES)
        # Chain values that the next line may follow: after a fault both the recorded and the computed one.
        self._chains: tuple[bytes, ...] = (before.chain,) if before else ()
        self._before: tuple[bytes, ...] = self._chains
        self._tree: Frontier | None = before.tree if before else None
        """None after a fault, until a segment names the tree before it."""
        self._adopt = before is None
        self._trusted = trusted
        self._whole = whole
        self._anchored = False
        self._wanted = frozenset(wanted)
        self._entry = entry
        self._name = ""
        self._line = 0

    @property
    def place(self) -> ChainPosition:
        """The position after the last line read."""
        return ChainPosition(self.lines, self._chains[0] if self._chains else START, self._tree or Frontier())

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
        self.begun, self.within, self.in_epoch = self.lines, 0, 0
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
        opening, adopted = self._line == 1, False
        if opening and self._adopt and (fields := read_fields(line)):
            self._adopt, adopted = False, True
            self._chains, self.lines = (str(fields.get("previous")).encode(),), int_member(fields, "lines")
        fits = self._follow(body, tail)
        if not fits:
            self._tree = None
            at = coordinates_of(read_fields(line)) if line.startswith(_ENTRY) else ""
            detail = "does not follow from the line before: changed, moved, or lines between them were added or dropped"
            self._fault(FaultCode.CHAIN, detail, at)
        if opening and not line.startswith(_SEGMENT):
            self._fault(FaultCode.SEGMENT, f"the first line is not that of segment {number}")
        if opening and line.startswith(_SEGMENT):
            self._open(line, body, number, adopted=adopted)
        elif line.startswith(self._entries):
            self._see_entry(line, fits=fits)
        elif line.startswith((_CHECKPOINT, _KEY)):
            self._check(line, body)
        elif fits:
            self._fault(FaultCode.LINE, "neither an entry nor a checkpoint")
        self.lines += 1
        if self.lines in self._wanted:
            self.seen[self.lines] = SeenLine(frozenset(self._chains), self.key, self.origin, self._tree)

    def _follow(self, body: bytes, tail: bytes) -> bool:
        """Whether the line follows. Continues with its chain value, or with both possible values if it does not."""
        for before in self._chains:
            if tail == line_end(chain := chain_value(before, body)):
                self._before, self._chains = (before,), (chain,)
                return True
        self._before = self._chains
        self._chains = (tail[10:74], *(chain_value(before, body) for before in self._chains[:1]))
        return False

    def _open(self, line: bytes, body: bytes, number: int, *, adopted: bool) -> None:
        fields = read_fields(line)
        if int_member(fields, "segment") != number:
            self._fault(FaultCode.SEGMENT, f"the first line is not that of segment {number}")
        form = int_member(fields, "format")
        if form not in {FORMAT, CHAINED_FORMAT} or (form == CHAINED_FORMAT and self.origin is not None):
            self._fault(FaultCode.SEGMENT, f"unknown format {form}: read it with the release that wrote it")
        public, build = str(fields.get("public_key")), fields.get("build")
        self._count(fields)
        self.begun = self.lines
        if not is_public_key(public):
            self._fault(FaultCode.KEY, "names no key")
        elif form == CHAINED_FORMAT:
            self._open_chained(public)
        else:
            self._open_epoch(fields, body, public, adopted=adopted)
        words = {str(k): v for k, v in build.items()} if isinstance(build, dict) else {}
        identity = public if form == CHAINED_FORMAT else str(fields.get("identity"))
        self.segment = TrailSegment(number, identity, words, str(fields.get("agent", "")), form)

    def _open_chained(self, public: str) -> None:
        self.key = public
        if self._trusted is not None and public not in self._trusted:
            self._fault(FaultCode.KEY, f"signed by the key {public}, which is not trusted")
        else:
            self.identities.add(public)

    def _open_epoch(self, fields: Fields, body: bytes, public: str, *, adopted: bool) -> None:
        """Check trail, epoch, key, identity and tree of a segment against the segment before it."""
        origin = TrailOrigin(str(fields.get("trail")), str(fields.get("agent")), int_member(fields, "epoch"))
        identity = str(fields.get("identity"))
        if not is_signed(body, identity):
            self._fault(FaultCode.SIGNATURE, "is not signed by the identity that it names")
        begins = self.origin is None and not adopted
        if begins:
            self.first_key, self._tree = public, self._tree and Frontier()
            self._anchored = self._trusted is not None and public in self._trusted
            if origin.epoch != 0 or origin.trail != trail_id(public):
                self._fault(FaultCode.TRAIL, "does not begin a trail: the trail's id is not that of its first key")
        elif self.origin is not None and origin.trail != self.origin.trail:
            self._fault(FaultCode.TRAIL, f"belongs to the trail {origin.trail}, not to {self.origin.trail}")
        elif not adopted and (self.origin is None or (origin.epoch, public) != (self.origin.epoch, self.key)):
            self._fault(FaultCode.KEY, f"names the key {public}, not that of the epoch before")
        if adopted and public != self.key:
            self._anchored = False  # the missing segments alone lead from the first key to this one
        if self._trusted is not None and not self._anchored and not {public, identity} & set(self._trusted):
            self._fault(FaultCode.KEY, f"begun by {identity} with the first key {public}: neither is trusted")
            self._anchored = adopted  # after a gap, what follows from this key is not reported again
        else:
            self.identities.add(identity)
            self.agents.add(origin.agent)
        stated = parse_frontier(fields.get("size"), fields.get("peaks"))
        if stated is None or (self._tree is not None and not adopted and stated != self._tree):
            self._fault(FaultCode.TREE, "states another tree than that of the entries before")
        self._tree, self.origin, self.key = stated, origin, public

    def _see_entry(self, line: bytes, *, fits: bool) -> None:
        if self.kind is None and fits:
            # An entry of another kind is from now on as foreign to this trail as any other line.
            prefix = next(each for each in _ENTRY_PREFIXES if line.startswith(each))
            self.kind, self._entries = _ENTRY_PREFIXES[prefix], (prefix,)
        self.entries += 1
        self.within += 1
        self.unsigned += 1
        self.in_epoch += 1
        if self._tree is not None and self.origin is not None:
            self._tree = self._tree.add(leaf_hash(line[:-1]))
        if self._entry is None:
            return
        # The remarks are most of a line and hold no coordinates.
        head = {} if self._whole else read_fields(line.partition(_REMARKS)[0] + b"}")
        fields = head or read_fields(line)
        if fields and self.segment is not None:
            self._entry(fields, self.segment)
        elif fits:
            self._fault(FaultCode.LINE, "an entry that is not JSON")

    def _check(self, line: bytes, body: bytes) -> None:
        fields = read_fields(line)
        self.checkpoints += 1
        head = str(fields.get("head")).encode()
        genuine = is_signed(body, self.key)
        follows = head in self._before
        if not genuine or not follows:
            detail = f"the lines after line {self.signed} of the trail, or this line, differ from the signed ones"
            self._fault(FaultCode.SIGNATURE, detail)
        # A signed checkpoint that does not follow may come after dropped lines, or be an old one inserted here.
        if not genuine or not (follows or int_member(fields, "lines") > self.lines):
            return
        self._count(fields)
        self.unsigned, self.signed = 0, self.lines + 1
        if self.origin is not None:
            self._check_origin(fields, self.origin)
            if line.startswith(_KEY) and is_public_key(following := str(fields.get("public_key"))):
                self.origin = TrailOrigin(self.origin.trail, self.origin.agent, self.origin.epoch + 1)
                self.key, self.in_epoch = following, 0

    def _check_origin(self, fields: Fields, origin: TrailOrigin) -> None:
        found = (fields.get("trail"), fields.get("agent"), fields.get("epoch"))
        if found != (origin.trail, origin.agent, origin.epoch):
            self._fault(FaultCode.TRAIL, "was signed for another trail, agent or epoch")
        tree = self._tree
        if tree is not None and (fields.get("size"), fields.get("root")) != (tree.size, tree.root.hex()):
            self._fault(FaultCode.TREE, "signs another root than that of the entries before")
            self._tree = None

    def _count(self, fields: Fields) -> None:
        """Compare the count in a line with the lines read, and continue from its count."""
        stated = int_member(fields, "lines")
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
    return not lines or signed <= int_member(read_fields(lines[0]), "lines")
