"""The typed events of the agent. Fields are codes, counts, durations and coordinates; nothing else is logged."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from deid_agent.telemetry import metrics
from deid_agent.telemetry.metrics import Metric, Sample

_OUTCOMES = ("published", "suppressed", "dead_lettered")


@dataclass(frozen=True, slots=True)
class Event:
    """Base class. The class name and the fields form the log line; ``samples`` are the changes of metrics."""

    level: ClassVar[int] = logging.INFO
    repeat_s: ClassVar[float] = 0.0
    """An event with the same ``repeat_key`` within so many seconds is logged at debug level only."""

    def repeat_key(self) -> tuple[str, ...]:
        """What makes two events the same, apart from their class."""
        return ()

    def samples(self) -> Iterable[Sample]:
        """The changes of metrics that this event causes."""
        return ()

    def removed(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        """The gauges that have no value from this event on."""
        return ()


@dataclass(frozen=True, slots=True)
class Built(Event):
    """The agent is about to start: the version, its core, the digests of rules, models, policy, site and leak bound."""

    version: str
    rules: str
    models: str
    policy: str
    core: str
    site: str = ""
    bound: str = ""

    def samples(self) -> Iterable[Sample]:
        labels = (self.version, self.rules, self.models, self.policy, self.core, self.site, self.bound)
        yield Sample(metrics.BUILD, 1, labels)


@dataclass(frozen=True, slots=True)
class ProjectOpened(Event):
    """A project of this agent: the digest of its policy, and its key by id and generation."""

    project: str
    policy: str
    key: str
    generation: int

    def samples(self) -> Iterable[Sample]:
        return (Sample(metrics.PROJECT, 1, (self.project, self.policy, self.key, str(self.generation))),)


@dataclass(frozen=True, slots=True)
class FeedDiffers(Event):
    """The last ``windows`` windows of a feed differ from the sample of its leak bound, which does not cover it.

    ``features`` are the rates that differ, the clearest first; ``psi`` is the greatest of their stability indices.
    """

    level: ClassVar[int] = logging.WARNING
    topic: str
    template: str
    documents: int
    windows: int
    features: tuple[str, ...]
    psi: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.FEED_DIFFERS, 1, (self.topic, self.template))


@dataclass(frozen=True, slots=True)
class FeedAsSampled(Event):
    """A window of a feed is like the sample of its leak bound, or the first one that is not."""

    topic: str
    template: str
    documents: int
    features: tuple[str, ...] = ()

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.FEED_DIFFERS, 0, (self.topic, self.template))


@dataclass(frozen=True, slots=True)
class DriftNotWritten(Event):
    """The file of ``drift.file`` could not be written; the next interval tries again."""

    level: ClassVar[int] = logging.WARNING
    why: str


@dataclass(frozen=True, slots=True)
class Listening(Event):
    """The HTTP server listens on this address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LedgerNotWritten(Event):
    """The file of ``audit.unexamined`` could not be written; the next interval tries again."""

    level: ClassVar[int] = logging.WARNING
    why: str


@dataclass(frozen=True, slots=True)
class ConsoleDenied(Event):
    """The console refused a request. ``why`` is a code of the console; each code is logged once a minute at most."""

    level: ClassVar[int] = logging.WARNING
    why: str


@dataclass(frozen=True, slots=True)
class ConsoleReplayed(Event):
    """An operator replayed dead letters in the console."""

    level: ClassVar[int] = logging.WARNING
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class Uncaught(Event):
    """An exception that no handler caught. ``error`` holds its class and line, never its text."""

    level: ClassVar[int] = logging.ERROR
    source: str
    error: str


@dataclass(frozen=True, slots=True)
class AgentStarted(Event):
    """The workers are running and the transport has started."""

    version: str
    workers: int


@dataclass(frozen=True, slots=True)
class AgentStopped(Event):
    """The agent has stopped, by itself or on request. ``cause`` is a code."""

    cause: str
    unfinished: int


@dataclass(frozen=True, slots=True)
class AgentFailed(Event):
    """The agent stops with an error. ``error`` is its class, and its source line if the error was not expected."""

    level: ClassVar[int] = logging.ERROR
    error: str


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(Event):
    """Partitions were assigned to this agent."""

    streams: tuple[str, ...]

    def samples(self) -> Iterable[Sample]:
        for topic in sorted({_split_stream(stream)[0] for stream in self.streams}):
            yield from (Sample(metrics.MESSAGES, 0, (topic, outcome)) for outcome in _OUTCOMES)


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(Event):
    """Partitions were revoked. The next owner processes their ``unfinished`` records again."""

    streams: tuple[str, ...]
    unfinished: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.REBALANCES)

    def removed(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        for stream in self.streams:
            yield from ((metric, _split_stream(stream)) for metric in (metrics.LAG, metrics.INFLIGHT))


@dataclass(frozen=True, slots=True)
class RecordProcessed(Event):
    """A worker has finished a record. Logged at debug level. ``trace`` is the trace id from the record's headers."""

    level: ClassVar[int] = logging.DEBUG
    coordinates: str
    seconds: float
    attempts: int
    timings: tuple[tuple[str, float], ...] = ()
    found: tuple[tuple[str, int], ...] = ()
    trace: str = ""
    patients: tuple[tuple[str, int], ...] = ()

    def samples(self) -> Iterable[Sample]:
        return [
            Sample(metrics.PROCESS_SECONDS, self.seconds),
            *[Sample(metrics.STAGE_SECONDS, seconds, (stage,)) for stage, seconds in self.timings],
            *[Sample(metrics.PHI, count, (kind,)) for kind, count in self.found],
            *[Sample(metrics.PATIENTS, count, (listing,)) for listing, count in self.patients],
        ]


@dataclass(frozen=True, slots=True)
class RecordFinished(Event):
    """The outcome of a record is durable, ``seconds`` after the worker finished it. Logged at debug level."""

    level: ClassVar[int] = logging.DEBUG
    coordinates: str
    outcome: str
    seconds: float
    trace: str = ""

    def samples(self) -> Iterable[Sample]:
        return (Sample(metrics.STAGE_SECONDS, self.seconds, ("commit",)),)


@dataclass(frozen=True, slots=True)
class BatchCommitted(Event):
    """A batch was committed and the position of its partition advanced."""

    level: ClassVar[int] = logging.DEBUG
    topic: str
    partition: int
    position: int
    published: int
    suppressed: int
    dead_lettered: int
    seconds: float
    project: str = ""
    refused: int = 0

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.COMMIT_SECONDS, self.seconds)
        for outcome in (*_OUTCOMES, "refused"):
            if count := getattr(self, outcome):
                yield Sample(metrics.MESSAGES, count, (self.topic, outcome))
                if self.project:
                    yield Sample(metrics.PROJECT_MESSAGES, count, (self.project, outcome))


