"""The values and interfaces that connect the agent to transports and to the audit trail.

A ``Transport`` delivers records and commits finished ones. Data leaves the agent only through ``Transport.commit``.
It takes finished records of one partition, in offset order and without gaps, and makes outputs, dead letters and the
new position durable *in that order* (or in one transaction). This gives order per partition, and guarantees that no
offset moves before its output is durable.

A ``CrosswalkLog`` takes the sealed pairs of a record before its audit entry is written, so no code leaves that leads
nowhere.

An ``AuditLog`` takes one ``AuditEntry`` for each record and makes it durable before the record is committed. After a
crash between the two, the record is delivered and audited again: the last entry for its coordinates counts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from deid_agent.model import NO_TIME, Reason

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One ordered stream of records."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class Coordinates:
    """The position of a record. Topic names are configuration, never PHI."""

    topic: str
    partition: int
    offset: int

    @property
    def stream(self) -> Partition:
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a sender that waits for the result of its record: it gets a refusal too, and nobody keeps it.

    ``client`` is the configured name of the sender. ``task`` is the work on the payload, ``code_key`` the key of the
    link codes of several records; see ``Job``.
    """

    client: str = ""
    task: str = ""
    code_key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Record:
    """One input record, unchanged. ``repr`` shows its position only.

    A ``tombstone`` is a record without a value, which deletes its key in a compacted topic. Its payload is empty,
    only its key is de-identified, and PUBLISHED publishes a tombstone again. ``topic_id`` tells a topic from one that
    had its name before; it is empty if the source has no such id. ``request`` is None unless the sender waits.
    """

    coordinates: Coordinates
    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp_ms: int | None = field(default=None, repr=False)
    tombstone: bool = False
    topic_id: str = field(default="", compare=False)
    request: Request | None = None


class Outcome(StrEnum):
    """The result of a record. Always set explicitly."""

    PUBLISHED = "published"
    DEAD_LETTERED = "dead_lettered"
    SUPPRESSED = "suppressed"
    REFUSED = "refused"
    """Refused, and its sender is informed. Nobody keeps the record."""


@dataclass(frozen=True, slots=True)
class Output:
    """The message that is published for a record. Free of PHI. ``timestamp_ms`` is ``NO_TIME`` if it has none."""

    payload: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp_ms: int = field(default=NO_TIME, repr=False)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The reason why a record was refused.

    ``where`` is a path or an offset and ``fault`` the class name of an exception; neither is ever a value of the
    message. ``traceparent`` is hexadecimal digits and dashes, empty if the record belongs to no trace.
    """

    reason: Reason
    stage: str
    where: str = ""
    attempts: int = 1
    fault: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class FinishedRecord:
    """A record with its result: exactly one of ``output`` and ``dead_letter``, or neither if SUPPRESSED.

    The ``dead_letter`` of a REFUSED record is only the reason.

    ``audit`` is the record's line in the audit trail, for a transport that also publishes the trail. It is empty if
    the audit log keeps no lines. ``head`` is a signed head of the trail, at most one in a batch. ``id`` is the
    ``deid-id`` of the record, see ``OutputMarks``. ``provenance`` is published beside an output, in a topic of its own.
    """

    record: Record
    outcome: Outcome
    output: Output | None = None
    dead_letter: DeadLetter | None = None
    audit: bytes = field(default=b"", repr=False)
    id: str = ""
    head: bytes = field(default=b"", repr=False)
    provenance: bytes = field(default=b"", repr=False)


class AssignmentListener(Protocol):
    """Receives changes of a transport's assignment. The transport awaits each call before it continues."""

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """These partitions now belong to this agent."""

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """These partitions are about to be taken away. This is the last chance to commit finished records."""


