"""The interface between the agent and the code that de-identifies.

The agent knows no HL7 and no PHI: it passes a ``Job`` to a plain callable and receives bytes and codes. A ``Factory``
is picklable (a module-level function or a frozen dataclass with ``__call__``). Each worker calls it once, so rules and
models are loaded once. A ``QueuedJob`` is a record on its way through the executor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from deid_agent.agent.ports import Headers, Partition, Record, Request
from deid_agent.model import ConfigurationError, MessageError, Reason, TransientError

DEFAULT_PROJECT: Final = "default"
"""The project of the settings at the top level, with the bytes of the key file as its key."""

MEDIA_HEADER: Final = "content-type"
"""The header of an output with its media type, if the worker decides it."""


class Task(StrEnum):
    """The kind of a payload. The words of ``NoteOption`` may follow, after spaces."""

    MESSAGE = ""
    NOTE = "note"
    """A note in JSON, as a line of ``text --jsonl``."""

    PLAIN_NOTE = "plain-note"
    PLAIN_TO_JSON = "plain-to-json"
    """A plain note in, its JSON form out."""

    OPERATION = "operation"
    """The input of ``$de-identify``: a FHIR resource, or Parameters around one."""

    PSEUDONYMIZE = "pseudonymize"
    """The input of ``$pseudonymize``, in the same forms."""

    PSUEDONYMIZE = "psuedonymize"
    """The same as DARTS spells it; the output parameter is spelt alike."""

    ANONYMIZE = "anonymize"
    """The input of ``$anonymize``: a Bundle, or Parameters around one."""

    DOCUMENT = "document"
    """A document without a message. Its media type follows; the output has its own in the header ``content-type``."""

    RESOURCE = "resource"
    """The input of ``$de-identify`` in a job: the output is the resource alone, on one line of a file."""

    XML_RESOURCE = "xml-resource"
    """A FHIR resource in XML."""

    LINE = "line"
    """A line of a file of FHIR resources; the second word is their type."""


class NoteOption(StrEnum):
    """Options of notes."""

    SPANS_ONLY = "spans-only"
    UTF16 = "utf16"
    """Offsets count units of UTF-16, not characters."""


class JobPosition(NamedTuple):
    """The position and the time of a record, of which the id and the time of its output are made."""

    partition: int
    offset: int
    timestamp_ms: int | None = None
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A record for a worker. A ``tombstone`` has no payload: only its key is de-identified.

    ``source`` is the topic, which decides about an envelope. ``project`` decides about key and policy; it is empty in
    an agent without projects. ``task`` is a ``Task`` with its options. Only the Provenance of an output depends on the
    ``position``. Records with one ``code_key`` have common link codes; without it those of each record are its own.
    """

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    tombstone: bool = False
    source: str = ""
    project: str = ""
    task: str = ""
    position: JobPosition | None = None
    code_key: bytes = field(default=b"", repr=False)


class DocumentCounts(NamedTuple):
    """The counts of a document: no text. ``template`` is its type, ``patient`` a keyed digest of its patient.

    ``unknown`` of the ``read`` words are in no list. ``types`` counts findings by PHI type, ``confidence`` by class.
    """

    source: str
    template: str
    patient: str
    words: int
    read: int
    unknown: int
    types: tuple[tuple[str, int], ...] = ()
    confidence: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Processed:
    """A record free of PHI, including its key and headers.

    ``remarks`` is a JSON array on one line and contains no original value. ``input_digest`` is keyed, because an
    unkeyed digest of an identifier can be found by trying all identifiers; ``output_digest`` is the SHA-256 of the
    payload, so that anyone who has the output can compare it. ``found`` counts replaced values by PHI type and
    ``timings`` are seconds by stage; both go to the metrics. ``unexamined`` counts the values that left unread, by
    format, path and reason, if the agent keeps a ledger of them. ``patients`` counts patients by their
    listing in the scope table. ``provenance`` is a FHIR Provenance for a topic of its own, if the project has one.
    ``sealed`` are the members ``codes`` and ``sealed`` of the line in the crosswalk, if the project has one and the
    record has link codes: nobody in the agent can open them. ``document`` are the counts that are compared with the
    sample of a leak bound, if the project has one.
    """

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    remarks: bytes = field(default=b"[]", repr=False)
    input_digest: str = ""
    output_digest: str = ""
    found: tuple[tuple[str, int], ...] = ()
    timings: tuple[tuple[str, float], ...] = ()
    unexamined: tuple[tuple[str, str, str, int], ...] = ()
    patients: tuple[tuple[str, int], ...] = ()
    provenance: bytes = field(default=b"", repr=False)
    sealed: bytes = field(default=b"", repr=False)
    document: DocumentCounts | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that goes to the dead letters.

    ``where`` is a path or an offset and ``fault`` the name of a class; neither is ever a value of the message.
    """

    reason: Reason
    where: str = ""
    stage: str = "process"
    fault: str = ""
    input_digest: str = ""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A record that the policy leaves out: it is committed without an output."""

    input_digest: str = ""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A record that cannot be processed now, because an external system does not answer: it is tried again.

    ``why`` names the system and the remedy.
    """

    why: str
    input_digest: str = ""


Result = Processed | Refused | Suppressed | Deferred
Process = Callable[[Job], Result]
Factory = Callable[[], Process]


@runtime_checkable
class BatchProcess(Protocol):
    """A ``Process`` that handles several jobs at once with less work than one by one."""

    def __call__(self, job: Job) -> Result:
        """Process one job."""

    def process_batch(self, jobs: Sequence[Job]) -> Sequence[tuple[Result, float]]:
        """Return the result of each job, equal to that of ``attempt``, and the seconds spent on it."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A result, the number of ``attempts`` it took, and the ``seconds`` of work in the last attempt."""

    result: Result
    attempts: int = 1
    seconds: float = 0.0


