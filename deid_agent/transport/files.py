"""A folder as a source: every file is a record, outputs come to stand under the same relative name."""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from deid_agent.agent.letterhead import PLAIN, Keeper
from deid_agent.agent.ports import Coordinates, Listener, Partition, Record, Settled
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import FilesSkipped, FileUnreadable
from deid_agent.transport.folder_letters import stage_letter
from deid_agent.transport.folders import ChangedError, Look, Quiet, Skipped, Staged, check_places, read, walk
from deid_agent.transport.journal import Journal, Version
from deid_agent.transport.names import distinct_name, inside, relative_name
from deid_agent.transport.replayed import record_of

NOT_TAKEN: Final = "not-taken.jsonl"
STREAM: Final = Partition("files", 0)
_POLL_BYTES: Final = 16 << 20
T = TypeVar("T")


class DirectoryTransport:
    """Files of ``input`` in, files of ``output`` out, refusals to ``dead_letters``, progress in ``state``.

    A record's key is the file's relative name, its topic ``files``, its offset its place in the order in which
    files were first seen; it stays the same over restarts. Outputs are written whole and durable before the
    journal says so; after a crash between the two the same output is written again under the same name.
    A file whose content is another than the one that settled is a new record, with an output of its own, and so is
    one that a replay put back (``transport.replayed``); ``keeper`` makes every dead letter.

    Regular files only: links and the like are counted and named in ``not-taken.jsonl`` among the dead letters,
    hidden files passed over. Names may be PHI: only that file and the letters hold them, no message does.

    With ``watch`` a look is taken every ``interval_s``, and a file taken once its size and times have stood still
    for ``settle_s`` of ``clock``: a writer that pauses longer gives two records, the second of them whole.
    ``unreadable`` names files that could not be read; they are not settled and come again after a restart.
    ``ConfigurationError`` where the folders cannot serve (``folders.check_places``).
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
        settle_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        max_file_bytes: int = 256 << 20,
        keeper: Keeper = PLAIN,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._input, self._output, self._letters, self._state = (
            path.absolute() for path in (input, output, dead_letters, state)
        )
        self._watch = watch
        self._interval_s = interval_s
        self._max_file_bytes = max_file_bytes
        self._keeper = keeper
        self._telemetry = telemetry or Telemetry()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._journal: Journal | None = None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._clock = clock
        self._quiet = Quiet(settle_s, clock)
        self._known: dict[bytes, Version] = {}
        self._taken: dict[int, Version] = {}
        self._last = -1
        self._letter_count = 0
        self._skipped: dict[bytes, Skipped] = {}
        self._unreadable: dict[bytes, tuple[Coordinates, str]] = {}
        self._told: list[dict[str, str]] | None = None
        self._looked_at = 0.0
        self._paused = False
        self._woken = asyncio.Event()
        self._stopped = False

    def __repr__(self) -> str:
        return f"DirectoryTransport({self._input} -> {self._output}, watch={self._watch})"

    @property
    def unreadable(self) -> tuple[Coordinates, ...]:
        """Files that could not be read, by coordinates."""
        return tuple(coordinates for coordinates, _ in self._unreadable.values())

    @property
    def skipped(self) -> int:
        """Links, special files and unreadable folders that the last look passed over."""
        return len(self._skipped)

    @property
    def letters(self) -> int:
        """Files that were refused since the start."""
        return self._letter_count

    @property
    def exhausted(self) -> bool:
        """True where every file has been handed out; never while watching."""
        return not self._watch and self._journal is not None and not self._waiting

    async def start(self, listener: Listener) -> None:
        """Look at the folders, open the journal, take the first look at the files."""
        await self._apart(self._open)
        self._looked_at = self._clock()
        await listener.assigned((STREAM,))

    async def poll(self, limit: int) -> Sequence[Record]:
        """Up to ``limit`` files, fewer where they are large."""
        if self._watch and self._clock() >= self._looked_at + self._interval_s:
            self._looked_at = self._clock()
            await self._apart(self._look)
        if self._waiting and not self._paused:
            return await self._apart(lambda: self._read(limit))
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
        if stream != STREAM or not offsets or max(offsets) + 1 != position or not offsets <= self._taken.keys():
            raise UnsafeError(
                f"{STREAM.topic}/{STREAM.number}: a batch up to {position} holds files that were not taken"
            )
        await self._apart(lambda: self._settle(batch))
        for offset in offsets:
            del self._taken[offset]
        self._letter_count += sum(item.letter is not None for item in batch)

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
        check_places(self._input, self._output, self._letters, self._state)
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
        """Queue files that are new or have changed; while watching, only those that stood still long enough."""
        self._skipped = {}
        looks = dict(walk(self._input, self._skipped.__setitem__))
        still = self._quiet.still(looks) if self._watch else looks
        fresh = sorted(name for name in still if self._is_new(name, looks[name]))
        for name in fresh:
            self._known[name] = Version(looks[name], "")
        for offset, name in self._books().offsets(fresh, above=self._last):
            self._waiting.append((offset, name))
            self._last = offset
        self._tell()

    def _is_new(self, name: bytes, look: Look) -> bool:
        """True where the file holds something else than what was taken under its name last."""
        known = self._known.get(name) or self._books().settled(name)
        if known is None:
            return True
        self._known[name] = known
        if known.look == look or any(name == waiting for _, waiting in self._waiting):
            return False
        try:
            payload, look = read(self._input / os.fsdecode(name), self._max_file_bytes)
        except OSError:
            return True
        if self._books().digest(payload) != known.digest:
            return True
        self._known[name] = Version(look, known.digest)
        return False

    def _read(self, limit: int) -> list[Record]:
        records: list[Record] = []
        size = 0
        while self._waiting and len(records) < limit and size < _POLL_BYTES:
            offset, name = self._waiting.popleft()
            coordinates = Coordinates(STREAM.topic, STREAM.number, offset)
            self._unreadable.pop(name, None)
            try:
                payload, look = read(self._input / os.fsdecode(name), self._max_file_bytes)
                if self._watch and look != self._known[name].look:
                    raise ChangedError("changed while it waited")
            except OSError as error:
                if self._watch and isinstance(error, ChangedError):
                    del self._known[name]  # it must stand still again, and is then a record with another offset
                    continue
                why = error.strerror or str(error)
                self._unreadable[name] = coordinates, why
                self._telemetry.emit(FileUnreadable(str(coordinates), why))
                continue
            self._known[name] = self._taken[offset] = Version(look, self._books().digest(payload))
            size += len(payload)
            records.append(record_of(coordinates, name, payload, look[1] // 1_000_000))
        self._tell()
        return records

    def _tell(self) -> None:
        """Count in the log what is not taken, and name it beside the dead letters, whenever that changes."""
        lines = [{"file": os.fsdecode(name), "why": kind.value} for name, kind in sorted(self._skipped.items())]
        if self._skipped and lines != [line for line in self._told or () if "at" not in line]:
            count = Counter(self._skipped.values())
            self._telemetry.emit(FilesSkipped(count[Skipped.FOLDER], count[Skipped.LINK], count[Skipped.SPECIAL]))
        for name, (coordinates, why) in sorted(self._unreadable.items()):
            lines.append({"file": os.fsdecode(name), "why": why, "at": str(coordinates)})
        if lines != self._told:
            goal = self._letters / NOT_TAKEN
            staged = Staged()
            try:
                if lines:
                    staged.add(goal, b"".join(json.dumps(line).encode() + b"\n" for line in lines), 0o600, NOT_TAKEN)
                    staged.show()
                else:
                    goal.unlink(missing_ok=True)
            finally:
                staged.drop()
            self._told = lines

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
                    stage_letter(staged, self._letters, self._keeper, item.record, item.letter)
            staged.show()
            self._books().settle(names, self._taken)
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
