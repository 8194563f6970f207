"""The audit trail: one JSON line per record, durable before the record settles. Never a value.

A record that was audited and then not settled (a crash between the two) comes
again and is audited again: the last line of its coordinates is the one that counts.
"""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deid_agent.agent.ports import Coordinates, Outcome
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import AuditMended


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one record. ``remarks`` is a JSON array on one line, as the worker wrote it."""

    coordinates: Coordinates
    outcome: Outcome
    reason: str = ""
    where: str = ""
    stage: str = ""
    attempts: int = 1
    input_digest: str = ""
    output_digest: str = ""
    remarks: bytes = field(default=b"[]", repr=False)


class AuditLog(Protocol):
    """Where entries go."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Make the entries durable, in order; ``UnsafeError`` where that fails, and then nothing may settle."""

    async def close(self) -> None:
        """Close; safe to call twice."""


def line_of(entry: Entry, build: Mapping[str, str], at: float) -> bytes:
    """One line, its end included. ``build`` names versions and digests; ``at`` is seconds since 1970."""
    head: dict[str, object] = {
        "time": round(at, 3),
        "topic": entry.coordinates.topic,
        "partition": entry.coordinates.partition,
        "offset": entry.coordinates.offset,
        "outcome": entry.outcome,
    }
    for name in ("reason", "where", "stage", "input_digest", "output_digest"):
        if value := getattr(entry, name):
            head[name] = value
    if entry.attempts > 1:
        head["attempts"] = entry.attempts
    head["build"] = dict(build)
    remarks = entry.remarks if b"\n" not in entry.remarks else b"[]"
    return json.dumps(head).encode()[:-1] + b', "remarks": ' + remarks + b"}\n"


class AuditFile:
    """An audit trail in one file that only grows, owned by one process at a time (``flock``), mode 0600.

    An existing file is continued; a last line that a crash has torn is cut off first (its record was not
    settled). A file that this process made and wrote nothing into goes when it is closed: a start that failed
    leaves none. ``ConfigurationError`` where the file can't be opened, ``UnsafeError`` where a write fails:
    from then on every ``append`` fails, since what stands at the end is not known.
    """

    def __init__(
        self,
        path: Path,
        build: Mapping[str, str],
        telemetry: Telemetry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._build = dict(build)
        self._clock = clock
        # One thread: batches keep their order, and a close waits for a write that nobody awaits any more.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._broken = False
        self._path = path
        self._file: int | None
        self._file, self._ours = owned(path)
        try:
            if torn := mend(self._file):
                telemetry.emit(AuditMended(torn))
        except OSError as error:
            os.close(self._file)
            raise ConfigurationError(f"audit file {path} cannot be read: {error.strerror}") from None

    async def append(self, entries: Sequence[Entry]) -> None:
        """See ``AuditLog.append``. Encoding, writing and fsync happen in a thread, one batch after another."""
        if self._file is None:
            raise UnsafeError("the audit file is closed")
        if entries:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._write, tuple(entries))

    def _write(self, entries: Sequence[Entry]) -> None:
        if self._file is None or self._broken:
            raise UnsafeError("the audit file broke at an earlier write: start again")
        now = self._clock()
        data = memoryview(b"".join(line_of(entry, self._build, now) for entry in entries))
        self._broken = True
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise UnsafeError(f"the audit file cannot be written: {error.strerror}; nothing was settled") from None
        self._broken = False

    async def close(self) -> None:
        """Close the file and give up its lock."""
        if self._file is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
            self._thread.shutdown(wait=False)

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        with suppress(OSError):
            if self._ours and os.fstat(file).st_size == 0:
                self._path.unlink()  # before the lock goes: whoever opened it meanwhile sees that it has no name
        os.close(file)


def owned(path: Path) -> tuple[int, bool]:
    """The file at ``path``, open and locked, and whether it was made just now.

    Another agent may take its own empty file away between our opening and our locking: what was locked
    must still be what the path names, else its lines would go nowhere. Raises ``ConfigurationError``.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    while True:
        try:
            try:
                file, ours = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
            except FileExistsError:
                file, ours = os.open(path, flags | os.O_CREAT, 0o600), False
        except OSError as error:
            raise ConfigurationError(f"audit file {path}: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                return file, ours
        except OSError as error:
            os.close(file)
            raise ConfigurationError(f"audit file {path} is in use or cannot be read: {error.strerror}") from None
        os.close(file)


def mend(file: int) -> int:
    """Cut a last line without an end off an open file of lines; how many bytes went."""
    size = os.fstat(file).st_size
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        at = os.pread(file, end - begin, begin).rfind(b"\n")
        if at >= 0:
            end = begin + at + 1
            break
        end = begin
    if end != size:
        os.ftruncate(file, end)
        os.fsync(file)
    return size - end


class NoAudit:
    """Keeps nothing: for tests and for commands that write remarks elsewhere."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Forget the entries."""

    async def close(self) -> None:
        """Nothing to close."""
