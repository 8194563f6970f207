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
    topic: str
    partition: int
    error: str

    def samples(self) -> Iterable[Sample]:
        yield Sample(metrics.TXN_ABORTS)


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
