"""Finished records become messages: topic, key and headers."""

import threading
from collections.abc import Sequence

import pytest

from deid_agent.agent.dead_letter_records import UNSEALED, DeadLetterSealer, unpack_envelope
from deid_agent.agent.ports import Coordinates, DeadLetter, FinishedRecord, Outcome, Output, Record
from deid_agent.model import NO_TIME, RecordTime
from deid_agent.model.errors import OversizeError, Reason, UnsafeError
from deid_agent.transport.kafka.messages import KafkaMessage, choose_partition, date_message, to_messages, undeliverable
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.source import KafkaTransport
from deid_agent.transport.kafka.topic_settings import time_warnings

SETTINGS = KafkaOptions(bootstrap_servers="a:1", group_id="g", routes={"adt": "adt.out"})
RECORD = Record(Coordinates("adt", 2, 7), b"raw", b"MRN1", (("trace", b"1"),), 1_700_000_000_000)
DEAD_LETTER = DeadLetter(Reason.MALFORMED, "parse", "MSH-2", 3)


@pytest.mark.parametrize("time_ms", [1_699_920_000_000, NO_TIME])
def test_an_output_has_its_own_headers_and_time(time_ms: int) -> None:
    output = Output(b"clean", b"MRN9", (("trace", b"1"), ("deid-id", b"aa")), time_ms)
    (message,) = to_messages([FinishedRecord(RECORD, Outcome.PUBLISHED, output, id="aa")], SETTINGS, UNSEALED)
    assert (message.topic, message.key, message.value) == ("adt.out", b"MRN9", b"clean")
    assert message.headers == (("trace", b"1"), ("deid-id", b"aa"))
    assert (message.timestamp_ms, message.offset) == (time_ms, 7)


def test_an_output_never_has_the_time_of_its_record_by_default() -> None:
    (message,) = to_messages([FinishedRecord(RECORD, Outcome.PUBLISHED, Output(b"clean"))], SETTINGS, UNSEALED)
    assert (message.timestamp_ms, message.headers) == (NO_TIME, ())


def test_a_dead_letter_has_only_the_body_of_its_record_and_no_key() -> None:
    finished = FinishedRecord(RECORD, Outcome.DEAD_LETTERED, dead_letter=DEAD_LETTER, id="aa")
    (message,) = to_messages([finished], SETTINGS, UNSEALED)
    assert (message.topic, message.key, message.timestamp_ms) == ("adt.dlq", None, None)
    assert unpack_envelope(message.value or b"", RECORD.coordinates) == RECORD
    headers = dict(message.headers)
    assert headers["__connect.errors.offset"] == b"7"
    assert headers["deid-id"] == b"aa"
    assert "trace" not in headers


def test_a_suppressed_record_publishes_nothing_and_order_is_kept() -> None:
    batch = [
        FinishedRecord(RECORD, Outcome.SUPPRESSED),
        FinishedRecord(RECORD, Outcome.DEAD_LETTERED, dead_letter=DEAD_LETTER),
        FinishedRecord(RECORD, Outcome.PUBLISHED, Output(b"clean")),
    ]
    assert [m.topic for m in to_messages(batch, SETTINGS, UNSEALED)] == ["adt.dlq", "adt.out"]


def test_every_record_has_a_line_on_the_topic_of_the_audit() -> None:
    batch = [
        FinishedRecord(RECORD, Outcome.SUPPRESSED, audit=b"line 1", id="aa"),
        FinishedRecord(RECORD, Outcome.PUBLISHED, Output(b"clean"), audit=b"line 2"),
    ]
    settings = SETTINGS.model_copy(update={"audit_topic": "deid.audit"})
    messages = to_messages(batch, settings, UNSEALED)
    assert [(m.topic, m.value) for m in messages] == [
        ("deid.audit", b"line 1"),
        ("adt.out", b"clean"),
        ("deid.audit", b"line 2"),
    ]
    assert (messages[0].offset, messages[0].key, messages[0].headers) == (7, None, (("deid-id", b"aa"),))
    assert [m.topic for m in to_messages(batch, SETTINGS, UNSEALED)] == ["adt.out"]
    assert "line" not in repr(batch)


