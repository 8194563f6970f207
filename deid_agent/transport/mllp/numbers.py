"""The numbers of received messages: one sequence for each connection slot, without gaps, that survives a restart.

A number is used once its message is committed, because only then something may have been delivered under it. Numbers
of messages that went back to their sender are used again for the next ones. Every used number has an audit entry, so
a number without one means that an entry is missing.
"""

import asyncio
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deid_agent.config import MllpSettings
from deid_agent.model import ConfigurationError, UnsafeError

_DEFAULT_NAME: Final = "numbers"
_LINE = re.compile(rb"([0-9]{16}) ([0-9]{16})\n", re.ASCII)
_LINE_BYTES: Final = 34
_DAY_S: Final = 86_400
_RANDOM_BITS: Final = 37


@dataclass(frozen=True, slots=True)
class UsedNumbers:
    """The used numbers of one sequence: from ``first`` up to, and without, ``next``."""

    first: int
    next: int


def numbers_file(settings: MllpSettings) -> Path:
    """The file of the sequences of this listener."""
    return (settings.state or settings.dead_letters / _DEFAULT_NAME).absolute()


def random_start() -> int:
    """The first number of a new sequence: the day and 37 random bits, above the offsets of former releases.

    Two agents, or one that lost its file, must not give a number twice: readers drop outputs of an id that they have.
    Below 2^53, so that JavaScript shows it.
    """
    return (int(time.time()) // _DAY_S << _RANDOM_BITS + 1) + secrets.randbits(_RANDOM_BITS)


class SequenceNumbers:
    """The file of the sequences, owned by one process. ``start`` makes the first number of a new sequence.

    Raises ``ConfigurationError`` if the file cannot be used.
    """

    def __init__(self, path: Path, slots: int, start: Callable[[], int] = random_start) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"mllp.state: {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            known = read_numbers(path)
            self._ranges = [known.get(slot) or UsedNumbers(first := start(), first) for slot in range(slots)]
            for slot, held in enumerate(self._ranges):
                self._write(slot, held)
            os.fsync(self._file)
        except OSError as error:
            os.close(self._file)
            raise ConfigurationError(
                f"mllp.state: {path}: is used by another agent or cannot be used ({error.strerror}): name another one"
            ) from None
        self._unwritten: dict[int, UsedNumbers] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="numbers")

    def next(self, slot: int) -> int:
        """The first unused number of this slot."""
        return self._ranges[slot].next

    async def use(self, slot: int, number: int) -> None:
        """Mark the numbers up to this one as used, durably. Uses of several slots share one sync.

        Raises ``UnsafeError`` if that is not certain.
        """
        held = self._ranges[slot]
        if number < held.next:
            return
        self._ranges[slot] = self._unwritten[slot] = UsedNumbers(held.first, number + 1)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._flush)
        except OSError as error:
            raise UnsafeError(f"mllp.state cannot be written: {error.strerror}; nothing was delivered") from None

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._thread.shutdown()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _flush(self) -> None:
        while self._unwritten:
            self._write(*self._unwritten.popitem())
        os.fdatasync(self._file)

    def _write(self, slot: int, held: UsedNumbers) -> None:
        os.pwrite(self._file, b"%016d %016d\n" % (held.first, held.next), slot * _LINE_BYTES)


def read_numbers(path: Path) -> dict[int, UsedNumbers]:
    """The sequences in a file by slot. A damaged line is left out: its slot begins another sequence.

    Raises ``OSError`` if the file cannot be read.
    """
    data, found = path.read_bytes(), dict[int, UsedNumbers]()
    for slot in range(len(data) // _LINE_BYTES):
        match = _LINE.fullmatch(data, slot * _LINE_BYTES, (slot + 1) * _LINE_BYTES)
        if match and 0 < int(match[1]) <= int(match[2]):
            found[slot] = UsedNumbers(int(match[1]), int(match[2]))
    return found
