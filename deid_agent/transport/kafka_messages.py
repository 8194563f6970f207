"""What leaves: settled records as Kafka messages. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from aiokafka.partitioner import murmur2

from deid_agent.agent.letterhead import Keeper
from deid_agent.agent.outcomes import DEID_ID
from deid_agent.agent.ports import Coordinates, Headers, Outcome, Settled
from deid_agent.errors import UnsafeError
from deid_agent.transport.kafka_settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send. ``offset`` is its input's; ``value`` is ``None`` for a tombstone."""

    topic: str
    offset: int
    value: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)
    timestamp_ms: int | None

    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def to_messages(batch: Iterable[Settled], settings: KafkaSettings, keeper: Keeper) -> Sequence[Message]:
    """The messages of a batch, in its order; a suppressed record has none but its audit line.

    An output keeps its record's timestamp. A dead letter has no key (keys are PHI) and none of its
    record's headers, and is as young as it is: retention counts from its refusal. Takes about a second for
    a letter of 50 MB. Where there is a topic for the audit, each record's line goes there in the same order.
    Raises ``UnsafeError`` where outcome and content disagree.
    """
    return [
        message
        for item in batch
        for message in (_message(item, settings, keeper), _audit_line(item, settings))
        if message is not None
    ]


def _audit_line(item: Settled, settings: KafkaSettings) -> Message | None:
    if settings.audit_topic is None or not item.audit:
        return None
    at = item.record.coordinates
    return Message(settings.audit_topic, at.offset, item.audit, None, (identity(at),), None)


def _message(item: Settled, settings: KafkaSettings, keeper: Keeper) -> Message | None:
    record, at = item.record, item.record.coordinates
    match item.outcome:
        case Outcome.SUPPRESSED:
            return None
        case Outcome.PUBLISHED if item.output is not None:
            out = item.output
            value = None if record.tombstone else out.payload
            topic, key, headers, time_ms = settings.routes[at.topic], out.key, out.headers, record.timestamp_ms
        case Outcome.DEAD_LETTERED if item.letter is not None:
            value, topic, key, time_ms = keeper.body(record), settings.letters_of(at.topic), None, None
            headers = keeper.headers(record, item.letter)
        case Outcome.PUBLISHED | Outcome.DEAD_LETTERED:
            raise UnsafeError(f"{at}: {item.outcome} without its content")
        case _:
            assert_never(item.outcome)
    headers = (*(h for h in headers if h[0] != DEID_ID), identity(at))
    return Message(topic, at.offset, value, key, headers, time_ms)


def identity(coordinates: Coordinates) -> tuple[str, bytes]:
    """The header that names the input record."""
    return DEID_ID, str(coordinates).encode()


def place(key: bytes | None, number: int, inputs: int, outputs: int) -> int:
    """The partition a message goes to.

    The number of its input partition where both topics have as many partitions: order per partition
    is kept. Otherwise the hash of its own key, as the Java client has it: order per key is kept. Without
    a key one partition for each input partition. Changing the number of partitions breaks order once.
    """
    if inputs == outputs:
        return number
    if key is None:
        return number % outputs
    return int(murmur2(key) & 0x7FFFFFFF) % outputs
