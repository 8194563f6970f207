"""The events of the transports. ``Event`` states what their fields may hold."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from deid_agent.telemetry import metrics
from deid_agent.telemetry.events import Event
from deid_agent.telemetry.metrics import Sample


@dataclass(frozen=True, slots=True)
class TransactionAborted(Event):
    """A Kafka transaction was aborted. Its producer is replaced."""

    level: ClassVar[int] = logging.WARNING
    repeat_s: ClassVar[float] = 60.0
    topic: str
    partition: int
    error: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.TXN_ABORTS)

    def repeat_key(self) -> tuple[str, ...]:
        return (self.error,)


@dataclass(frozen=True, slots=True)
class TopicsMatched(Event):
    """The topics that ``kafka.topics_pattern`` matches and that are read from now on."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSkipped(Event):
    """A topic matches ``kafka.topics_pattern`` and is not read yet. ``why`` names what is missing."""

    level: ClassVar[int] = logging.WARNING
    repeat_s: ClassVar[float] = 3600.0
    topic: str
    why: str

    def repeat_key(self) -> tuple[str, ...]:
        return (self.topic, self.why)


@dataclass(frozen=True, slots=True)
class BrokerUnreachable(Event):
    """No broker has answered for ``seconds``. The agent keeps trying; nothing is lost."""

    level: ClassVar[int] = logging.ERROR
    repeat_s: ClassVar[float] = 60.0
    servers: str
    error: str
    seconds: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.BROKER_UNREACHABLE, 1)


@dataclass(frozen=True, slots=True)
class BrokerReachable(Event):
    """A broker answers again, after ``seconds``."""

    servers: str
    seconds: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.BROKER_UNREACHABLE, 0)


@dataclass(frozen=True, slots=True)
class PositionChosen(Event):
    """A partition starts at a position that the operator chose with ``--resume-from``. ``why`` is the reason."""

    level: ClassVar[int] = logging.WARNING
    topic: str
    partition: int
    choice: str
    position: int
    why: str


@dataclass(frozen=True, slots=True)
class FileUnreadable(Event):
    """A file could not be read. The next start tries it again. Its name may be PHI, so it is not logged."""

    level: ClassVar[int] = logging.ERROR
    coordinates: str
    error: str


@dataclass(frozen=True, slots=True)
class FilesSkipped(Event):
    """Entries of the input folder that the agent does not read. Their names may be PHI and are not logged."""

    level: ClassVar[int] = logging.WARNING
    folders: int
    links: int
    special: int


@dataclass(frozen=True, slots=True)
class MllpListening(Event):
    """The MLLP listener accepts connections on this address."""

    host: str
    port: int
    tls: bool

    def samples(self) -> Iterable[Sample]:
        yield from (Sample(metrics.MLLP_FAULTS, 0, (code,)) for code in metrics.MLLP_FAULT_CODES)
        yield from (Sample(metrics.MLLP_ANSWERS, 0, (code,)) for code in metrics.MLLP_ANSWER_CODES)
        yield from (Sample(metrics.MLLP_GAVE_WAY, 0, (state,)) for state in metrics.MLLP_GAVE_WAY_STATES)


@dataclass(frozen=True, slots=True)
class MllpConnections(Event):
    """The number of connected MLLP senders."""

    level: ClassVar[int] = logging.DEBUG
    open: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_CONNECTIONS, self.open)


@dataclass(frozen=True, slots=True)
class MllpFault(Event):
    """MLLP input was not a message, or a connection was refused. ``code`` is the reason, one of MLLP_FAULT_CODES."""

    level: ClassVar[int] = logging.WARNING
    connection: int
    code: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_FAULTS, 1, (self.code,))


@dataclass(frozen=True, slots=True)
class MllpFaultAgain(MllpFault):
    """A repetition of a fault that was logged a moment ago. Logged at debug level: a scanner could fill the log."""

    level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True)
class MllpGaveWay(Event):
    """All connections were in use, and this one was closed for a new sender. ``state`` is one of MLLP_GAVE_WAY_STATES.

    ``addresses`` is the number of addresses with connections, ``of_this`` the number of connections of its own.
    """

    level: ClassVar[int] = logging.WARNING
    connection: int
    state: str
    addresses: int
    of_this: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_GAVE_WAY, 1, (self.state,))


@dataclass(frozen=True, slots=True)
class MllpGaveWayAgain(MllpGaveWay):
    """A repetition within ten seconds. Logged at debug level."""

    level: ClassVar[int] = logging.DEBUG


@dataclass(frozen=True, slots=True)
class MllpAnswered(Event):
    """A message was acknowledged. ``code`` is MSA-1, or "none" if the sender asked for no acknowledgment."""

    level: ClassVar[int] = logging.DEBUG
    code: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.MLLP_ANSWERS, 1, (self.code,))


@dataclass(frozen=True, slots=True)
class ServiceListening(Event):
    """The HTTP interface accepts connections on this address. ``logins`` states how clients are recognised."""

    host: str
    port: int
    tls: bool
    logins: str


@dataclass(frozen=True, slots=True)
class ServiceAnswered(Event):
    """A request was answered, after ``seconds``. ``route`` is a name of the table of routes, never a path."""

    level: ClassVar[int] = logging.DEBUG
    route: str
    status: int
    client: str
    seconds: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.SERVICE_REQUESTS, 1, (self.route, str(self.status)))


@dataclass(frozen=True, slots=True)
class ServiceDenied(Event):
    """The HTTP interface refused a client. ``why`` is a code; each is logged once a minute."""

    level: ClassVar[int] = logging.WARNING
    repeat_s: ClassVar[float] = 60.0
    why: str

    def repeat_key(self) -> tuple[str, ...]:
        return (self.why,)


@dataclass(frozen=True, slots=True)
class ServiceKeysFailed(Event):
    """The keys of a client, or of the issuer, could not be fetched. ``owner`` is a name of the settings."""

    level: ClassVar[int] = logging.WARNING
    repeat_s: ClassVar[float] = 60.0
    owner: str
    why: str

    def repeat_key(self) -> tuple[str, ...]:
        return (self.owner, self.why)


@dataclass(frozen=True, slots=True)
class ServiceJobEnded(Event):
    """A job of the HTTP interface has ended, ``seconds`` after its kick-off. ``refused`` counts files and lines."""

    project: str
    client: str
    state: str
    files: int
    lines: int
    refused: int
    seconds: float

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.SERVICE_JOBS, 1, (self.state,))


@dataclass(frozen=True, slots=True)
class ServiceLoad(Event):
    """The connections to the HTTP interface, and the bytes of its requests."""

    level: ClassVar[int] = logging.DEBUG
    connections: int
    bytes: int

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.SERVICE_CONNECTIONS, self.connections)
        yield Sample(metrics.SERVICE_BYTES, self.bytes)
