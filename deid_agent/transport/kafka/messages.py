"""Pure functions that turn finished records into Kafka messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from deid_agent.agent import DEID_ID, DeadLetterSealer, FinishedRecord, Headers, Outcome
from deid_agent.model import UndeliverableError, UnsafeError
from deid_agent.transport.kafka.options import KafkaOptions

COMPACTED = "the topic is compacted and needs a key; set its cleanup.policy to delete"
"""Why a topic refuses a message without a key."""


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
    record_ms: int | None = None
    """The time of its input record."""

    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def to_messages(
    batch: Iterable[FinishedRecord], settings: KafkaOptions, sealer: DeadLetterSealer
) -> Sequence[KafkaMessage]:
    """The messages of a batch, in its order. A suppressed record has none but its audit line.

    An output has the timestamp that the policy gives it. A dead letter has no key, because keys are PHI, and no header
    of its record; its timestamp is that of its refusal, so that retention counts from then. Building a dead letter of
    50 MB takes about a second. The Provenance of an output has the time of the output. With an audit topic, each
    record's audit line and each signed head of the trail go there in the same order.

    Raises ``UnsafeError`` if outcome and content of a record disagree.
    """
    return [
        message
        for item in batch
        for message in (
            _message(item, settings, sealer),
            _provenance(item, settings),
            _audit_line(item, settings),
            _head(item, settings),
        )
        if message is not None
    ]


def _provenance(item: FinishedRecord, settings: KafkaOptions) -> KafkaMessage | None:
    """The Provenance of an output. Its key is its id, so that a compacted topic keeps one for each record."""
    at, topic = item.record.coordinates, settings.provenance_topic(item.record.coordinates.topic)
    if not topic or not item.provenance or item.output is None:
        return None
    key = item.id.encode() or None
    return KafkaMessage(topic, at.offset, item.provenance, key, _identity(item), item.output.timestamp_ms)


def _audit_line(item: FinishedRecord, settings: KafkaOptions) -> KafkaMessage | None:
    if settings.audit_topic is None or not item.audit:
        return None
    offset = item.record.coordinates.offset
    return KafkaMessage(settings.audit_topic, offset, item.audit, None, _identity(item), None, item.record.timestamp_ms)


def _head(item: FinishedRecord, settings: KafkaOptions) -> KafkaMessage | None:
    """A signed head of the trail. It has no ``deid-id``, because it belongs to no record, but the time of its line."""
    if settings.audit_topic is None or not item.head:
        return None
    offset, time_ms = item.record.coordinates.offset, item.record.timestamp_ms
    return KafkaMessage(settings.audit_topic, offset, item.head, None, (), None, time_ms)


def _message(item: FinishedRecord, settings: KafkaOptions, sealer: DeadLetterSealer) -> KafkaMessage | None:
    record, at = item.record, item.record.coordinates
    match item.outcome:
        case Outcome.SUPPRESSED:
            return None
        case Outcome.PUBLISHED if item.output is not None:
            out = item.output
            value = None if record.tombstone else out.payload
            topic = settings.route(at.topic) or ""
            return KafkaMessage(topic, at.offset, value, out.key, out.headers, out.timestamp_ms)
        case Outcome.DEAD_LETTERED if item.dead_letter is not None:
            headers = (*sealer.headers(record, item.dead_letter), *_identity(item))
            topic, body = settings.dead_letter_topic(at.topic), sealer.body(record)
            return KafkaMessage(topic, at.offset, body, None, headers, None, record.timestamp_ms)
        case Outcome.PUBLISHED | Outcome.DEAD_LETTERED | Outcome.REFUSED:
            raise UnsafeError(f"{at}: {item.outcome} without its content")
        case _:
            assert_never(item.outcome)


def _identity(item: FinishedRecord) -> Headers:
    """The header that names the input record. An output has it already."""
    return ((DEID_ID, item.id.encode()),) if item.id else ()


def undeliverable(
    kind: type[UndeliverableError], message: KafkaMessage, settings: KafkaOptions, text: str
) -> UnsafeError:
    """The error for a message that no broker accepts.

    The record of an output, or of its Provenance, is refused. For any other message nothing helps.
    """
    refusable = {*settings.routes.values(), *settings.provenance_topics.values()}
    return kind(message.offset, text) if message.topic in refusable else UnsafeError(text)


def date_message(message: KafkaMessage, now_ms: int, *, earliest: bool) -> KafkaMessage:
    """The message with a time: its own, or that of sending.

    A clock that is years behind must not date a dead letter so that retention deletes it at once: it is as late as its
    record at least. The broker refuses a time that is an hour ahead, of our clock or of the sender's; ``earliest``
    takes the earlier of the two.
    """
    if message.timestamp_ms is not None:
        return message
    known = (now_ms,) if message.record_ms is None else (now_ms, message.record_ms)
    return replace(message, timestamp_ms=min(known) if earliest else max(known))


def choose_partition(number: int, outputs: int) -> int:
    """The partition that the messages of an input partition go to: the one with its number.

    Outputs of one input partition stay in one partition, which keeps their order. It stays the same when topics get
    more partitions, whichever topic is the first, as long as the output had that partition before.
    """
    return number % outputs
