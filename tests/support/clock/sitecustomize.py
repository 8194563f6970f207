"""Runs at the start of an agent and of its workers: shifts the wall clock by the seconds in the file ``SHIFTED_CLOCK``.

A test changes the file while the agent runs, as an operator or a time service sets the clock of a host. Monotonic time
stays as it is.
"""

import mmap
import os
import struct
import time
from pathlib import Path


def _shift_clock(file: Path) -> None:
    with file.open("rb") as opened:
        shared = mmap.mmap(opened.fileno(), 8, prot=mmap.PROT_READ)
    seconds, nanoseconds = time.time, time.time_ns

    def shift() -> int:
        return int(struct.unpack("q", shared[:8])[0])

    time.time = lambda: seconds() + shift()
    time.time_ns = lambda: nanoseconds() + shift() * 1_000_000_000


if found := os.environ.get("SHIFTED_CLOCK"):
    _shift_clock(Path(found))
