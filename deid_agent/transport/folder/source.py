"""A folder as a source: every file is a record, and its output gets the same relative name."""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from deid_agent.agent import (
    UNSEALED,
    AssignmentListener,
    Coordinates,
    DeadLetterSealer,
    FinishedRecord,
    Partition,
    Record,
)
from deid_agent.config import DirectorySettings
from deid_agent.model import ConfigurationError, UnsafeError
from deid_agent.telemetry import FilesSkipped, FileUnreadable, Telemetry
from deid_agent.transport.folder.dead_letters import record_from_file, stage_dead_letter
from deid_agent.transport.folder.files import (
    ChangedError,
    FileState,
    Skipped,
    StabilityTracker,
    StagedFiles,
    check_transport_folders,
    distinct_name,
    read_file,
    relative_name,
    resolve_inside,
    walk_files,
)
from deid_agent.transport.folder.journal import Journal, Version

NOT_TAKEN: Final = "not-taken.jsonl"
STREAM: Final = Partition("files", 0)
_POLL_BYTES: Final = 16 << 20
T = TypeVar("T")


class FolderTransport:
    """A ``Transport`` that reads ``input`` and writes ``output`` and ``dead_letters``; ``state`` is its journal.

    A record's key is the relative name of its file, its topic is ``files``, and its offset is its place in the order in
    which files were first read. Offsets have no gaps: the journal names the reason for each one without an output or a
    dead letter. The offset stays the same after a restart. Outputs are complete and durable before the
    journal records them. After a crash between the two, the same output is written again under the same name. A file
    whose content differs from the committed version is a new record with its own output, and so is a replayed file (see
    ``folder.dead_letters``). ``sealer`` builds all dead letters.

    Only regular files are read. Links and special files are counted, and listed in ``not-taken.jsonl`` in the
    dead-letter folder; hidden files are ignored. Names may be PHI: only that file and the dead letters contain them,
    log messages never do.

    With ``watch`` the folder is scanned every ``interval_s``. A file is taken once its size and times did not change
    for ``stable_s`` of ``clock``. A writer that pauses longer produces two records, of which the second is complete.
    Files in ``unreadable`` are not committed and are read again after a restart. ``start`` raises
    ``ConfigurationError`` if the folders cannot be used (``files.check_transport_folders``).
    """

    def __init__(
        self,
        settings: DirectorySettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_file_bytes: int = 256 << 20,
        sealer: DeadLetterSealer = UNSEALED,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._input, self._output, self._dead_letters, self._state = (
            path.absolute() for path in (settings.input, settings.output, settings.dead_letters, settings.state)
        )
        self._watch = settings.watch
        self._interval_s = settings.interval_s
        self._max_file_bytes = max_file_bytes
        self._sealer = sealer
        self._telemetry = telemetry or Telemetry()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._journal: Journal | None = None
        self._waiting: deque[bytes] = deque()
        self._clock = clock
        self._stability = StabilityTracker(settings.stable_s, clock)
        self._known_versions: dict[bytes, Version] = {}
        self._taken_versions: dict[int, Version] = {}
        self._last = -1
        self._dead_letter_count = 0
        self._skipped: dict[bytes, Skipped] = {}
        self._unreadable: dict[bytes, tuple[Coordinates, str]] = {}
        self._reported: list[dict[str, str]] | None = None
        self._scanned_at = 0.0
        self._paused = False
        self._wakeup = asyncio.Event()
        self._stopped = False

    def __repr__(self) -> str:
        return f"FolderTransport({self._input} -> {self._output}, watch={self._watch})"

    @property
    def unreadable(self) -> tuple[Coordinates, ...]:
        """The coordinates of files that could not be read."""
        return tuple(coordinates for coordinates, _ in self._unreadable.values())

    @property
    def skipped(self) -> int:
        """The number of links, special files and unreadable folders that the last scan skipped."""
        return len(self._skipped)

    @property
    def dead_letters(self) -> int:
        """The number of files refused since the start."""
        return self._dead_letter_count

    @property
    def exhausted(self) -> bool:
        """True if all files have been delivered; never true while watching."""
        return not self._watch and self._journal is not None and not self._waiting

    async def start(self, listener: AssignmentListener) -> None:
        """Check the folders, open the journal, and scan for the first time."""
        await self._in_thread(self._open)
        self._scanned_at = self._clock()
        await listener.assigned((STREAM,))

    async def poll(self, limit: int) -> Sequence[Record]:
        """Return up to ``limit`` files, fewer if they are large."""
        if self._watch and self._clock() >= self._scanned_at + self._interval_s:
            self._scanned_at = self._clock()
            await self._in_thread(self._scan)
        if self._waiting and not self._paused:
            return await self._in_thread(lambda: self._read(limit))
        if not self.exhausted and not self._stopped:
            self._wakeup.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._interval_s)):
                    await self._wakeup.wait()
        return ()

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._paused = self._paused or stream == STREAM

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._paused = self._paused and stream != STREAM
        self._wakeup.set()

    def lag(self, stream: Partition) -> int | None:
        """The number of files seen and not committed."""
        return len(self._waiting) + len(self._taken_versions) if stream == STREAM else None

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """Write outputs and dead letters in order, then the journal. Raises ``UnsafeError`` if a write fails."""
        offsets = {item.record.coordinates.offset for item in batch}
        if (
            stream != STREAM
            or not offsets
            or max(offsets) + 1 != position
            or not offsets <= self._taken_versions.keys()
        ):
            raise UnsafeError(
                f"{STREAM.topic}/{STREAM.number}: a batch up to {position} holds files that were not taken"
            )
        await self._in_thread(lambda: self._commit(batch))
        for offset in offsets:
            del self._taken_versions[offset]
        self._dead_letter_count += sum(item.dead_letter is not None for item in batch)

    async def stop(self) -> None:
        """Wait for the write in progress, then close the journal."""
        self._wakeup.set()
        if not self._stopped:
            self._stopped = True
            if self._journal is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.close)
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._stopped:
            raise UnsafeError("the folder transport was already stopped: create a new one")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            raise UnsafeError(
                f"reading or writing a folder failed ({error.strerror}): fix it and start again; nothing was lost"
            ) from None

    def _open(self) -> None:
        check_transport_folders(self._input, self._output, self._dead_letters, self._state)
        for path in (self._output, self._dead_letters):
            try:
                path.mkdir(parents=True, exist_ok=True, mode=0o700 if path == self._dead_letters else 0o777)
            except OSError as error:
                raise ConfigurationError(f"folder {path}: {error.strerror}") from None
        self._journal = Journal(self._state)
        self._scan()

    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise UnsafeError("the folder transport was not started")
        return self._journal

    def _scan(self) -> None:
        """Queue new and changed files; while watching, only those that are stable."""
        self._skipped = {}
        states = dict(walk_files(self._input, self._skipped.__setitem__))
        stable = self._stability.stable_names(states) if self._watch else states
        fresh = [name for name in stable if self._is_new(name, states[name])]
        # Files that had an offset before the restart come first, in its order, so that they keep it.
        fresh.sort(key=lambda name: (self._open_journal().open_offset(name), name))
        for name in fresh:
            self._known_versions[name] = Version(states[name], "")
        self._waiting.extend(fresh)
        self._report_not_taken()

    def _is_new(self, name: bytes, state: FileState) -> bool:
        """True if the content differs from the version that was taken last under this name."""
        known = self._known_versions.get(name) or self._open_journal().finished(name)
        if known is None:
            return True
        self._known_versions[name] = known
        if known.state == state or name in self._waiting:
            return False
        try:
            payload, state = read_file(self._input / os.fsdecode(name), self._max_file_bytes)
        except OSError:
            return True
        if self._open_journal().digest(payload) != known.digest:
            return True
        self._known_versions[name] = Version(state, known.digest)
        return False

    def _read(self, limit: int) -> list[Record]:
        read: dict[bytes, tuple[bytes, FileState] | str] = {}
        size = 0
        while self._waiting and len(read) < limit and size < _POLL_BYTES:
            name = self._waiting.popleft()
            self._unreadable.pop(name, None)
            try:
                payload, state = read_file(self._input / os.fsdecode(name), self._max_file_bytes)
                if self._watch and state != self._known_versions[name].state:
                    raise ChangedError("changed while it waited")
            except OSError as error:
                if self._watch and isinstance(error, ChangedError):
                    del self._known_versions[name]  # it must become stable again, and has no offset yet
                    continue
                read[name] = error.strerror or str(error)
                continue
            read[name] = payload, state
            size += len(payload)
        records = self._number(read)
        self._report_not_taken()
        return records

    def _number(self, read: Mapping[bytes, tuple[bytes, FileState] | str]) -> list[Record]:
        """Give offsets to files that were read, or whose reading failed for a reason; return the records."""
        records = list[Record]()
        for offset, name in self._open_journal().offsets(read, above=self._last):
            self._last = offset
            coordinates, found = Coordinates(STREAM.topic, STREAM.number, offset), read[name]
            if isinstance(found, str):
                self._unreadable[name] = coordinates, found
                self._telemetry.emit(FileUnreadable(str(coordinates), found))
                continue
            payload, state = found
            version = Version(state, self._open_journal().digest(payload))
            self._known_versions[name] = self._taken_versions[offset] = version
            records.append(record_from_file(coordinates, name, payload, state[1] // 1_000_000))
        return records

    def _report_not_taken(self) -> None:
        """Report skipped and unreadable files whenever they change: counts to the log, names to ``not-taken.jsonl``."""
        lines = [{"file": os.fsdecode(name), "why": kind.value} for name, kind in sorted(self._skipped.items())]
        if self._skipped and lines != [line for line in self._reported or () if "at" not in line]:
            count = Counter(self._skipped.values())
            self._telemetry.emit(FilesSkipped(count[Skipped.FOLDER], count[Skipped.LINK], count[Skipped.SPECIAL]))
        for name, (coordinates, why) in sorted(self._unreadable.items()):
            lines.append({"file": os.fsdecode(name), "why": why, "at": str(coordinates)})
        if lines != self._reported:
            goal = self._dead_letters / NOT_TAKEN
            staged = StagedFiles()
            try:
                if lines:
                    staged.add(goal, b"".join(json.dumps(line).encode() + b"\n" for line in lines), 0o600, NOT_TAKEN)
                    staged.publish()
                else:
                    goal.unlink(missing_ok=True)
            finally:
                staged.discard()
            self._reported = lines

    def _commit(self, batch: Sequence[FinishedRecord]) -> None:
        staged, names = StagedFiles(), dict[int, bytes | None]()
        try:
            for item in batch:
                offset = item.record.coordinates.offset
                names[offset] = None
                if item.output is not None:
                    name, goal = self._place(item.output.key, offset, names)
                    names[offset] = name
                    staged.add(goal, item.output.payload, 0o666, f"{offset}", item.output.timestamp_ms)
                if item.dead_letter is not None:
                    stage_dead_letter(staged, self._dead_letters, self._sealer, item.record, item.dead_letter)
            staged.publish()
            self._open_journal().commit(names, self._taken_versions)
        finally:
            staged.discard()

    def _place(self, key: bytes | None, offset: int, batch: dict[int, bytes | None]) -> tuple[bytes, Path]:
        """The name and path of an output. Deterministic, so that a repeated commit finds its own file."""

        def taken(name: bytes) -> bool:
            owner = self._open_journal().claimant(name)
            return owner not in {None, offset} or name in batch.values()

        for wish in (relative_name(key, offset), relative_name(None, offset)):
            name = distinct_name(wish, offset, taken)
            if (path := resolve_inside(self._output, name)) is not None:
                return name, path
        raise UnsafeError(
            f"the output of {STREAM.topic}/{STREAM.number}/{offset} has no possible name: clear the output folder"
        )
