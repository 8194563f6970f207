"""Examines a trail before an agent continues it: an agent must not sign lines that somebody else changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deid_agent.audit.faults import FaultCode, TrailFault
from deid_agent.audit.reading import SignedHead, parse_head
from deid_agent.audit.storage import (
    HEAD,
    TRAIL_NAMES,
    ChainPosition,
    LineKind,
    TrailOrigin,
    is_signed,
    read_head,
    segment_files,
    segment_name,
)
from deid_agent.audit.walk import TrailSegment, TrailWalk, is_unfinished
from deid_agent.model import ConfigurationError


@dataclass(frozen=True, slots=True)
class TrailState:
    """The end of a trail: its last segment with the bytes of complete lines, the position, and the signed lines.

    ``torn`` is the number of bytes of an incomplete last line. ``unfinished`` is a further segment that a crash left
    without a head; it has no entry and is created again. ``key`` is the public key of the epoch ``origin``, empty
    before the first one; ``in_epoch`` counts its entries. ``kind`` is that of the entries in the last segment, None
    without one.
    """

    segment: TrailSegment | None = None
    size: int = 0
    place: ChainPosition = ChainPosition()  # noqa: RUF009 - frozen
    signed: int = 0
    torn: int = 0
    unfinished: Path | None = None
    origin: TrailOrigin | None = None
    key: str = ""
    in_epoch: int = 0
    kind: LineKind | None = None


def examine_trail(folder: Path, kind: LineKind = LineKind.ENTRY) -> TrailState:
    """The state of the trail in ``folder``. Reads the last segment and writes nothing.

    Raises ``ConfigurationError`` if it does not verify: an agent must not sign lines that somebody else changed. The
    same for a trail with entries of another ``kind``. A crash while a segment begins is not a fault; it leaves the
    segment ``unfinished``.
    """
    name = TRAIL_NAMES[kind]
    try:
        line = read_head(folder)
        found = dict(segment_files(folder))
        faults = list[TrailFault]()
        head = parse_head(HEAD, line, faults) if line is not None else None
        _refuse(name, folder, faults)
        last, unfinished = max(found, default=0), None
        if found and is_unfinished(found[last], head.lines if head else 0):
            unfinished = found.pop(last)
        number = max(found, default=0)
        if unfinished is not None and number != last - 1:
            why = f"missing: {segment_name(last - 1)}, the last finished segment: restore it"
            _refuse(name, folder, [TrailFault(FaultCode.SEGMENT, why, unfinished.name)])
        if not found:
            _refuse(
                name,
                folder,
                [TrailFault(FaultCode.TRUNCATED, "signs lines of a trail that is missing", HEAD)] if line else [],
            )
            return TrailState(unfinished=unfinished)
        walk = TrailWalk(
            None if min(found) < number or number > 1 else ChainPosition(), wanted=[head.lines] if head else []
        )
        size = walk.read(number, found[number], last=unfinished is None)
        if head is not None and head.lines <= walk.begun and read_head(folder) != line:
            return examine_trail(
                folder, kind
            )  # another agent is writing: its head was older than the lines read after it
        state = TrailState(
            walk.segment,
            size,
            walk.place,
            walk.signed,
            walk.torn,
            unfinished,
            origin=walk.origin,
            key=walk.key if walk.origin is not None else "",
            in_epoch=walk.in_epoch,
            kind=walk.kind,
        )
        faults += _check_head(head, walk, found[number].name)
        if unfinished is not None:
            walk.read(last, unfinished, last=True)
    except OSError as error:
        raise ConfigurationError(f"{name} folder {folder}: {error.filename or ''} {error.strerror}") from None
    _refuse(name, folder, walk.faults + faults)
    if state.kind not in {None, kind}:
        raise ConfigurationError(f"{name} folder {folder}: holds a trail of another kind; choose another folder")
    return state


def _check_head(head: SignedHead | None, walk: TrailWalk, name: str) -> Iterator[TrailFault]:
    """The faults between the head and the last finished segment: the head must sign a line of it."""
    if head is None:
        yield TrailFault(FaultCode.HEAD, "is missing", HEAD)
    elif head.lines > walk.lines:
        yield TrailFault(
            FaultCode.TRUNCATED, f"ends after line {walk.lines} of the trail, {head.lines} are signed", name
        )
    elif head.lines <= walk.begun:
        yield TrailFault(FaultCode.HEAD, "signs no line of the last segment", HEAD)
    elif (seen := walk.seen.get(head.lines)) is None or not head.fits(seen) or not is_signed(head.body, seen.key):
        yield TrailFault(FaultCode.HEAD, "does not sign this trail", HEAD)


def _refuse(name: str, folder: Path, faults: Sequence[TrailFault]) -> None:
    if faults:
        first = faults[0]
        raise ConfigurationError(
            f"{name} folder {folder}: {first.where}: {first.code}: {first.detail}; run "
            f"'deid-agent audit verify {folder}', then move the folder aside and start again"
        )
