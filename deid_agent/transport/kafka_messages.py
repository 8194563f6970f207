"""What leaves: settled records as Kafka messages. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from aiokafka.partitioner import murmur2

from deid_agent.agent.deadletter import letter_headers
from deid_agent.agent.ports import Coordinates, Headers, Outcome, Settled
from deid_agent.errors import UnsafeError
from deid_agent.transport.kafka_settings import KafkaSettings

IDENTITY = "deid-id"
"""Header of every message: ``topic/partition/offset`` of the input, so that a reader can deduplicate."""

Seal = Callable[[bytes], bytes]
"""Makes the payload of a dead letter fit to be kept."""


def as_it_came(payload: bytes) -> bytes:
    """The ``Seal`` that seals nothing: the topic of dead letters must be restricted."""
    return payload


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


def to_messages(batch: Iterable[Settled], settings: KafkaSettings, seal: Seal) -> Sequence[Message]:
    """The messages of a batch, in its order; a suppressed record has none.

    An output keeps its record's timestamp. A dead letter has no key (keys are PHI) and none of its
    record's headers. Raises ``UnsafeError`` where outcome and content disagree.
    """
    return [message for item in batch if (message := _message(item, settings, seal)) is not None]


def _message(item: Settled, settings: KafkaSettings, seal: Seal) -> Message | None:
    record, at = item.record, item.record.coordinates
    match item.outcome:
        case Outcome.SUPPRESSED:
            return None
        case Outcome.PUBLISHED if item.output is not None:
            out = item.output
            value = None if record.tombstone else out.payload
            topic, key, headers = settings.routes[at.topic], out.key, out.headers
        case Outcome.DEAD_LETTERED if item.letter is not None:
            value, topic, key = seal(record.payload), settings.letters_of(at.topic), None
            headers = letter_headers(at, item.letter)
        case Outcome.PUBLISHED | Outcome.DEAD_LETTERED:
            raise UnsafeError(f"{at}: {item.outcome} without its content")
        case _:
            assert_never(item.outcome)
    headers = (*(h for h in headers if h[0] != IDENTITY), identity(at))
    return Message(topic, at.offset, value, key, headers, record.timestamp_ms)


def identity(coordinates: Coordinates) -> tuple[str, bytes]:
    """The header that names the input record."""
    return IDENTITY, str(coordinates).encode()


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
