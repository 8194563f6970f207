"""Pure functions that turn finished records into Kafka messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from aiokafka.partitioner import murmur2

from deid_agent.agent import DEID_ID, DeadLetterSealer, FinishedRecord, Headers, Outcome
from deid_agent.model import UnsafeError
from deid_agent.transport.kafka.options import KafkaOptions


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """One message to send. ``offset`` is that of its input record; ``value`` is ``None`` for a tombstone."""

    topic: str
    offset: int
    value: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)
    timestamp_ms: int | None
    """None is the time of sending; ``NO_TIME`` is none."""

    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def to_messages(
    batch: Iterable[FinishedRecord], settings: KafkaOptions, sealer: DeadLetterSealer
) -> Sequence[KafkaMessage]:
    """The messages of a batch, in its order. A suppressed record has none but its audit line.

    An output has the timestamp that the policy gives it. A dead letter has no key, because keys are PHI, and no header
    of its record; its timestamp is that of its refusal, so that retention counts from then. Building a dead letter of
    50 MB takes about a second. With an audit topic, each record's audit line and each signed head of the trail go there
    in the same order. Raises ``UnsafeError`` if outcome and content of a record disagree.
    """
    return [
        message
        for item in batch
        for message in (_message(item, settings, sealer), _audit_line(item, settings), _head(item, settings))
        if message is not None
    ]


def _audit_line(item: FinishedRecord, settings: KafkaOptions) -> KafkaMessage | None:
    if settings.audit_topic is None or not item.audit:
        return None
    offset = item.record.coordinates.offset
    return KafkaMessage(settings.audit_topic, offset, item.audit, None, _identity(item), None)


def _head(item: FinishedRecord, settings: KafkaOptions) -> KafkaMessage | None:
    """A signed head of the trail. It has no ``deid-id``, because it belongs to no record."""
    if settings.audit_topic is None or not item.head:
        return None
    return KafkaMessage(settings.audit_topic, item.record.coordinates.offset, item.head, None, (), None)


def _message(item: FinishedRecord, settings: KafkaOptions, sealer: DeadLetterSealer) -> KafkaMessage | None:
    record, at = item.record, item.record.coordinates
    match item.outcome:
        case Outcome.SUPPRESSED:
            return None
        case Outcome.PUBLISHED if item.output is not None:
            out = item.output
            value = None if record.tombstone else out.payload
            return KafkaMessage(settings.routes[at.topic], at.offset, value, out.key, out.headers, out.timestamp_ms)
        case Outcome.DEAD_LETTERED if item.dead_letter is not None:
            headers = (*sealer.headers(record, item.dead_letter), *_identity(item))
            topic, body = settings.dead_letter_topic(at.topic), sealer.body(record)
            return KafkaMessage(topic, at.offset, body, None, headers, None)
        case Outcome.PUBLISHED | Outcome.DEAD_LETTERED:
            raise UnsafeError(f"{at}: {item.outcome} without its content")
        case _:
            assert_never(item.outcome)


def _identity(item: FinishedRecord) -> Headers:
    """The header that names the input record. An output has it already."""
    return ((DEID_ID, item.id.encode()),) if item.id else ()


def choose_partition(key: bytes | None, number: int, inputs: int, outputs: int) -> int:
    """The partition that a message goes to.

    If both topics have the same number of partitions, it is the number of the input partition, which keeps the order
    per partition. Otherwise it is the hash of the message's own key, as in the Java client, which keeps the order per
    key. Without a key, each input partition maps to one output partition. Changing the number of partitions breaks the
    order once.
    """
    if inputs == outputs:
        return number
    if key is None:
        return number % outputs
    return int(murmur2(key) & 0x7FFFFFFF) % outputs
