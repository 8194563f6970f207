"""Callables for worker processes: plain, dying, hanging, failing. Factories are picklable and live at module level."""

import gc
import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent.job import Job, Process, Processed, Refused, Result, Suppressed, attempt
from deid_agent.model.errors import ConfigurationError, MessageError, Reason


def work(job: Job) -> Result:
    """A job whose payload selects its behavior."""
    match job.payload.split(b" ")[0]:
        case b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"hang":
            threading.Event().wait()
        case b"slow":
            threading.Event().wait(0.7)
        case b"raise":
            raise KeyError(job.payload.decode())
        case b"refuse":
            raise MessageError(Reason.MALFORMED, "PID-3")
        case b"leak":
            return Refused(Reason.LEAK, "OBX-5", "guard", input_digest="d1")
        case b"leave":
            return Suppressed("d2")
        case b"nothing":
            return None  # type: ignore[return-value]
        case b"pid":
            return Processed(str(os.getpid()).encode())
        case b"print":
            os.write(1, job.payload)
            os.write(2, job.payload)
    found, timings = (("PATIENT", 2),), (("parse", 0.5),)
    remarks, unread = b'[{"path": "PID-5"}]', (("hl7v2", "OBX-5", "code", 3),)
    return Processed(job.payload.upper(), job.key, job.headers, remarks, "in", "out", found, timings, unread)


def thread_variables() -> Process:
    """Reports the BLAS thread variables of the worker."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    return lambda job: Processed(json.dumps([os.environ.get(name) for name in names]).encode())


def loaded_lists() -> Process:
    """Loads lists, and reports whether garbage collection still walks them."""
    lists: list[list[int]] = [[] for _ in range(1000)]
    return lambda job: Processed(str(any(each is lists for each in gc.get_objects())).encode())


def plain() -> Process:
    return work


@dataclass(frozen=True)
class Once:
    """Dies at ``die`` jobs only while the folder does not hold a mark: a transient crash."""

    folder: Path

    def __call__(self) -> Process:
        return self.run

    def run(self, job: Job) -> Result:
        mark = self.folder / "died"
        if job.payload.startswith(b"die") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Processed(job.payload.upper())


@dataclass(frozen=True)
class Logged:
    """Appends every payload it is given to a file, then does as ``work`` does."""

    path: Path

    def __call__(self) -> Process:
        return self.run

    def run(self, job: Job) -> Result:
        with self.path.open("ab") as file:
            file.write(job.payload + b"\n")
        return work(job)


@dataclass(frozen=True)
class Grouped:
    """Builds a callable that processes batches, each job as ``work`` does.

    Appends one line to a file for each job alone and for each batch that begins. ``once`` kills the first batch.
    """

    path: Path

    def __call__(self) -> "Grouping":
        return Grouping(self.path)


@dataclass(frozen=True)
class Grouping:
    path: Path

    def __call__(self, job: Job) -> Result:
        self._log([job])
        return work(job)

    def process_batch(self, jobs: Sequence[Job]) -> list[tuple[Result, float]]:
        first = not self.path.exists()
        self._log(jobs)
        if first and any(job.payload.startswith(b"once") for job in jobs):
            os.kill(os.getpid(), signal.SIGKILL)
        return [(attempt(work, job), 0.001) for job in jobs]

    def _log(self, jobs: Sequence[Job]) -> None:
        with self.path.open("ab") as file:
            file.write(b"|".join(job.payload[:20] for job in jobs) + b"\n")


def bad_rules() -> Process:
    raise ConfigurationError("rules/patterns/x.toml: the pattern does not\ncompile; mend it")


def broken() -> Process:
    raise KeyError("secret text")


@dataclass(frozen=True)
class FailsLater:
    """Builds once, then never again."""

    folder: Path

    def __call__(self) -> Process:
        mark = self.folder / "built"
        if mark.exists():
            raise ConfigurationError("the rules are gone")
        mark.touch()
        return work


@dataclass(frozen=True)
class DiesFirst:
    """Its first process dies before it is ready."""

    folder: Path

    def __call__(self) -> Process:
        mark = self.folder / "started"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return work


def exits() -> Process:
    os._exit(3)