class Transport(Protocol):
    """Delivers records and commits finished ones. All methods are called from one event loop.

    Every method may raise ``TransientError`` (nothing happened: call again) or ``UnsafeError`` (stop the agent).
    """

    async def start(self, listener: AssignmentListener) -> None:
        """Connect and take an assignment."""

    async def poll(self, limit: int) -> Sequence[Record]:
        """Return up to ``limit`` next records of unpaused partitions, in order per partition.

        Waits a bounded time, at most a second, and returns nothing if no record arrives. All returned records belong
        to the assignment that is valid on return. A record of a partition that was revoked meanwhile is left out,
        even if the partition was assigned again since.
        """

    def pause(self, stream: Partition) -> None:
        """Deliver no more records of this partition until ``resume``. Records already polled remain valid."""

    def resume(self, stream: Partition) -> None:
        """Undo ``pause``."""

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """Make ``batch`` durable, then move the partition's position to ``position``, the next offset to read.

        Outputs and dead letters are written in the order of ``batch``. After an error no record of the batch counts
        as committed, and all of them are delivered again. ``UndeliverableError`` names an output that the receiver
        never accepts (too large, or rejected). The caller then refuses that record and commits again.
        """

    @property
    def exhausted(self) -> bool:
        """True if no record will ever arrive again (a finite folder, a test)."""

    async def stop(self) -> None:
        """Leave the group and close. Commits nothing. Safe to call twice."""


@runtime_checkable
class KnowsLag(Protocol):
    """A transport that knows its lag. Health and metrics use it if it is implemented."""

    def lag(self, stream: Partition) -> int | None:
        """Records between the position and the end of the partition; None if unknown. Never blocks."""


@runtime_checkable
class KnowsOutage(Protocol):
    """A transport that notices when its system does not answer. Readiness uses it if it is implemented."""

    @property
    def outage(self) -> str:
        """A short code of what does not answer, such as ``broker``; empty if all is well."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """The audit information about one record. Contains no value of the message.

    ``remarks`` is a JSON array on one line, as the worker wrote it. For a record that was replayed from the dead
    letters, ``replay_of`` names its original coordinates.
    """

    coordinates: Coordinates
    outcome: Outcome
    reason: str = ""
    where: str = ""
    stage: str = ""
    attempts: int = 1
    input_digest: str = ""
    output_digest: str = ""
    remarks: bytes = field(default=b"[]", repr=False)
    replay_of: Coordinates | None = None
    id: str = ""
    """The ``deid-id`` of the output, see ``OutputMarks``."""
    topic_id: str = ""
    project: str = ""
    """The project of the record; empty in an agent without projects."""
    client: str = ""
    """The client that sent the record, if it was a request."""


class AuditLog(Protocol):
    """Stores audit entries."""

    async def append(self, entries: Sequence[AuditEntry]) -> Sequence[bytes]:
        """Make the entries durable, in order, and return the line of each without its line end.

        Returns nothing if the log keeps no lines. Raises ``UnsafeError`` if an entry cannot be made durable; its
        record must not be committed then.
        """

    async def close(self) -> None:
        """Close. Safe to call twice."""


class CrosswalkLog(Protocol):
    """Stores the sealed pairs of the records of one project, see ``Processed.sealed``."""

    async def append(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Make the pairs of these records durable; each is a ``deid-id`` and its sealed pairs.

        Raises ``UnsafeError`` if one cannot be made durable; its record must be neither audited nor committed then.
        """


@runtime_checkable
class SignsHeads(Protocol):
    """An audit log that signs its state, for a transport that also publishes the trail."""

    def take_head(self) -> bytes:
        """The newest signed head, once; empty if there is no newer one. Never blocks."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename alone can be lost in a power failure. Raises ``OSError``."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def cut_torn_line(file: int) -> int:
    """Truncate an open file after its last line feed and return the number of bytes removed.

    The audit trail and the folder journal call this when they open a file: a crash can leave half a line at its end.
    """
    size = os.fstat(file).st_size
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        at = os.pread(file, end - begin, begin).rfind(b"\n")
        if at >= 0:
            end = begin + at + 1
            break
        end = begin
    if end != size:
        os.ftruncate(file, end)
        os.fsync(file)
    return size - end
