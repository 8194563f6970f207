"""The events of the agent. A field is a code, a count, a duration or a coordinate; nothing else is ever logged."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from deid_agent.telemetry import metrics
from deid_agent.telemetry.metrics import Metric, Sample

_OUTCOMES = ("published", "suppressed", "dead_lettered")


@dataclass(frozen=True, slots=True)
class Event:
    """Base: its fields are the log line, ``samples`` its metrics, its class name the event's name."""

    level: ClassVar[int] = logging.INFO

    def samples(self) -> Iterable[Sample]:
        """Changes of metrics that this event stands for."""
        return ()

    def gone(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        """Gauges that say nothing any more from this event on."""
        return ()


@dataclass(frozen=True, slots=True)
class Built(Event):
    """What is about to run: the version, and digests of rules, models and policy."""

    version: str
    rules: str
    models: str
    policy: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.BUILD, 1, (self.version, self.rules, self.models, self.policy))


@dataclass(frozen=True, slots=True)
class Listening(Event):
    """The operator's pages are served here."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ConsoleDenied(Event):
    """A request to the console was not answered; ``why`` is one of its own words. Each is told once a minute."""

    level: ClassVar[int] = logging.WARNING
    why: str


@dataclass(frozen=True, slots=True)
class ConsoleReplayed(Event):
    """Somebody with the token put dead letters back."""

    level: ClassVar[int] = logging.WARNING
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class Uncaught(Event):
    """An exception that nobody caught: where it surfaced, its class and line, never its text."""

    level: ClassVar[int] = logging.ERROR
    source: str
    error: str


@dataclass(frozen=True, slots=True)
class AgentStarted(Event):
    """Workers are up and the transport has started."""

    version: str
    workers: int


@dataclass(frozen=True, slots=True)
class AgentStopped(Event):
    """The agent has ended by itself or on request; ``cause`` is a word."""

    cause: str
    unsettled: int


@dataclass(frozen=True, slots=True)
class AgentFailed(Event):
    """The agent stops with an error; ``error`` is its class (and place where it was unexpected)."""

    level: ClassVar[int] = logging.ERROR
    error: str


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(Event):
    """Partitions became ours."""

    streams: tuple[str, ...]

    def samples(self) -> Iterable[Sample]:
        for topic in sorted({_apart(stream)[0] for stream in self.streams}):
            yield from (Sample(metrics.MESSAGES, 0, (topic, outcome)) for outcome in _OUTCOMES)


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(Event):
    """Partitions were taken away; ``unsettled`` records go to the next owner."""

    streams: tuple[str, ...]
    unsettled: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.REBALANCES)

    def gone(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        for stream in self.streams:
            yield from ((metric, _apart(stream)) for metric in (metrics.LAG, metrics.INFLIGHT))


@dataclass(frozen=True, slots=True)
class RecordProcessed(Event):
    """A worker is done with a record. Logged in debugging only. ``trace`` is the trace id that it came with."""

    level: ClassVar[int] = logging.DEBUG
    coordinates: str
    seconds: float
    attempts: int
    timings: tuple[tuple[str, float], ...] = ()
    found: tuple[tuple[str, int], ...] = ()
    trace: str = ""

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.PROCESS_SECONDS, self.seconds)
        for stage, seconds in self.timings:
            yield Sample(metrics.STAGE_SECONDS, seconds, (stage,))
        for kind, count in self.found:
            yield Sample(metrics.PHI, count, (kind,))


@dataclass(frozen=True, slots=True)
class RecordSettled(Event):
    """A record's outcome is durable, ``seconds`` after the worker was done with it. Logged in debugging only."""

    level: ClassVar[int] = logging.DEBUG
    coordinates: str
    outcome: str
    seconds: float
    trace: str = ""

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.STAGE_SECONDS, self.seconds, ("settle",))


@dataclass(frozen=True, slots=True)
class BatchSettled(Event):
    """A partition's position has moved."""

    level: ClassVar[int] = logging.DEBUG
    topic: str
    partition: int
    position: int
    published: int
    suppressed: int
    dead_lettered: int
    seconds: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.SETTLE_SECONDS, self.seconds)
        for outcome in _OUTCOMES:
            if count := getattr(self, outcome):
                yield Sample(metrics.MESSAGES, count, (self.topic, outcome))


