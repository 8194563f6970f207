"""The audit trail as the agent writes it: chained lines in segments, synced before anything settles, signed."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent.audit import Entry, mend
from deid_agent.audit.folder import (
    HEAD,
    Lock,
    read_head,
    segment_name,
    segments,
    sync_folder,
    write_all,
    write_head,
)
from deid_agent.audit.lines import (
    Kind,
    Place,
    Signer,
    build_id,
    chain_of,
    entry_body,
    is_signed,
    segment_body,
    statement,
    tail_of,
)
from deid_agent.audit.verify import Head, head_of
from deid_agent.audit.walk import Code, Fault, Segment, Walk, is_unfinished
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import AuditMended, AuditUnsigned


@dataclass(frozen=True, slots=True)
class TrailSettings:
    """``checkpoint_s``: seconds after which what was written is signed. A segment of ``segment_bytes`` is the last."""

    checkpoint_s: float = 1.0
    segment_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a trail stands: its last segment with its whole bytes, its place, what is signed of it.

    ``unfinished`` is the segment behind it that a crash left without a head: it is to be made again.
    """

    segment: Segment | None = None
    size: int = 0
    place: Place = Place()  # noqa: RUF009 - frozen
    signed: int = 0
    torn: int = 0
    unfinished: Path | None = None


Appended = tuple[Sequence[Entry], "Future[Sequence[bytes]]"]


