"""Writes the audit trail: chained and signed lines in segments, synced before a position is committed."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent import AuditEntry, cut_torn_line
from deid_agent.audit.reading import SignedHead, parse_head
from deid_agent.audit.storage import (
    HEAD,
    ChainPosition,
    LineKind,
    Lock,
    Signer,
    build_id,
    chain_value,
    encode_entry,
    encode_segment,
    encode_statement,
    is_signed,
    line_end,
    read_head,
    segment_files,
    segment_name,
    sync_folder,
    write_all,
    write_head,
)
from deid_agent.audit.walk import FaultCode, TrailFault, TrailSegment, TrailWalk, is_unfinished
from deid_agent.model import ConfigurationError, UnsafeError
from deid_agent.telemetry import AuditRepaired, AuditUnsigned, Telemetry


@dataclass(frozen=True, slots=True)
class TrailSettings:
    """Lines are signed within ``checkpoint_s`` seconds. A new segment begins after ``segment_bytes``."""

    checkpoint_s: float = 1.0
    segment_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class TrailState:
    """The end of a trail: its last segment with the bytes of complete lines, the position, and the signed lines.

    ``torn`` is the number of bytes of an incomplete last line. ``unfinished`` is a further segment that a crash left
    without a head; it has no entry and is created again.
    """

    segment: TrailSegment | None = None
    size: int = 0
    place: ChainPosition = ChainPosition()  # noqa: RUF009 - frozen
    signed: int = 0
    torn: int = 0
    unfinished: Path | None = None


Appended = tuple[Sequence[AuditEntry], "Future[Sequence[bytes]]"]


class AuditTrail:
    """Implements ``AuditLog`` in a folder that one process owns at a time (``flock``). Files have mode 0600.

    An existing trail is continued after its last segment and ``head.json`` are verified. An incomplete last line from a
    crash is removed first; its record was not committed. Another ``build`` or key begins a segment. Lines are signed
    within ``checkpoint_s``, and all of them by ``close``. Appends that wait for the disk share one sync. A failed start
    leaves nothing behind.

    Raises ``ConfigurationError`` if the folder cannot be used or does not verify, and ``UnsafeError`` if a write fails.
    After that every ``append`` fails, because the end of the trail is unknown.
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
        # One thread: batches keep their order, and ``close`` waits for a write that is no longer awaited.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._queue: deque[Appended] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._broken = False
        self._closed = False
        self._file: int | None = None
        self._signed_at = -1.0
        self._lock = Lock(folder)
        try:
            state = examine_trail(folder)
            self._open(state)
        except BaseException:
            self._lock.release()
            raise
        if state.torn:
            telemetry.emit(AuditRepaired(state.torn))

    def _open(self, state: TrailState) -> None:
        self._place, self._signed, self._size = state.place, state.signed, state.size
        self._segment = state.segment
        try:
            if state.unfinished is not None:
                # After a power failure it must not reappear after entries that it does not follow.
                state.unfinished.unlink()
                sync_folder(self._folder)
            if state.segment is not None:
                path = self._folder / segment_name(state.segment.number)
                self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                cut_torn_line(self._file)
        except OSError as error:
            raise ConfigurationError(f"audit folder {self._folder}: {error.strerror}") from None

    async def append(self, entries: Sequence[AuditEntry]) -> Sequence[bytes]:
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
        """Sign the unsigned lines, close the file and release the folder."""
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

    # The methods below run in the thread.

    def _write(self) -> None:
        """Write all waiting batches with one sync: with many partitions one sync for each would be slow."""
        batches = []
        while self._queue:
            entries, written = self._queue.popleft()
            if written.set_running_or_notify_cancel():
                batches.append((entries, written))
        if not batches:
            return
        try:
            done = self._put([entries for entries, _ in batches])
        except Exception as error:  # noqa: BLE001 - every waiting append must fail
            message = str(error) if isinstance(error, UnsafeError) else f"unexpected {type(error).__name__}"
            for _, written in batches:
                written.set_exception(UnsafeError(message))
            return
        for (_, written), lines in zip(batches, done, strict=True):
            written.set_result(lines)

    def _put(self, batches: Sequence[Sequence[AuditEntry]]) -> Sequence[Sequence[bytes]]:
        if self._broken:
            raise UnsafeError("an earlier write of the audit trail failed: restart the agent")
        self._broken = True
        now = self._clock()
        try:
            if not self._segment_is_open:
                self._next_segment(now)
            done = [
                [self._chain_line(encode_entry(entry, self._build_id, now)) for entry in batch] for batch in batches
            ]
            data = b"".join(line for lines in done for line in lines)
            if not 0 <= now - self._signed_at < self._settings.checkpoint_s:
                self._sign(data, now)
            else:
                self._flush(data)
        except OSError as error:
            raise UnsafeError(f"the audit trail cannot be written: {error.strerror}; nothing was committed") from None
        self._broken = False
        return [[line[:-1] for line in lines] for lines in done]

    def _sign_rest(self) -> None:
        """Sign the lines after the last checkpoint, if no later append has signed them."""
        if self._broken or self._place.lines <= self._signed:
            return
        self._broken = True
        try:
            self._sign(b"", self._clock())
        except OSError:
            return  # the next append reports it
        self._broken = False

    def _end(self) -> int:
        """Close, and return the number of unsigned lines."""
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
    def _segment_is_open(self) -> bool:
        """True if the open segment takes another entry."""
        segment = self._segment
        same = segment is not None and self._ours and segment.build.get("id") == self._build_id
        return same and self._size < self._settings.segment_bytes

    def _next_segment(self, now: float) -> None:
        """Begin a segment. The previous one ends with a checkpoint if it is signed by our key."""
        if self._ours and self._place.lines > self._signed:
            self._sign(b"", now)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        number = self._segment.number + 1 if self._segment is not None else 1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._folder / segment_name(number), flags, 0o600)
        self._segment = TrailSegment(number, self._signer.public, {"id": self._build_id, **self._build})
        self._size = 0
        # The file name is durable before the head that covers it, and the head before the first entry: no crash
        # leaves a head without its lines, nor an entry in a segment that the head does not cover.
        sync_folder(self._folder)
        first = self._chain_line(encode_segment(number, self._place, self._signer.public, self._build, now))
        self._sign(first, now)
        sync_folder(self._folder)

    def _chain_line(self, body: bytes) -> bytes:
        chain = chain_value(self._place.chain, body)
        self._place = ChainPosition(self._place.lines + 1, chain)
        return body + line_end(chain)

    def _sign(self, data: bytes, now: float) -> None:
        """Write ``data`` and a checkpoint, then the head, which never covers lines that are not on the disk."""
        checkpoint = self._chain_line(self._signer.sign(encode_statement(LineKind.CHECKPOINT, self._place, now)))
        self._flush(data + checkpoint)
        write_head(self._folder, self._signer.sign(encode_statement(LineKind.HEAD, self._place, now)) + b"}\n")
        self._signed, self._signed_at = self._place.lines, now

    def _flush(self, data: bytes) -> None:
        if self._file is None:
            raise OSError(0, "no segment is open")
        write_all(self._file, data)
        os.fsync(self._file)
        self._size += len(data)