def test_the_provenance_of_an_output_goes_to_its_own_topic_with_the_time_of_the_output() -> None:
    settings = SETTINGS.model_copy(update={"provenance_topics": {"adt": "made"}, "audit_topic": "deid.audit"})
    output = Output(b"clean", timestamp_ms=1_699_920_000_000)
    item = FinishedRecord(RECORD, Outcome.PUBLISHED, output, audit=b"line", id="aa", provenance=b"{}")
    messages = to_messages([item], settings, UNSEALED)
    assert [(m.topic, m.value) for m in messages] == [("adt.out", b"clean"), ("made", b"{}"), ("deid.audit", b"line")]
    assert (messages[1].key, messages[1].headers, messages[1].timestamp_ms) == (
        b"aa",
        (("deid-id", b"aa"),),
        1_699_920_000_000,
    )
    assert messages[1].offset == 7, "a commit that is repeated leaves it out with its output"
    assert len(to_messages([item], SETTINGS, UNSEALED)) == 1
    assert "{}" not in repr(item)


def test_a_refused_record_has_no_provenance() -> None:
    settings = SETTINGS.model_copy(update={"provenance_topics": {"": "made"}})
    item = FinishedRecord(RECORD, Outcome.DEAD_LETTERED, dead_letter=DEAD_LETTER, provenance=b"{}")
    assert [m.topic for m in to_messages([item], settings, UNSEALED)] == ["adt.dlq"]


def test_a_provenance_that_no_broker_accepts_refuses_its_record_and_does_not_stop_the_agent() -> None:
    settings = SETTINGS.model_copy(update={"provenance_topics": {"": "made"}})
    for topic, kind in (("made", OversizeError), ("adt.out", OversizeError), ("adt.dlq", UnsafeError)):
        message = KafkaMessage(topic, 7, b"x", None, (), None)
        assert type(undeliverable(OversizeError, message, settings, "too large")) is kind


def test_a_tombstone_remains_a_tombstone() -> None:
    grave = Record(Coordinates("adt", 0, 1), b"", b"MRN1", tombstone=True)
    (message,) = to_messages([FinishedRecord(grave, Outcome.PUBLISHED, Output(b"", b"MRN9"))], SETTINGS, UNSEALED)
    assert (message.key, message.value) == (b"MRN9", None)


@pytest.mark.parametrize("outcome", [Outcome.PUBLISHED, Outcome.DEAD_LETTERED])
def test_an_outcome_without_its_content_is_refused(outcome: Outcome) -> None:
    with pytest.raises(UnsafeError, match="adt/2/7"):
        to_messages([FinishedRecord(RECORD, outcome)], SETTINGS, UNSEALED)


def test_no_message_shows_its_content() -> None:
    finished = FinishedRecord(RECORD, Outcome.DEAD_LETTERED, dead_letter=DEAD_LETTER)
    assert "raw" not in repr(to_messages([finished], SETTINGS, UNSEALED))