@dataclass(frozen=True, slots=True)
class RecordDeadLettered(Event):
    """A record was refused and stands among the dead letters."""

    level: ClassVar[int] = logging.WARNING
    coordinates: str
    code: str
    stage: str
    where: str
    fault: str
    attempts: int
    trace: str = ""

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.LETTERS, 1, (self.code,))


@dataclass(frozen=True, slots=True)
class RecordStale(Event):
    """A record of a partition that is not ours was left to its owner."""

    level: ClassVar[int] = logging.WARNING
    coordinates: str


@dataclass(frozen=True, slots=True)
class Retrying(Event):
    """The outside failed for a while; nothing was settled and nothing is lost. ``why`` names it and what to mend."""

    level: ClassVar[int] = logging.WARNING
    operation: str
    stream: str
    attempt: int
    delay_s: float
    error: str
    why: str


@dataclass(frozen=True, slots=True)
class WorkerRestarted(Event):
    """A worker died or passed its deadline; ``job`` tells the record that it had."""

    level: ClassVar[int] = logging.WARNING
    lane: int
    cause: str
    coordinates: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.RESTARTS)


@dataclass(frozen=True, slots=True)
class TransactionAborted(Event):
    """A transaction was given up; its producer is made anew."""

    level: ClassVar[int] = logging.WARNING
    topic: str
    partition: int
    error: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.TXN_ABORTS)


@dataclass(frozen=True, slots=True)
class Gauged(Event):
    """State of one partition, told regularly."""

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

    def gone(self) -> Iterable[tuple[Metric, tuple[str, ...]]]:
        if self.lag is None:
            yield metrics.LAG, (self.topic, str(self.partition))


@dataclass(frozen=True, slots=True)
class Beaten(Event):
    """State of the agent as a whole, told regularly."""

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
class AuditMended(Event):
    """A line that a crash had torn was cut off the audit trail; its records were never settled."""

    level: ClassVar[int] = logging.WARNING
    bytes: int


@dataclass(frozen=True, slots=True)
class AuditUnsigned(Event):
    """The audit trail was closed with so many lines that no checkpoint signs yet; the next start signs them."""

    level: ClassVar[int] = logging.ERROR
    lines: int


@dataclass(frozen=True, slots=True)
class FileUnreadable(Event):
    """A file could not be read and comes again at the next start; its name may be PHI, so it is not told."""

    level: ClassVar[int] = logging.ERROR
    coordinates: str
    error: str


@dataclass(frozen=True, slots=True)
class FilesSkipped(Event):
    """What a folder holds beside messages: folders that cannot be read, links, special files. Names are not told."""

    level: ClassVar[int] = logging.WARNING
    folders: int
    links: int
    special: int


@dataclass(frozen=True, slots=True)
class MllpListening(Event):
    """Messages are taken here."""

    host: str
    port: int
    tls: bool

    def samples(self) -> Iterable[Sample]:
        yield from (Sample(metrics.MLLP_FAULTS, 0, (code,)) for code in metrics.MLLP_FAULT_CODES)
        yield from (Sample(metrics.MLLP_ANSWERS, 0, (code,)) for code in metrics.MLLP_ANSWER_CODES)


@dataclass(frozen=True, slots=True)
class MllpConnections(Event):
    """How many senders are connected."""

    level: ClassVar[int] = logging.DEBUG
    open: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_CONNECTIONS, self.open)


@dataclass(frozen=True, slots=True)
class MllpFault(Event):
    """Something came that is no message, or a connection was turned away; ``code`` says what, ``lane`` where."""

    level: ClassVar[int] = logging.WARNING
    lane: int
    code: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_FAULTS, 1, (self.code,))


@dataclass(frozen=True, slots=True)
class MllpFaultAgain(MllpFault):
    """One more of a kind that was told a moment ago: a scanner could fill the log."""

    level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True)
class MllpAnswered(Event):
    """A sender was told what became of its message; ``code`` is MSA-1, or "none" where it asked to hear nothing."""

    level: ClassVar[int] = logging.DEBUG
    code: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_ANSWERS, 1, (self.code,))


def _apart(stream: str) -> tuple[str, str]:
    """``topic/partition`` as its two labels."""
    topic, _, number = stream.rpartition("/")
    return topic, number
