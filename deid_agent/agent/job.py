"""What travels between the agent and the code that de-identifies.

The agent knows no HL7 and no PHI: it hands a ``Job`` to a plain callable and gets
bytes and codes back. A ``Factory`` is picklable (a module-level function or a frozen
dataclass with ``__call__``); each worker calls it once, so rules and models load once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from deid_agent.agent.ports import Headers, Partition, Record
from deid_agent.errors import MessageError, Reason


@dataclass(frozen=True, slots=True)
class Job:
    """One record without its position. A ``tombstone`` has no payload: only its key is to be de-identified."""

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Processed:
    """A record free of PHI, key and headers included.

    ``remarks`` is a JSON array on one line, without an original value; the digests are keyed
    (an unkeyed digest of an identifier can be searched for). ``found`` counts replaced values by
    PHI type, ``timings`` are seconds by stage; both go to the metrics.
    """

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    remarks: bytes = field(default=b"[]", repr=False)
    input_digest: str = ""
    output_digest: str = ""
    found: tuple[tuple[str, int], ...] = ()
    timings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that goes to the dead letters. ``where`` is a path or an offset, ``fault`` a class name; no value."""

    reason: Reason
    where: str = ""
    stage: str = "process"
    fault: str = ""
    input_digest: str = ""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A record that policy says to leave out: it settles without an output."""

    input_digest: str = ""


Result = Processed | Refused | Suppressed
Process = Callable[[Job], Result]
Factory = Callable[[], Process]


@runtime_checkable
class Together(Protocol):
    """A ``Process`` that does several jobs at once with less work than one by one."""

    def __call__(self, job: Job) -> Result:
        """One job, as of any ``Process``."""

    def together(self, jobs: Sequence[Job]) -> Sequence[tuple[Result, float]]:
        """The result of each job as ``attempt`` gives it, and the seconds that went into it."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A result with what it took: ``seconds`` of work in the last of ``attempts``."""

    result: Result
    attempts: int = 1
    seconds: float = 0.0


Done = Callable[[Record, Completed], None]


class Executor(Protocol):
    """Runs jobs away from the event loop. All methods are called on one loop.

    Guarantees that ``done`` is called once for each submitted record that is not forgotten, whatever the
    callable does. Records begin in the order of their submission and may finish in any: order per partition
    and key is kept by the ledger, which alone decides what leaves next.
    """

    async def start(self) -> None:
        """Bring the workers up; ``ConfigurationError`` where the factory can't build the callable."""

    async def serve(self) -> None:
        """Run until cancelled or stopped; ``UnsafeError`` where a worker can't be brought back."""

    def submit(self, record: Record, done: Done) -> None:
        """Queue a record; ``done`` is called later, from the loop."""

    def recall(self, stream: Partition) -> int | None:
        """Drop what is queued of this partition and has not begun; the lowest offset dropped, None where none was."""

    def forget(self, stream: Partition) -> None:
        """Drop what is queued of this partition; its ``done`` is not called. A job that has begun may still be done."""

    @property
    def up(self) -> int:
        """How many workers are ready for work."""

    @property
    def size(self) -> int:
        """How many workers there should be."""

    @property
    def waiting(self) -> int:
        """How many records wait for a worker; those at work are left out."""

    async def stop(self) -> None:
        """End the workers now, whatever they do; safe to call twice."""


def job_for(record: Record) -> Job:
    """The job that a record makes."""
    return Job(record.payload, record.key, record.headers, record.tombstone)


def attempt(process: Process, job: Job) -> Result:
    """The callable's result; a ``MessageError`` becomes its reason, whatever else it raises ``INTERNAL``.

    See ``refused``.
    """
    try:
        result = process(job)
    except Exception as error:  # noqa: BLE001 - the boundary: no exception of a message may end a worker
        return refused(error)
    if isinstance(result, Processed | Refused | Suppressed):
        return result
    return Refused(Reason.INTERNAL, fault="NoResult")


def refused(error: Exception) -> Refused:
    """What becomes of a message that met this exception.

    The text of an unexpected exception often quotes its input (``KeyError``, ``UnicodeDecodeError``), so
    none of it is kept.
    """
    if isinstance(error, MessageError):
        return Refused(error.reason, error.where)
    return Refused(Reason.INTERNAL, fault=type(error).__name__)