async def test_dead_letters_are_sealed_off_the_loop() -> None:
    """50 MB take a second, in which the loop must answer for the group."""
    threads: list[threading.Thread] = []

    class Slow(DeadLetterSealer):
        def body(self, record: Record) -> bytes:
            threads.append(threading.current_thread())
            return super().body(record)

    class Writer:
        async def commit(self, messages: Sequence[KafkaMessage], position: int) -> None:
            assert [m.offset for m in messages] == [7]
            assert position == 8

    transport = KafkaTransport(SETTINGS, sealer=Slow())
    transport._writers[RECORD.coordinates.stream] = Writer()  # type: ignore[assignment]
    await transport.commit(
        RECORD.coordinates.stream, [FinishedRecord(RECORD, Outcome.DEAD_LETTERED, dead_letter=DEAD_LETTER)], 8
    )
    assert len(threads) == 1
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(("outputs", "expected"), [(3, 2), (7, 2), (2, 0)])
def test_an_input_partition_has_one_output_partition(outputs: int, expected: int) -> None:
    """The one with its number, also while the output has more partitions than the input, or not yet as many."""
    assert choose_partition(2, outputs) == expected


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("record_ms", "latest", "earliest"),
    [
        (NOW - 5_000, NOW, NOW - 5_000),
        (NOW + 3_600_000 * 24 * 365 * 50, NOW + 3_600_000 * 24 * 365 * 50, NOW),
        (None, NOW, NOW),
    ],
    ids=["as usual", "our clock is 50 years behind", "a record without a time"],
)
def test_a_dead_letter_is_as_late_as_its_record(record_ms: int | None, latest: int, earliest: int) -> None:
    message = KafkaMessage("adt.dlq", 7, b"", None, (), None, record_ms)
    assert date_message(message, NOW, earliest=False).timestamp_ms == latest
    assert date_message(message, NOW, earliest=True).timestamp_ms == earliest


def test_a_head_of_the_trail_has_the_time_of_its_line() -> None:
    """Our clock is hours ahead: with a time of its own the broker would refuse the head, and the agent would stop."""
    item = FinishedRecord(RECORD, Outcome.SUPPRESSED, audit=b"line", head=b"head")
    messages = to_messages([item], SETTINGS.model_copy(update={"audit_topic": "deid.audit"}), UNSEALED)
    ahead = (RECORD.timestamp_ms or 0) + 86_400_000
    assert [date_message(m, ahead, earliest=True).timestamp_ms for m in messages] == [RECORD.timestamp_ms] * 2


@pytest.mark.parametrize("time_ms", [5, NO_TIME])
def test_an_output_keeps_the_time_of_the_policy(time_ms: int) -> None:
    message = KafkaMessage("adt.out", 7, b"", None, (), time_ms, NOW)
    assert date_message(message, NOW, earliest=False) == date_message(message, NOW, earliest=True) == message


DAY, YEAR = 86_400_000, 366 * 86_400_000
SAFE = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "604800000"}


@pytest.mark.parametrize(
    ("changed", "time", "named"),
    [
        ({}, RecordTime.DAY, ()),
        ({}, RecordTime.WEEK, ()),
        ({}, RecordTime.YEAR, ("retention.ms",)),
        ({"retention.ms": "-1"}, RecordTime.YEAR, ()),
        ({"retention.ms": str(YEAR)}, RecordTime.YEAR, ()),
        ({"cleanup.policy": "compact"}, RecordTime.YEAR, ()),
        ({"cleanup.policy": "compact,delete"}, RecordTime.YEAR, ("retention.ms",)),
        ({}, RecordTime.NONE, ()),
        ({"retention.ms": "1000"}, RecordTime.KEEP, ()),
        ({"retention.ms": str(DAY - 1)}, RecordTime.DAY, ("retention.ms",)),
        ({"message.timestamp.type": "LogAppendTime"}, RecordTime.NONE, ("message.timestamp.type",)),
        ({"message.timestamp.type": "LogAppendTime"}, RecordTime.KEEP, ()),
        ({"message.timestamp.before.max.ms": "3600000"}, RecordTime.DAY, ("before.max",)),
        ({"message.timestamp.difference.max.ms": "3600000"}, RecordTime.YEAR, ("retention.ms", "difference.max")),
        ({"message.timestamp.before.max.ms": str(2**63 - 1)}, RecordTime.DAY, ()),
        ({"message.timestamp.before.max.ms": "0"}, RecordTime.NONE, ()),
        ({"retention.ms": "x"}, RecordTime.YEAR, ()),
    ],
)
def test_topic_settings_that_defeat_coarse_times_are_reported(
    changed: dict[str, str], time: RecordTime, named: Sequence[str]
) -> None:
    warnings = time_warnings("adt.out", SAFE | changed, time)
    assert len(warnings) == len(named)
    assert all(name in warning and "'adt.out'" in warning for name, warning in zip(named, warnings, strict=True))
