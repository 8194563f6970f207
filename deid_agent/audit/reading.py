"""Verifies a trail line by line, and reads its entries for people and programs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from deid_agent.agent import DEFAULT_PROJECT, AuditedBatch, Partition, last_batches
from deid_agent.audit.faults import FaultCode, Fields, TrailFault, int_member, read_fields
from deid_agent.audit.storage import HEAD, LineKind, is_public_key, is_signed, line_prefix, read_head, segment_files
from deid_agent.audit.walk import EntryCallback, SeenLine, TrailSegment, TrailWalk
from deid_agent.model import ConfigurationError, counted


@dataclass(slots=True)
class PartitionSummary:
    """The entries of one partition in a trail.

    ``absent`` counts the offsets that the entries skip: transaction markers, records of another agent, or records that
    do not exist. ``repeated`` counts entries at or below an earlier offset: a record that came again after a crash, of
    which the last entry is valid.
    """

    entries: int = 0
    first: int = -1
    last: int = -1
    absent: int = 0
    repeated: int = 0

    def add(self, offset: int) -> None:
        """Count one entry, in the order of the trail."""
        self.entries += 1
        if self.first < 0:
            self.first = offset
        elif offset > self.last:
            self.absent += offset - self.last - 1
        else:
            self.repeated += 1
        self.last = max(self.last, offset)


@dataclass(frozen=True, slots=True)
class TrailReport:
    """The result of a verification. ``warnings`` are not faults: a running or crashed agent leaves them too."""

    faults: Sequence[TrailFault]
    warnings: Sequence[TrailFault]
    segments: int
    lines: int
    entries: int
    checkpoints: int
    keys: Sequence[str]
    """The identities of the agents that began segments, and the keys of segments of the former format."""
    trail: str
    agents: Sequence[str]
    first_key: str
    epochs: int
    streams: Mapping[str, PartitionSummary] = field(repr=False)
    kind: LineKind | None = None
    """The kind of the entries; None without one."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The content of a ``head.json``, and the signed bytes."""

    name: str
    lines: int
    chain: bytes
    body: bytes
    fields: Fields = field(repr=False)

    def fits(self, seen: SeenLine) -> bool:
        """True if the trail has this chain value, and this tree, after the lines that the head signs."""
        if self.chain not in seen.chains:
            return False
        origin, tree = seen.origin, seen.tree
        if origin is None:
            return True
        stated = tuple(self.fields.get(name) for name in ("trail", "epoch", "size", "root"))
        if stated[:2] != (origin.trail, origin.epoch):
            return False
        return tree is None or stated[2:] == (tree.size, tree.root.hex())