ResultCallback = Callable[[Record, Completed], None]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How long a job and a start may take, and how often a job is tried before it is refused as poison.

    After ``slow_after_s`` the jobs behind a slow one are also given to other workers. They may be done twice then, so
    it is above the usual time of a job.
    """

    deadline_s: float = 60.0
    attempts: int = 2
    start_timeout_s: float = 120.0
    slow_after_s: float = 0.5

    def __post_init__(self) -> None:
        if min(self.deadline_s, self.start_timeout_s, self.slow_after_s) <= 0 or self.attempts < 1:
            raise ConfigurationError("workers: deadline and start timeout must be above 0, attempts at least 1")


@dataclass(slots=True)
class QueuedJob:
    """A record that waits for a result: in the queue, at a worker, or at both if that worker is slow.

    ``parked_at`` is the number of the worker in whose socket it waits behind a slow job. The first result counts. An
    ``isolated`` job was in a batch when its worker died, or was blamed for a death: it goes to a worker that has
    nothing else, so that a second death can be blamed on it.
    """

    record: Record = field(repr=False)
    done: ResultCallback
    failures: int = 0
    parked_at: int | None = None
    isolated: bool = False
    discarded: bool = False
    finished: bool = False
    project: str = ""

    def finish(self, completed: Completed) -> None:
        """Report the result; only the first call counts."""
        if not self.finished:
            self.finished = True
            self.done(self.record, completed)


class Executor(Protocol):
    """Runs jobs outside the event loop. All methods are called from one loop.

    ``done`` is called once for each submitted record that is not forgotten, whatever the callable does. Records begin
    in the order of submission and may finish in any order. The ledger alone keeps order per partition and key: it
    decides which record leaves next.
    """

    async def start(self) -> None:
        """Start the workers. Raises ``ConfigurationError`` if the factory cannot build the callable."""

    async def serve(self) -> None:
        """Run until cancelled or stopped. Raises ``UnsafeError`` if a worker cannot be restarted."""

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        """Queue a record of a project. ``done`` is called later, from the loop."""

    def recall(self, stream: Partition) -> int | None:
        """Drop the queued records of this partition that have not begun; return the lowest offset dropped, or None."""

    def forget(self, stream: Partition) -> None:
        """Drop the queued records of this partition without calling ``done``. Jobs that have begun may still finish."""

    @property
    def up(self) -> int:
        """The number of workers that are ready for jobs."""

    @property
    def size(self) -> int:
        """The configured number of workers."""

    @property
    def waiting(self) -> int:
        """The number of records that wait for a worker, without those being processed."""

    async def stop(self) -> None:
        """End the workers now, even if they are busy. Safe to call twice."""


_NO_REQUEST: Final = Request()


def job_for(record: Record, project: str = "") -> Job:
    """The job for a record of a project."""
    at, request = record.coordinates, record.request or _NO_REQUEST
    return Job(
        record.payload,
        record.key,
        record.headers,
        record.tombstone,
        at.topic,
        project,
        request.task,
        JobPosition(at.partition, at.offset, record.timestamp_ms, record.topic_id),
        request.code_key,
    )


def attempt(process: Process, job: Job) -> Result:
    """Run the callable and return its result; an exception becomes one, see ``result_from_error``."""
    try:
        result = process(job)
    except Exception as error:  # noqa: BLE001 - the boundary: no exception of a message may end a worker
        return result_from_error(error)
    if isinstance(result, Result):
        return result
    return Refused(Reason.INTERNAL, fault="NoResult")


def result_from_error(error: Exception) -> Refused | Deferred:
    """The result of a message whose processing raised this exception.

    A ``TransientError`` is not the fault of the message, which is deferred. The reason of a ``MessageError`` is kept.
    Any other exception becomes ``INTERNAL`` with its class name only: its text often quotes the input (``KeyError``,
    ``UnicodeDecodeError``).
    """
    if isinstance(error, MessageError):
        return Refused(error.reason, error.where)
    if isinstance(error, TransientError):
        return Deferred(str(error))
    return Refused(Reason.INTERNAL, fault=type(error).__name__)