@dataclass(frozen=True, slots=True)
class RecordDeadLettered(Event):
    """A record was refused and written to the dead letters."""

    level: ClassVar[int] = logging.WARNING
    coordinates: str
    code: str
    stage: str
    where: str
    fault: str
    attempts: int
    trace: str = ""

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.DEAD_LETTERS, 1, (self.code,))


@dataclass(frozen=True, slots=True)
class RecordRefused(RecordDeadLettered):
    """A record was refused and its sender was informed. Nothing was kept of it."""

    repeat_s: ClassVar[float] = 10.0

    def repeat_key(self) -> tuple[str, ...]:
        return (self.code,)

    def samples(self) -> Iterable[Sample]:
        return ()


@dataclass(frozen=True, slots=True)
class RecordStale(Event):
    """A record was skipped because its partition is no longer assigned to this agent; the owner processes it."""

    level: ClassVar[int] = logging.WARNING
    coordinates: str


@dataclass(frozen=True, slots=True)
class Retrying(Event):
    """An external system failed and the operation is retried. Nothing was committed and nothing is lost.

    ``why`` names the system and the remedy.
    """

    level: ClassVar[int] = logging.WARNING
    repeat_s: ClassVar[float] = 60.0
    operation: str
    stream: str
    attempt: int
    delay_s: float
    error: str
    why: str

    def repeat_key(self) -> tuple[str, ...]:
        return (self.operation, self.error)


@dataclass(frozen=True, slots=True)
class WorkerRestarted(Event):
    """A worker died or passed its deadline. ``coordinates`` name the record that it was processing."""

    level: ClassVar[int] = logging.WARNING
    worker: int
    cause: str
    coordinates: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.RESTARTS)


@dataclass(frozen=True, slots=True)
class Gauged(Event):
    """The state of one partition, emitted periodically. ``lag`` is None if it is unknown."""

    level: ClassVar[int] = logging.DEBUG
    topic: str
    partition: int
    inflight: int
    lag: int | None

    def samples(self) -> Iterable[Sample]:
        labels = (self.topic, str(self.partition))
        yield Sample(metrics.INFLIGHT, self.inflight, labels)
        if self.lag is not None:
            yield Sample(metrics.LAG, self.lag, labels)

    def removed(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        if self.lag is None:
            yield metrics.LAG, (self.topic, str(self.partition))


@dataclass(frozen=True, slots=True)
class HealthReported(Event):
    """The state of the whole agent, emitted periodically."""

    level: ClassVar[int] = logging.DEBUG
    ready: bool
    queued: int
    workers: int
    wanted: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.READY, float(self.ready))
        yield Sample(metrics.QUEUE, self.queued)
        yield Sample(metrics.WORKERS, self.workers, ("up",))
        yield Sample(metrics.WORKERS, self.wanted, ("wanted",))


@dataclass(frozen=True, slots=True)
class AuditRepaired(Event):
    """An incomplete line, left by a crash, was removed from a trail. Its records were never committed."""

    level: ClassVar[int] = logging.WARNING
    bytes: int
    trail: str = "audit"


@dataclass(frozen=True, slots=True)
class AuditUnsigned(Event):
    """A trail was closed with this many lines that no checkpoint signs. The next start signs them."""

    level: ClassVar[int] = logging.ERROR
    lines: int
    trail: str = "audit"


@dataclass(frozen=True, slots=True)
class AuditWitnessFailed(Event):
    """A witness (``file`` or ``http``) does not accept the signed head. No record waits for it; it is tried again."""

    level: ClassVar[int] = logging.WARNING
    place: str
    error: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.WITNESS, 1.0, (self.place,))


@dataclass(frozen=True, slots=True)
class AuditWitnessed(Event):
    """A witness has the newest signed head, for the first time or after a failure."""

    place: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.WITNESS, 0.0, (self.place,))


def _split_stream(stream: str) -> tuple[str, str]:
    """Split ``topic/partition`` into its two labels."""
    topic, _, number = stream.rpartition("/")
    return topic, number