def verify_trail(
    folder: Path,
    trusted: Collection[str] | None = None,
    kept: Path | None = None,
    entry: EntryCallback | None = None,
) -> TrailReport:
    """Verify the whole trail in ``folder``. ``kept`` is a file of heads that were kept elsewhere, one a line.

    ``trusted`` are public keys (hex): the first key of the trail, or the identities that may have begun its segments.
    With None those that the trail names are trusted, which proves only that nobody changed it without signing it again.
    A trail can be verified while an agent writes it. ``entry`` receives each entry with its remarks, also those that do
    not verify. Raises ``ConfigurationError`` if the folder or ``kept`` cannot be read.
    """
    faults: list[TrailFault] = []
    try:
        # The heads first: the lines that they sign were in the trail before.
        line = read_head(folder)
        own = parse_head(HEAD, line, faults) if line is not None else None
        others = [] if kept is None else _parse_heads(str(kept), kept.read_bytes(), faults)
        found = segment_files(folder)
        streams: dict[str, PartitionSummary] = {}

        def add_entry(fields: Fields, segment: TrailSegment) -> None:
            topic, partition, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
            if isinstance(offset, int):
                streams.setdefault(f"{topic}/{partition}", PartitionSummary()).add(offset)
            if entry is not None:
                entry(fields, segment)

        wanted = [head.lines for head in (own, *others) if head]
        walk = TrailWalk(trusted=trusted, wanted=wanted, entry=add_entry, whole=entry is not None)
        expected, before = 1, 0
        for number, path in found.items():
            if number != expected:
                walk.report_missing(expected, number - 1)
            before = walk.begun
            walk.read(number, path, last=number == max(found))
            expected = number + 1
        # An agent signs a head before the first entry of a segment. If an agent is writing, this head is an old one.
        least = (walk.begun if walk.within else before) if read_head(folder) == line else 0
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    faults[:0] = walk.faults
    last = max(found.values(), default=None)
    name = last.name if last else ""
    checked = [_check_head(own, walk, name, least)] if own is not None else []
    checked += [_check_head(head, walk, name, 0) for head in others]
    faults += [fault for fault in checked if fault is not None]
    if not found:
        faults.append(TrailFault(FaultCode.SEGMENT, "the folder has no segment"))
    elif line is None and (walk.entries or len(found) > 1):
        faults.append(
            TrailFault(FaultCode.HEAD, "is missing: it is unknown whether the end of the trail was cut off", HEAD)
        )
    warnings = []
    if walk.unsigned:
        detail = f"{counted(walk.unsigned, 'entry', 'entries')} after the last checkpoint"
        warnings.append(TrailFault(FaultCode.UNSIGNED, detail, name))
    if walk.torn:
        detail = f"{counted(walk.torn, 'byte')} of an incomplete line (a crash or a write in progress)"
        warnings.append(TrailFault(FaultCode.TORN, detail, name))
    return TrailReport(
        faults,
        warnings,
        segments=len(found),
        lines=walk.lines,
        entries=walk.entries,
        checkpoints=walk.checkpoints,
        keys=sorted(walk.identities),
        trail=walk.origin.trail if walk.origin else "",
        agents=sorted(walk.agents),
        first_key=walk.first_key,
        epochs=walk.origin.epoch + 1 if walk.origin else 0,
        streams=streams,
        kind=walk.kind,
    )


def _parse_heads(name: str, data: bytes, faults: list[TrailFault]) -> list[SignedHead]:
    """The heads in the lines of a file, such as that of a witness. An incomplete last line is ignored."""
    lines = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
    names = [name] if len(lines) < 2 else [f"{name}:{number}" for number in range(1, len(lines) + 1)]
    found = [parse_head(each, line, faults) for each, line in zip(names, lines or [data], strict=True)]
    return [head for head in found if head is not None]


def parse_head(name: str, line: bytes, faults: list[TrailFault]) -> SignedHead | None:
    """The head in ``line``; None, and a fault in ``faults``, if it is invalid."""
    fields = read_fields(line)
    lines, chain = int_member(fields, "lines"), fields.get("head")
    whole = line.startswith(line_prefix(LineKind.HEAD)) and line.endswith(b"}\n")
    if lines < 0 or not isinstance(chain, str) or not whole:
        faults.append(TrailFault(FaultCode.HEAD, "is not the head of a trail", name))
        return None
    return SignedHead(name, lines, chain.encode(), line[:-2], fields)


def _check_head(head: SignedHead, walk: TrailWalk, last: str, least: int) -> TrailFault | None:
    """The fault between a head and the trail, if any. A valid head signs more than ``least`` lines."""
    seen = walk.seen.get(head.lines)
    # A head of a later epoch is signed by a key that was cut off with the end of the trail.
    later = int_member(head.fields, "epoch") > (walk.origin.epoch if walk.origin is not None else -1)
    if head.lines > walk.lines and (later or not walk.key or is_signed(head.body, walk.key)):
        return TrailFault(
            FaultCode.TRUNCATED, f"the trail ends after line {walk.lines}, {head.name} signs {head.lines}", last
        )
    if seen is None or not is_signed(head.body, seen.key):
        return TrailFault(FaultCode.HEAD, "is not signed by the key of this trail at its line", head.name)
    if not head.fits(seen):
        return TrailFault(FaultCode.HEAD, f"signs a line {head.lines} that differs from the trail", head.name)
    if head.lines <= least:
        return TrailFault(FaultCode.HEAD, "is too old: it signs no line of the last segment", head.name)
    return None


# Reading entries. It does not verify the trail.

_SEGMENT = line_prefix(LineKind.SEGMENT)
_COUNT = 1 << 32
"""More than the values of any message: a sum of forged counts is still a JSON number."""