def examine_trail(folder: Path) -> TrailState:
    """The state of the trail in ``folder``. Reads the last segment and writes nothing.

    Raises ``ConfigurationError`` if it does not verify: an agent must not sign lines that somebody else changed. A
    crash while a segment begins is not a fault; it leaves the segment ``unfinished``.
    """
    try:
        line = read_head(folder)
        found = dict(segment_files(folder))
        faults = list[TrailFault]()
        head = parse_head(HEAD, line, faults) if line is not None else None
        _refuse(folder, faults)
        last, unfinished = max(found, default=0), None
        if found and is_unfinished(found[last], head.lines if head else 0):
            unfinished = found.pop(last)
        number = max(found, default=0)
        if unfinished is not None and number != last - 1:
            why = f"missing: {segment_name(last - 1)}, the last finished segment: restore it"
            _refuse(folder, [TrailFault(FaultCode.SEGMENT, why, unfinished.name)])
        if not found:
            _refuse(
                folder,
                [TrailFault(FaultCode.TRUNCATED, "signs lines of a trail that is missing", HEAD)] if line else [],
            )
            return TrailState(unfinished=unfinished)
        walk = TrailWalk(
            None if min(found) < number or number > 1 else ChainPosition(), wanted=[head.lines] if head else []
        )
        size = walk.read(number, found[number], last=unfinished is None)
        if head is not None and head.lines <= walk.begun and read_head(folder) != line:
            return examine_trail(folder)  # another agent is writing: its head was older than the lines read after it
        state = TrailState(walk.segment, size, walk.place, walk.signed, walk.torn, unfinished)
        faults += _check_head(head, walk, found[number].name)
        if unfinished is not None:
            walk.read(last, unfinished, last=True)
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    _refuse(folder, walk.faults + faults)
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
    elif head.chain not in walk.seen.get(head.lines, ()) or not any(is_signed(head.body, key) for key in walk.keys):
        yield TrailFault(FaultCode.HEAD, "does not sign this trail", HEAD)


def _refuse(folder: Path, faults: Sequence[TrailFault]) -> None:
    if faults:
        first = faults[0]
        raise ConfigurationError(
            f"audit folder {folder}: {first.where}: {first.code}: {first.detail}; run "
            f"'deid-agent audit verify {folder}', then move the folder aside and start again"
        )
