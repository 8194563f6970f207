"""A folder as a source: every file is a record, outputs come to stand under the same relative name."""

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from deid_agent.agent.deadletter import letter_headers
from deid_agent.agent.ports import Coordinates, Listener, Partition, Record, Settled
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import FileUnreadable
from deid_agent.transport.folders import Look, Staged, nested, read, walk
from deid_agent.transport.journal import Journal
from deid_agent.transport.names import distinct_name, inside, relative_name

STREAM: Final = Partition("files", 0)
_POLL_BYTES: Final = 16 << 20
T = TypeVar("T")


class DirectoryTransport:
    """Files of ``input`` in, files of ``output`` out, refusals to ``dead_letters``, progress in ``state``.

    A record's key is the file's relative name, its topic ``files``, its offset the file's place in the
    order in which files were first seen; it stays the same over restarts. Regular files only, no links, no
    hidden ones. Outputs are written whole and durable before the journal says so; after a crash between
    the two the same output is written again under the same name. Names may be PHI: no message holds one.

    With ``watch`` new files are taken once two looks, ``interval_s`` apart, saw the same size and time.
    ``unreadable`` names files that could not be read; they are not settled and come again after a restart.
    ``ConfigurationError`` where ``input`` is missing or the folders lie in one another.
    """

    def __init__(
        self,
        input: Path,
        output: Path,
        dead_letters: Path,
        state: Path,
        *,
        watch: bool = False,
        interval_s: float = 1.0,
        max_file_bytes: int = 256 << 20,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._input, self._output, self._letters, self._state = (
            path.absolute() for path in (input, output, dead_letters, state)
        )
        self._watch = watch
        self._interval_s = interval_s
        self._max_file_bytes = max_file_bytes
        self._telemetry = telemetry or Telemetry()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._journal: Journal | None = None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._looks: dict[bytes, Look] = {}
        self._handed: set[bytes] = set()
        self._taken: set[int] = set()
        self._last = -1
        self._unreadable: list[Coordinates] = []
        self._looked_at = 0.0
        self._paused = False
        self._woken = asyncio.Event()
        self._stopped = False

    def __repr__(self) -> str:
        return f"DirectoryTransport({self._input} -> {self._output}, watch={self._watch})"

    @property
    def unreadable(self) -> tuple[Coordinates, ...]:
        """Files that could not be read, by coordinates."""
        return tuple(self._unreadable)

    @property
    def exhausted(self) -> bool:
        """True where every file has been handed out; never while watching."""
        return not self._watch and self._journal is not None and not self._waiting

    async def start(self, listener: Listener) -> None:
        """Look at the folders, open the journal, take the first look at the files."""
        await self._apart(self._open)
        self._looked_at = asyncio.get_running_loop().time()
        await listener.assigned((STREAM,))

    async def poll(self, limit: int) -> Sequence[Record]:
        """Up to ``limit`` files, fewer where they are large."""
        loop = asyncio.get_running_loop()
        due = self._looked_at + self._interval_s
        if self._watch and loop.time() >= due:
            self._looked_at = loop.time()
            await self._apart(self._look)
        if self._waiting and not self._paused:
            records, failed = await self._apart(lambda: self._read(limit))
            for coordinates, error in failed:
                self._unreadable.append(coordinates)
                self._telemetry.emit(FileUnreadable(str(coordinates), error))
            self._taken.update(record.coordinates.offset for record in records)
            return records
        if not self.exhausted and not self._stopped:
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._interval_s)):
                    await self._woken.wait()
        return ()

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._paused = self._paused or stream == STREAM

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._paused = self._paused and stream != STREAM
        self._woken.set()

    def lag(self, stream: Partition) -> int | None:
        """Files that have been seen and not settled."""
        return len(self._waiting) + len(self._taken) if stream == STREAM else None

    async def settle(self, stream: Partition, batch: Sequence[Settled], position: int) -> None:
        """Write outputs and letters in order, then the journal. ``UnsafeError`` where the disk refuses."""
        offsets = {item.record.coordinates.offset for item in batch}
        if stream != STREAM or not offsets or max(offsets) + 1 != position or not offsets <= self._taken:
            raise UnsafeError(
                f"{STREAM.topic}/{STREAM.number}: a batch up to {position} holds files that were not taken"
            )
        await self._apart(lambda: self._settle(batch))
        self._taken -= offsets

    async def stop(self) -> None:
        """Wait for a write that is under way, then let go of the journal."""
        self._woken.set()
        if not self._stopped:
            self._stopped = True
            if self._journal is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.close)
            self._thread.shutdown(wait=False)

    async def _apart(self, work: Callable[[], T]) -> T:
        if self._stopped:
            raise UnsafeError("the folder was already stopped: make a new transport")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            raise UnsafeError(f"a folder fails ({error.strerror}): mend it and start again; nothing was lost") from None

    def _open(self) -> None:
        if not self._input.is_dir():
            raise ConfigurationError(f"input folder {self._input} does not exist: name an existing folder")
        ours = {"output": self._output, "dead-letter": self._letters, "state": self._state}
        for name, path in ours.items():
            if nested(self._input, path):
                raise ConfigurationError(f"the {name} folder and the input folder lie in one another: move {path}")
        if nested(self._output, self._letters):
            raise ConfigurationError(f"dead letters hold PHI and must not lie in the output: move {self._letters}")
        for path in (self._output, self._letters):
            try:
                path.mkdir(parents=True, exist_ok=True, mode=0o700 if path == self._letters else 0o777)
            except OSError as error:
                raise ConfigurationError(f"folder {path}: {error.strerror}") from None
        self._journal = Journal(self._state)
        self._look()

    def _books(self) -> Journal:
        if self._journal is None:
            raise UnsafeError("the folder was not started")
        return self._journal

    def _look(self) -> None:
        """Queue files that are new; while watching, only those that stood still since the last look."""
        looks = dict(walk(self._input))
        still = (name for name, look in looks.items() if not self._watch or self._looks.get(name) == look)
        fresh = sorted(name for name in still if name not in self._handed)
        self._looks = looks
        self._handed.update(fresh)
        for offset, name in self._books().offsets(fresh, above=self._last):
            self._waiting.append((offset, name))
            self._last = offset

    def _read(self, limit: int) -> tuple[list[Record], list[tuple[Coordinates, str]]]:
        records: list[Record] = []
        failed: list[tuple[Coordinates, str]] = []
        size = 0
        while self._waiting and len(records) < limit and size < _POLL_BYTES:
            offset, name = self._waiting.popleft()
            coordinates = Coordinates(STREAM.topic, STREAM.number, offset)
            try:
                payload, changed_ms = read(self._input / os.fsdecode(name), self._max_file_bytes)
            except OSError as error:
                failed.append((coordinates, error.strerror or str(error)))
                continue
            size += len(payload)
            records.append(Record(coordinates, payload, name, (), changed_ms))
        return records, failed

    def _settle(self, batch: Sequence[Settled]) -> None:
        staged, names = Staged(), dict[int, bytes | None]()
        try:
            for item in batch:
                offset = item.record.coordinates.offset
                names[offset] = None
                if item.output is not None:
                    name, goal = self._place(item.output.key, offset, names)
                    names[offset] = name
                    staged.add(goal, item.output.payload, 0o666, f"{offset}")
                if item.letter is not None:
                    at = item.record.coordinates
                    stem = self._letters / f"{at.topic}-{at.partition}-{offset:010}"
                    headers = {name: value.decode() for name, value in letter_headers(at, item.letter)}
                    staged.add(stem.with_suffix(".payload"), item.record.payload, 0o600, f"{offset}-payload")
                    staged.add(stem.with_suffix(".json"), json.dumps(headers).encode() + b"\n", 0o600, f"{offset}")
            staged.show()
            self._books().settle(names)
        finally:
            staged.drop()

    def _place(self, key: bytes | None, offset: int, batch: dict[int, bytes | None]) -> tuple[bytes, Path]:
        """Name and path of an output. Deterministic, so that a repeated settle meets its own file again."""

        def taken(name: bytes) -> bool:
            owner = self._books().claimant(name)
            return owner not in {None, offset} or name in batch.values()

        for wish in (relative_name(key, offset), relative_name(None, offset)):
            name = distinct_name(wish, offset, taken)
            if (path := inside(self._output, name)) is not None:
                return name, path
        raise UnsafeError(
            f"the output of {STREAM.topic}/{STREAM.number}/{offset} has no place: clear the output folder"
        )
