"""What the agent needs from the outside: the ports that transports implement.

A transport brings records in and settles them. ``settle`` is the one place
where anything leaves: it takes finished records of one partition, in offset
order and without gaps, and makes outputs, dead letters and the new position
durable *in that order* (or in one transaction). So order per partition, and
"no offset moves before the output stands", hold by construction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from deid_agent.errors import Reason

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One ordered stream of records."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True, order=True)
class Coordinates:
    """Where a record stands. Topic names are configuration, never PHI."""

    topic: str
    partition: int
    offset: int

    @property
    def stream(self) -> Partition:
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it came; ``repr`` shows its position only.

    A ``tombstone`` is a record without a value (it deletes its key in a compacted topic): its payload
    is empty, nothing is to be de-identified but its key, and PUBLISHED publishes a tombstone again.
    """

    coordinates: Coordinates
    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp_ms: int | None = field(default=None, repr=False)
    tombstone: bool = False


class Outcome(StrEnum):
    """How a record settled; always set explicitly."""

    PUBLISHED = "published"
    DEAD_LETTERED = "dead_lettered"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True, slots=True)
class Output:
    """What is published in place of a record: already free of PHI."""

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a record was refused.

    ``where`` is a path or an offset, ``fault`` the class name of an exception; never a value. ``traceparent`` is
    hexadecimal digits and dashes, empty where the record belongs to no trace.
    """

    reason: Reason
    stage: str
    where: str = ""
    attempts: int = 1
    fault: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A finished record: exactly one of ``output`` and ``letter`` unless SUPPRESSED.

    ``audit`` is its line of the audit trail, for a transport that is told to publish it; empty where there is none.
    """

    record: Record
    outcome: Outcome
    output: Output | None = None
    letter: DeadLetter | None = None
    audit: bytes = field(default=b"", repr=False)


class Listener(Protocol):
    """Told by a transport about its assignment; both calls are awaited before the transport goes on."""

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """These partitions are ours from now on."""

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """These partitions are about to be taken away: last chance to settle what is finished."""


class Transport(Protocol):
    """Records in, settled records out. Methods are called from one event loop.

    Every method may raise ``TransientError`` (nothing happened, call again) or
    ``UnsafeError`` (stop).
    """

    async def start(self, listener: Listener) -> None:
        """Connect and take an assignment."""

    async def poll(self, limit: int) -> Sequence[Record]:
        """Up to ``limit`` next records of unpaused partitions, in order per partition.

        Waits a bounded while (at most a second) and returns nothing where nothing came.
        Whatever it returns belongs to the assignment that holds when it returns: a record
        of a partition that was revoked meanwhile is left out, even if it came back since.
        """

    def pause(self, stream: Partition) -> None:
        """Deliver nothing more of this partition until ``resume``. Records already polled stay valid."""

    def resume(self, stream: Partition) -> None:
        """Undo ``pause``."""

    async def settle(self, stream: Partition, batch: Sequence[Settled], position: int) -> None:
        """Make ``batch`` durable, then move the partition's position to ``position`` (next offset to read).

        Outputs and dead letters come to stand in the order of ``batch``. After an
        error nothing of the batch may count as settled: it will be delivered again.
        ``UnwantedError`` names an output that nobody takes (too large, or rejected); the caller refuses its record and
        settles again.
        """

    @property
    def exhausted(self) -> bool:
        """True where no record will ever come again (a finite folder, a test)."""

    async def stop(self) -> None:
        """Leave the group and close; safe to call twice. Does not settle anything."""


@runtime_checkable
class KnowsLag(Protocol):
    """A transport that can tell how far it is behind; health and metrics ask for it where it is there."""

    def lag(self, stream: Partition) -> int | None:
        """Records between the position and the end of the partition; None where unknown. Never blocks."""
