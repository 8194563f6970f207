"""Writes a trail: chained and signed lines in segments, for the audit synced before a position is committed."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent import cut_torn_line, sync_folder
from deid_agent.audit.examine import TrailState, examine_trail
from deid_agent.audit.keys import EpochKeys, keys_for, random_seed, save_keys
from deid_agent.audit.lock import Lock
from deid_agent.audit.merkle import leaf_hash
from deid_agent.audit.storage import (
    FORMAT,
    TRAIL_NAMES,
    ChainPosition,
    LineKind,
    Signer,
    TrailItem,
    TrailOrigin,
    build_id,
    chain_value,
    encode_item,
    encode_segment,
    encode_statement,
    line_end,
    segment_name,
    trail_id,
    write_all,
    write_head,
)
from deid_agent.audit.walk import TrailSegment
from deid_agent.model import ConfigurationError, UnsafeError
from deid_agent.telemetry import AuditRepaired, AuditUnsigned, Telemetry


@dataclass(frozen=True, slots=True)
class TrailSettings:
    """Lines are signed within ``checkpoint_s`` seconds, and a key signs for ``epoch_s``, and not after a stop.

    A new segment begins after ``segment_bytes``. ``agent`` is the name of the agent in the trail. ``append`` returns
    the lines only if ``return_lines``: a transport that does not publish the trail would carry them in vain. ``kind``
    is that of all entries: a trail of another kind is not continued.
    """

    checkpoint_s: float = 1.0
    segment_bytes: int = 64 << 20
    epoch_s: float = 3600.0
    agent: str = ""
    return_lines: bool = True
    kind: LineKind = LineKind.ENTRY


Appended = tuple[Sequence[TrailItem], "Future[Sequence[bytes]]"]


class AuditTrail:
    """Implements ``AuditLog`` in a folder that one process owns at a time (``flock``). Files have mode 0600.

    An existing trail is continued after its last segment and ``head.json`` are verified. An incomplete last line from a
    crash is removed first; its record was not committed. Another ``build``, agent or ``identity`` begins a segment,
    whose first line the identity signs. Lines are signed within ``checkpoint_s``, and all of them by ``close``. The key
    changes after ``epoch_s`` and in ``close``, and the former one is destroyed. Appends that wait for the disk share
    one sync. A failed start leaves nothing behind. ``on_head`` is called with each signed head, in the writing thread.

    Raises ``ConfigurationError`` if the folder cannot be used or does not verify, and ``UnsafeError`` if a write fails.
    After that every ``append`` fails, because the end of the trail is unknown.
    """

    def __init__(
        self,
        folder: Path,
        build: Mapping[str, object],
        identity: Signer,
        telemetry: Telemetry,
        settings: TrailSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        make_seed: Callable[[], bytes] = random_seed,
        on_head: Callable[[bytes], None] | None = None,
    ) -> None:
        self._folder = folder
        self._build = dict(build)
        self._build_id = build_id(build)
        self._identity = identity
        self._telemetry = telemetry
        self._settings = settings or TrailSettings()
        self._clock = clock
        self._make_seed = make_seed
        self._on_head = on_head
        self._head = b""
        # One thread: batches keep their order, and ``close`` waits for a write that is no longer awaited.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._queue: deque[Appended] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._epoch_timer: asyncio.TimerHandle | None = None
        self._broken = False
        self._closed = False
        self._file: int | None = None
        self._signed_at = -1.0
        self._name = TRAIL_NAMES[self._settings.kind]
        self._lock = Lock(folder, self._name)
        try:
            state = examine_trail(folder, self._settings.kind)
            self._open(state)
        except BaseException:
            self._lock.release()
            raise
        if state.torn:
            telemetry.emit(AuditRepaired(state.torn, self._name))

    def _open(self, state: TrailState) -> None:
        self._place, self._signed, self._size = state.place, state.signed, state.size
        self._segment, self._origin, self._in_epoch = state.segment, state.origin, state.in_epoch
        self._epoch_at = self._clock()
        # A trail that has no epoch gets its first key with its first entry.
        self._keys: EpochKeys | None = keys_for(self._folder, state.key, self._make_seed) if state.key else None
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
            raise ConfigurationError(f"{self._name} folder {self._folder}: {error.strerror}") from None

    async def append(self, entries: Sequence[TrailItem]) -> Sequence[bytes]:
        """See ``AuditLog.append``. Encoding, writing and sync happen in a thread, one batch after another."""
        if self._closed:
            raise UnsafeError(f"the {self._name} trail is closed")
        if not entries:
            return ()
        written: Future[Sequence[bytes]] = Future()
        self._queue.append((tuple(entries), written))
        self._thread.submit(self._write)
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self._settings.checkpoint_s, self._on_time)
        if self._epoch_timer is None:
            self._epoch_timer = loop.call_later(self._settings.epoch_s, self._on_epoch_end)
        return await asyncio.wrap_future(written)

    async def close(self) -> None:
        """Sign the unsigned lines, close the file and release the folder."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._timer, self._epoch_timer):
            if timer is not None:
                timer.cancel()
        left = await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)
        if left:
            self._telemetry.emit(AuditUnsigned(left, self._name))

    def take_head(self) -> bytes:
        """The newest signed head, once; empty if there is no newer one."""
        head, self._head = self._head, b""
        return head

    def _on_time(self) -> None:
        self._timer = None
        self._thread.submit(self._sign_rest)

    def _on_epoch_end(self) -> None:
        self._epoch_timer = None
        self._thread.submit(self._end_epoch)

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

    def _put(self, batches: Sequence[Sequence[TrailItem]]) -> Sequence[Sequence[bytes]]:
        if self._broken:
            raise UnsafeError(f"an earlier write of the {self._name} trail failed: restart the agent")
        self._broken = True
        now = self._clock()
        try:
            if not self._segment_is_open:
                self._next_segment(now)
            done = [
                [self._chain_entry(encode_item(entry, self._build_id, now)) for entry in batch] for batch in batches
            ]
            data = b"".join(line for lines in done for line in lines)
            if not 0 <= now - self._epoch_at < self._settings.epoch_s:
                self._change_key(data, now)
            elif not 0 <= now - self._signed_at < self._settings.checkpoint_s:
                self._sign(data, now)
            else:
                self._flush(data)
        except OSError as error:
            raise UnsafeError(
                f"the {self._name} trail cannot be written: {error.strerror}; nothing was committed"
            ) from None
        self._broken = False
        return [[line[:-1] for line in lines] if self._settings.return_lines else () for lines in done]

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

    def _end_epoch(self) -> None:
        """Sign what is unsigned and change the key, unless the key has signed no entry."""
        if self._broken or not self._in_epoch:
            return
        self._broken = True
        try:
            self._change_key(b"", self._clock())
        except OSError:
            return  # the next append reports it
        self._broken = False

    def _end(self) -> int:
        """Close, and return the number of unsigned lines."""
        if self._ours:
            self._end_epoch()
            self._sign_rest()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()
        return self._place.lines - self._signed

    @property
    def _ours(self) -> bool:
        """True if the open segment was begun by this agent, in the present format."""
        segment, agent = self._segment, self._settings.agent
        return segment is not None and (segment.format, segment.identity, segment.agent) == (
            FORMAT,
            self._identity.public,
            agent,
        )

    @property
    def _segment_is_open(self) -> bool:
        """True if the open segment takes another entry."""
        segment = self._segment
        same = segment is not None and self._ours and segment.build.get("id") == self._build_id
        return same and self._size < self._settings.segment_bytes

    def _next_segment(self, now: float) -> None:
        """Begin a segment. The previous one ends with a checkpoint if it is ours."""
        if self._ours and self._place.lines > self._signed:
            self._sign(b"", now)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._keys is None:
            self._keys = keys_for(self._folder, "", self._make_seed)
        key, agent = self._keys.present.public, self._settings.agent
        old = self._origin
        self._origin = (
            TrailOrigin(old.trail, agent, old.epoch) if old is not None else TrailOrigin(trail_id(key), agent)
        )
        number = self._segment.number + 1 if self._segment is not None else 1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._folder / segment_name(number), flags, 0o600)
        build = {"id": self._build_id, **self._build}
        self._segment = TrailSegment(number, self._identity.public, build, agent)
        self._size = 0
        # The file name is durable before the head that covers it, and the head before the first entry: no crash
        # leaves a head without its lines, nor an entry in a segment that the head does not cover.
        sync_folder(self._folder)
        body = encode_segment(number, self._place, self._origin, key, self._identity, self._build, now)
        self._sign(self._chain_line(body), now)
        sync_folder(self._folder)

    def _chain_line(self, body: bytes) -> bytes:
        chain = chain_value(self._place.chain, body)
        self._place = ChainPosition(self._place.lines + 1, chain, self._place.tree)
        return body + line_end(chain)

    def _chain_entry(self, body: bytes) -> bytes:
        place = self._place
        chain = chain_value(place.chain, body)
        line = body + line_end(chain)
        # One object for each entry: every record of a feed passes here.
        self._place = ChainPosition(place.lines + 1, chain, place.tree.add(leaf_hash(line[:-1])))
        self._in_epoch += 1
        return line

    def _sign(self, data: bytes, now: float) -> None:
        """Write ``data`` and a checkpoint, then the head, which never covers lines that are not on the disk."""
        keys, origin = self._signing()
        statement = encode_statement(LineKind.CHECKPOINT, self._place, origin, now)
        self._flush(data + self._chain_line(keys.present.sign(statement)))
        self._write_head(keys, origin, now)

    def _change_key(self, data: bytes, now: float) -> None:
        """Write ``data`` and the last statement of the epoch, then destroy its key.

        The file holds both keys until the statement is on the disk, so a crash leaves the key that the trail names.
        """
        keys, origin = self._signing()
        both = keys.with_next(self._make_seed())
        save_keys(self._folder, both)
        statement = encode_statement(LineKind.KEY, self._place, origin, now, both.next.public)
        self._flush(data + self._chain_line(keys.present.sign(statement)))
        self._keys, self._origin = both.advanced(), TrailOrigin(origin.trail, origin.agent, origin.epoch + 1)
        self._epoch_at, self._in_epoch = now, 0
        self._write_head(self._keys, self._origin, now)
        save_keys(self._folder, self._keys)

    def _signing(self) -> tuple[EpochKeys, TrailOrigin]:
        if self._keys is None or self._origin is None:
            raise OSError(0, "no segment is open")
        return self._keys, self._origin

    def _write_head(self, keys: EpochKeys, origin: TrailOrigin, now: float) -> None:
        head = keys.present.sign(encode_statement(LineKind.HEAD, self._place, origin, now)) + b"}"
        write_head(self._folder, head + b"\n")
        self._signed, self._signed_at, self._head = self._place.lines, now, head
        if self._on_head is not None:
            self._on_head(head)

    def _flush(self, data: bytes) -> None:
        if self._file is None:
            raise OSError(0, "no segment is open")
        write_all(self._file, data)
        os.fsync(self._file)
        self._size += len(data)
