"""Settled records become messages: where they go, under which key, with which headers."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from deid_agent.agent.envelope import unpack
from deid_agent.agent.letterhead import PLAIN, Keeper
from deid_agent.agent.ports import Coordinates, DeadLetter, Outcome, Output, Record, Settled
from deid_agent.errors import Reason, UnsafeError
from deid_agent.transport.kafka import KafkaSettings, KafkaTransport
from deid_agent.transport.kafka_messages import Message, place, to_messages

SETTINGS = KafkaSettings(bootstrap_servers="a:1", group_id="g", routes={"adt": "adt.out"})
RECORD = Record(Coordinates("adt", 2, 7), b"raw", b"MRN1", (("trace", b"1"),), 1_700_000_000_000)
LETTER = DeadLetter(Reason.MALFORMED, "parse", "MSH-2", 3)


def test_an_output_keeps_time_and_names_its_input() -> None:
    output = Output(b"clean", b"MRN9", (("trace", b"1"), ("deid-id", b"forged")))
    (message,) = to_messages([Settled(RECORD, Outcome.PUBLISHED, output)], SETTINGS, PLAIN)
    assert (message.topic, message.key, message.value) == ("adt.out", b"MRN9", b"clean")
    assert message.headers == (("trace", b"1"), ("deid-id", b"adt/2/7"))
    assert (message.timestamp_ms, message.offset) == (1_700_000_000_000, 7)


def test_a_dead_letter_has_no_key_and_nothing_of_the_record_but_its_body() -> None:
    settled = Settled(RECORD, Outcome.DEAD_LETTERED, letter=LETTER)
    (message,) = to_messages([settled], SETTINGS, PLAIN)
    assert (message.topic, message.key, message.timestamp_ms) == ("adt.dlq", None, None)
    assert unpack(message.value or b"", RECORD.coordinates) == RECORD
    headers = dict(message.headers)
    assert headers["__connect.errors.offset"] == b"7"
    assert headers["deid-id"] == b"adt/2/7"
    assert "trace" not in headers


def test_a_suppressed_record_leaves_nothing_and_order_is_kept() -> None:
    batch = [
        Settled(RECORD, Outcome.SUPPRESSED),
        Settled(RECORD, Outcome.DEAD_LETTERED, letter=LETTER),
        Settled(RECORD, Outcome.PUBLISHED, Output(b"clean")),
    ]
    assert [m.topic for m in to_messages(batch, SETTINGS, PLAIN)] == ["adt.dlq", "adt.out"]


def test_every_record_has_a_line_on_the_topic_of_the_audit() -> None:
    batch = [
        Settled(RECORD, Outcome.SUPPRESSED, audit=b"line 1"),
        Settled(RECORD, Outcome.PUBLISHED, Output(b"clean"), audit=b"line 2"),
    ]
    settings = replace(SETTINGS, audit_topic="deid.audit")
    messages = to_messages(batch, settings, PLAIN)
    assert [(m.topic, m.value) for m in messages] == [
        ("deid.audit", b"line 1"),
        ("adt.out", b"clean"),
        ("deid.audit", b"line 2"),
    ]
    assert (messages[0].offset, messages[0].key, messages[0].headers) == (7, None, (("deid-id", b"adt/2/7"),))
    assert [m.topic for m in to_messages(batch, SETTINGS, PLAIN)] == ["adt.out"]
    assert "line" not in repr(batch)


def test_a_tombstone_stays_one_whatever_the_output_holds() -> None:
    grave = Record(Coordinates("adt", 0, 1), b"", b"MRN1", tombstone=True)
    (message,) = to_messages([Settled(grave, Outcome.PUBLISHED, Output(b"", b"MRN9"))], SETTINGS, PLAIN)
    assert (message.key, message.value) == (b"MRN9", None)


@pytest.mark.parametrize("outcome", [Outcome.PUBLISHED, Outcome.DEAD_LETTERED])
def test_an_outcome_without_its_content_is_refused(outcome: Outcome) -> None:
    with pytest.raises(UnsafeError, match="adt/2/7"):
        to_messages([Settled(RECORD, outcome)], SETTINGS, PLAIN)


def test_no_message_shows_its_content() -> None:
    settled = Settled(RECORD, Outcome.DEAD_LETTERED, letter=LETTER)
    assert "raw" not in repr(to_messages([settled], SETTINGS, PLAIN))


async def test_letters_are_sealed_away_from_the_loop() -> None:
    """50 MB take a second, in which the loop must answer for the group."""
    threads: list[threading.Thread] = []

    class Slow(Keeper):
        def body(self, record: Record) -> bytes:
            threads.append(threading.current_thread())
            return super().body(record)

    class Writer:
        async def settle(self, messages: Sequence[Message], position: int) -> None:
            assert [m.offset for m in messages] == [7]
            assert position == 8

    transport = KafkaTransport(SETTINGS, keeper=Slow())
    transport._writers[RECORD.coordinates.stream] = Writer()  # type: ignore[assignment]
    await transport.settle(RECORD.coordinates.stream, [Settled(RECORD, Outcome.DEAD_LETTERED, letter=LETTER)], 8)
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_equal_partitions_keep_the_number() -> None:
    assert [place(key, 2, 3, 3) for key in (None, b"a", b"b")] == [2, 2, 2]


def test_other_partitions_go_by_the_key_as_the_java_client_hashes_it() -> None:
    # Utils.murmur2 of the Java client: its own test vectors, made positive, modulo the partitions.
    vectors = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, hashed in vectors.items():
        assert place(key, 0, 3, 7) == (hashed & 0x7FFFFFFF) % 7


def test_without_a_key_an_input_partition_stays_together() -> None:
    assert {place(None, 5, 8, 3) for _ in range(10)} == {2}