TrailEntry = Mapping[str, object]
"""Members of an entry. ``build`` is that of its segment, ``place`` is segment and line."""


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects entries; None matches every value."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    outcome: str | None = None
    reason: str | None = None
    deid_id: str | None = None
    project: str | None = None
    """An entry that names no project belongs to ``default``."""

    def matches(self, item: TrailEntry) -> bool:
        """True if all given values match."""
        wanted = {
            name: getattr(self, name) for name in ("topic", "partition", "offset", "outcome", "reason", "deid_id")
        }
        ours = self.project is None or item.get("project", DEFAULT_PROJECT) == self.project
        return ours and all(value is None or item.get(name) == value for name, value in wanted.items())


def read_entries(
    folder: Path, choice: EntryFilter | None = None, kind: LineKind = LineKind.ENTRY
) -> Iterator[TrailEntry]:
    """The entries of this kind in the order of the trail. Raises ``ConfigurationError`` if a line cannot be read."""
    choice, wanted = choice or EntryFilter(), (_SEGMENT, line_prefix(kind))
    try:
        for path in segment_files(folder).values():
            build: object = {}
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n") or not line.startswith(wanted):
                        continue
                    fields = orjson.loads(line)
                    if fields["kind"] == LineKind.SEGMENT:
                        build = fields["build"]
                    elif choice.matches(fields):
                        yield {**fields, "build": build, "place": f"{path.name}:{number}"}
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise ConfigurationError(f"audit folder {folder}: {path.name}:{number} cannot be read; verify it") from None


_SEGMENTS_READ = 8
"""The newest segments in which a start looks for the last entries: half a gigabyte with the default size."""


def read_last_batches(folder: Path) -> Mapping[Partition, AuditedBatch]:
    """The last batch of each partition in the newest segments of the trail. Does not verify it; blocks.

    A partition that has no entry in these segments is absent. Raises ``ConfigurationError`` if a file cannot be read.
    """
    found: dict[Partition, AuditedBatch] = {}
    try:
        for path in list(segment_files(folder).values())[: -_SEGMENTS_READ - 1 : -1]:
            with path.open("rb") as file:
                older = last_batches(line for line in file if line.endswith(b"\n"))
            for stream, batch in older.items():
                # A record that is refused after its batch was audited may have its second entry in the next segment.
                found[stream] = batch.with_entry(found[stream]) if stream in found else batch
    except FileNotFoundError:
        return found
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    return found


def first_public_key(folder: Path) -> str:
    """The public key of the first epoch, which authenticates all later ones. Raises ``ConfigurationError``."""
    try:
        for path in segment_files(folder).values():
            with path.open("rb") as file:
                fields = read_fields(file.readline())
            if int_member(fields, "epoch") == 0 and is_public_key(key := str(fields.get("public_key"))):
                return key
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    raise ConfigurationError(f"audit folder {folder}: the segment that begins the trail is not here")


def value_counts(item: TrailEntry) -> Iterator[tuple[str, int]]:
    """The PHI type and the number of values of each remark of the entry."""
    for remark in entry_remarks(item):
        yield str(remark.get("type")), remark_count(remark)


def entry_remarks(item: TrailEntry) -> list[dict[str, object]]:
    """The well-formed remarks of an entry. No agent writes others, and ``verify`` reports their line."""
    found = item.get("remarks")
    return [remark for remark in found if isinstance(remark, dict)] if isinstance(found, list) else []


def remark_count(remark: Mapping[str, object]) -> int:
    """The number of values of a remark; 0 if the remark has no plausible count."""
    count = remark.get("count")
    return count if type(count) is int and 0 < count <= _COUNT else 0


def texts_in(found: object) -> tuple[str, ...]:
    """The items of a list in an entry; none of anything else."""
    return tuple(map(str, found)) if isinstance(found, list) else ()


def entry_build(item: TrailEntry) -> Mapping[str, object]:
    """The build of an entry, with policy and key of its project in place of those of ``default``."""
    build, name = item.get("build"), item.get("project")
    if not isinstance(build, dict):
        return {}
    projects = build.get("projects")
    own = projects.get(name) if isinstance(projects, dict) and isinstance(name, str) else None
    shared = {name: value for name, value in build.items() if name != "projects"}
    if not isinstance(own, dict):
        return shared
    return shared | {name: str(own[name]) for name in ("policy", "key", "generation") if name in own}