class AuditTrail:
    """Implements ``AuditLog`` in a folder, owned by one process at a time (``flock``); files have mode 0600.

    An existing trail is continued, after its last segment and ``head.json`` were verified; a last line that a crash
    has torn is cut off first (its record was not settled). Another ``build`` or key begins a segment. What is
    older than ``checkpoint_s`` is signed, and all of it after ``close``. Appends that wait for the disk share one
    sync. A start that failed leaves nothing behind. ``ConfigurationError`` where the folder can't be used or does
    not verify, ``UnsafeError`` where a write fails: from then on every ``append`` fails, since what stands at the
    end is not known.
    """

    def __init__(
        self,
        folder: Path,
        build: Mapping[str, str],
        signer: Signer,
        telemetry: Telemetry,
        settings: TrailSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._build = dict(build)
        self._build_id = build_id(build)
        self._signer = signer
        self._telemetry = telemetry
        self._settings = settings or TrailSettings()
        self._clock = clock
        # One thread: batches keep their order, and a close waits for a write that nobody awaits any more.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._queue: deque[Appended] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._broken = False
        self._closed = False
        self._file: int | None = None
        self._signed_at = -1.0
        self._lock = Lock(folder)
        try:
            standing = examine(folder)
            self._open(standing)
        except BaseException:
            self._lock.release()
            raise
        if standing.torn:
            telemetry.emit(AuditMended(standing.torn))

    def _open(self, standing: Standing) -> None:
        self._place, self._signed, self._size = standing.place, standing.signed, standing.size
        self._segment = standing.segment
        try:
            if standing.unfinished is not None:
                # Should the power go, it must not come back behind entries that it does not follow.
                standing.unfinished.unlink()
                sync_folder(self._folder)
            if standing.segment is not None:
                path = self._folder / segment_name(standing.segment.number)
                self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                mend(self._file)
        except OSError as error:
            raise ConfigurationError(f"audit folder {self._folder}: {error.strerror}") from None

    async def append(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        """See ``AuditLog.append``. Encoding, writing and sync happen in a thread, one batch after another."""
        if self._closed:
            raise UnsafeError("the audit trail is closed")
        if not entries:
            return ()
        written: Future[Sequence[bytes]] = Future()
        self._queue.append((tuple(entries), written))
        self._thread.submit(self._write)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settings.checkpoint_s, self._on_time)
        return await asyncio.wrap_future(written)

    async def close(self) -> None:
        """Sign what is not signed, close and give up the folder."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        left = await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)
        if left:
            self._telemetry.emit(AuditUnsigned(left))

    def _on_time(self) -> None:
        self._timer = None
        self._thread.submit(self._sign_rest)

    # --- all below runs in the thread

    def _write(self) -> None:
        """Everything that waits, under one sync: with many partitions the disk is not asked once for each."""
        batches = []
        while self._queue:
            entries, written = self._queue.popleft()
            if written.set_running_or_notify_cancel():
                batches.append((entries, written))
        if not batches:
            return
        try:
            done = self._put([entries for entries, _ in batches])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            told = str(error) if isinstance(error, UnsafeError) else f"unexpected {type(error).__name__}"
            for _, written in batches:
                written.set_exception(UnsafeError(told))
            return
        for (_, written), lines in zip(batches, done, strict=True):
            written.set_result(lines)

    def _put(self, batches: Sequence[Sequence[Entry]]) -> Sequence[Sequence[bytes]]:
        if self._broken:
            raise UnsafeError("the audit trail broke at an earlier write: start again")
        self._broken = True
        now = self._clock()
        try:
            if not self._goes_on:
                self._next_segment(now)
            done = [[self._link(entry_body(entry, self._build_id, now)) for entry in batch] for batch in batches]
            data = b"".join(line for lines in done for line in lines)
            if not 0 <= now - self._signed_at < self._settings.checkpoint_s:
                self._sign(data, now)
            else:
                self._flush(data)
        except OSError as error:
            raise UnsafeError(f"the audit trail cannot be written: {error.strerror}; nothing was settled") from None
        self._broken = False
        return [[line[:-1] for line in lines] for lines in done]

    def _sign_rest(self) -> None:
        """Sign what stands behind the last checkpoint, where no more came that would have been signed with it."""
        if self._broken or self._place.lines <= self._signed:
            return
        self._broken = True
        try:
            self._sign(b"", self._clock())
        except OSError:
            return  # the next append says so
        self._broken = False

    def _end(self) -> int:
        """Close; how many lines stay unsigned."""
        if self._ours:
            self._sign_rest()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()
        return self._place.lines - self._signed

    @property
    def _ours(self) -> bool:
        return self._segment is not None and self._segment.public == self._signer.public

    @property
    def _goes_on(self) -> bool:
        """True where the segment that is open takes another entry."""
        segment = self._segment
        same = segment is not None and self._ours and segment.build.get("id") == self._build_id
        return same and self._size < self._settings.segment_bytes

    def _next_segment(self, now: float) -> None:
        """Begin a segment. The one before ends with a checkpoint, if it is signed by our key."""
        if self._ours and self._place.lines > self._signed:
            self._sign(b"", now)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        number = self._segment.number + 1 if self._segment is not None else 1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._folder / segment_name(number), flags, 0o600)
        self._segment = Segment(number, self._signer.public, {"id": self._build_id, **self._build})
        self._size = 0
        # Its name is durable before the head that speaks of it, and that before the first entry: no crash leaves
        # a head without its lines, nor an entry in a segment of which the head says nothing.
        sync_folder(self._folder)
        first = self._link(segment_body(number, self._place, self._signer.public, self._build, now))
        self._sign(first, now)
        sync_folder(self._folder)

    def _link(self, body: bytes) -> bytes:
        chain = chain_of(self._place.chain, body)
        self._place = Place(self._place.lines + 1, chain)
        return body + tail_of(chain)

    def _sign(self, data: bytes, now: float) -> None:
        """Write ``data`` and a checkpoint behind it, then the head: never ahead of what stands on the disk."""
        checkpoint = self._link(self._signer.signed(statement(Kind.CHECKPOINT, self._place, now)))
        self._flush(data + checkpoint)
        write_head(self._folder, self._signer.signed(statement(Kind.HEAD, self._place, now)) + b"}\n")
        self._signed, self._signed_at = self._place.lines, now

    def _flush(self, data: bytes) -> None:
        if self._file is None:
            raise OSError(0, "no segment is open")
        write_all(self._file, data)
        os.fsync(self._file)
        self._size += len(data)


def examine(folder: Path) -> Standing:
    """Where the trail in ``folder`` stands; reads the last segment, writes nothing.

    Raises ``ConfigurationError`` where it does not verify: an agent must not sign what somebody else changed.
    A crash at any moment of a segment's beginning is none of that, and leaves it ``unfinished``.
    """
    try:
        line = read_head(folder)
        found = dict(segments(folder))
        faults = list[Fault]()
        head = head_of(HEAD, line, faults) if line is not None else None
        _refuse(folder, faults)
        last, unfinished = max(found, default=0), None
        if found and is_unfinished(found[last], head.lines if head else 0):
            unfinished = found.pop(last)
        number = max(found, default=0)
        if unfinished is not None and number != last - 1:
            why = f"missing: {segment_name(last - 1)}, the last one that was finished: bring it back"
            _refuse(folder, [Fault(Code.SEGMENT, why, unfinished.name)])
        if not found:
            _refuse(folder, [Fault(Code.TRUNCATED, "signs lines of a trail that is not here", HEAD)] if line else [])
            return Standing(unfinished=unfinished)
        walk = Walk(None if min(found) < number or number > 1 else Place(), wanted=[head.lines] if head else [])
        size = walk.read(number, found[number], last=unfinished is None)
        if head is not None and head.lines <= walk.begun and read_head(folder) != line:
            return examine(folder)  # an agent writes meanwhile: its head was older than what was read then
        standing = Standing(walk.segment, size, walk.place, walk.signed, walk.torn, unfinished)
        faults += _against(head, walk, found[number].name)
        if unfinished is not None:
            walk.read(last, unfinished, last=True)
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    _refuse(folder, walk.faults + faults)
    return standing


def _against(head: Head | None, walk: Walk, name: str) -> Iterator[Fault]:
    """What is wrong between the head and the last segment that is finished: it has to sign a line of that."""
    if head is None:
        yield Fault(Code.HEAD, "is missing", HEAD)
    elif head.lines > walk.lines:
        yield Fault(Code.TRUNCATED, f"ends after line {walk.lines} of the trail, {head.lines} are signed", name)
    elif head.lines <= walk.begun:
        yield Fault(Code.HEAD, "signs no line of the last segment", HEAD)
    elif head.chain not in walk.seen.get(head.lines, ()) or not any(is_signed(head.body, key) for key in walk.keys):
        yield Fault(Code.HEAD, "does not sign this trail", HEAD)


def _refuse(folder: Path, faults: Sequence[Fault]) -> None:
    if faults:
        first = faults[0]
        raise ConfigurationError(
            f"audit folder {folder}: {first.where}: {first.code}: {first.detail}; look at it with "
            f"'deid-agent audit verify {folder}', then move the folder aside and start again"
        )
