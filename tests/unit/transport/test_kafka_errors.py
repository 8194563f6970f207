"""Every error of the client library maps to an error of the agent, and its text is not passed on."""

import asyncio
import inspect
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from aiokafka import errors as kafka_errors

from deid_agent.model.errors import AssignmentLostError, ConfigurationError, DeidError, TransientError, UnsafeError
from deid_agent.transport.kafka.client import (
    CLIENT_ERRORS,
    ErrorClass,
    classify_error,
    root_cause,
    tls_advice,
    translate_error,
)
from deid_agent.transport.kafka.error_codes import ADDED

ALL = sorted(
    {
        kind
        for _, kind in inspect.getmembers(kafka_errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == kafka_errors.__name__
    },
    key=lambda kind: kind.__name__,
)

UNSAFE = """
    BrokerResponseError ConsumerStoppedError CorruptRecordException GroupIdNotFound IllegalArgumentError
    IllegalOperation InvalidCommitOffsetSizeError InvalidFetchRequestError InvalidPartitionsError
    InvalidReplicationAssignmentError InvalidReplicationFactorError InvalidRequestError InvalidRequiredAcksError
    InvalidTimestampError KafkaError LogDirNotFound NoError NoOffsetForPartitionError NonEmptyGroup
    OffsetMetadataTooLargeError OffsetOutOfRangeError TopicAlreadyExistsError UnknownError
"""
LOST = """
    CommitFailedError IllegalGenerationError IllegalStateError InvalidProducerEpoch InvalidProducerIdMapping
    ProducerFenced RebalanceInProgressError UnknownMemberIdError
"""


def test_the_error_classes_of_the_library_are_found() -> None:
    assert len(ALL) > 100
    assert {kafka_errors.KafkaError, kafka_errors.ProducerFenced, kafka_errors.IllegalOperation} <= set(ALL)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_library_error_is_translated(kind: type[Exception]) -> None:
    assert issubclass(kind, CLIENT_ERRORS), "an error that no handler of the transport would catch"
    for starting in (False, True):
        ours = translate_error(kind("Okonkwo"), "commit adt/0", starting=starting)
        assert isinstance(ours, DeidError)
        assert "commit adt/0" in str(ours)
        assert kind.__name__ in str(ours)
        assert "Okonkwo" not in str(ours)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_retriable_library_errors_never_stop_a_running_agent(kind: type[Exception]) -> None:
    if getattr(kind, "retriable", False):
        assert isinstance(translate_error(kind(), "x"), TransientError)


def test_the_exact_set_of_fatal_errors() -> None:
    assert [kind.__name__ for kind in ALL if classify_error(kind) is ErrorClass.UNSAFE] == UNSAFE.split()


def test_the_exact_set_of_errors_that_suspect_another_owner() -> None:
    assert [kind.__name__ for kind in ALL if classify_error(kind) is ErrorClass.LOST] == LOST.split()
    assert isinstance(translate_error(kafka_errors.ProducerFenced(), "x"), AssignmentLostError)


@pytest.mark.parametrize(
    ("code", "name"), [(82, "FENCED_INSTANCE_ID"), (88, "UNSTABLE_OFFSET_COMMIT"), (90, "PRODUCER_FENCED")]
)
def test_error_codes_that_the_library_does_not_know_stop_the_agent_by_name(code: int, name: str) -> None:
    kind = kafka_errors.for_code(code)
    assert issubclass(kind, kafka_errors.UnknownError) and kind.errno == code
    assert str(translate_error(kind(), "commit adt/0")) == f"Kafka: commit adt/0: {name}"
    assert isinstance(translate_error(kind(), "x"), UnsafeError)


def test_errors_of_the_library_have_the_name_of_kafka_too() -> None:
    shown = str(translate_error(kafka_errors.NotLeaderForPartitionError(), "commit adt/0"))
    assert shown.startswith("Kafka: commit adt/0: NotLeaderForPartitionError (NOT_LEADER_FOR_PARTITION)")


def test_the_library_still_has_no_class_of_its_own_for_them() -> None:
    """An upgrade that brings one must classify it."""
    assert sorted(ADDED) == sorted(set(range(73, 121)) - {79})


@pytest.mark.parametrize(
    ("kind", "starting", "wanted"),
    [
        (kafka_errors.UnknownTopicOrPartitionError, True, ConfigurationError),
        (kafka_errors.UnknownTopicOrPartitionError, False, TransientError),
        (kafka_errors.TopicAuthorizationFailedError, True, ConfigurationError),
        (kafka_errors.TopicAuthorizationFailedError, False, UnsafeError),
        (kafka_errors.AuthenticationFailedError, True, ConfigurationError),
        (kafka_errors.MessageSizeTooLargeError, False, UnsafeError),
        (kafka_errors.KafkaConnectionError, True, TransientError),
        (kafka_errors.OutOfOrderSequenceNumber, False, TransientError),
        (ConnectionResetError, False, TransientError),
        (TimeoutError, False, TransientError),
        (NotImplementedError, True, ConfigurationError),
        (AssertionError, False, TransientError),
    ],
)
def test_errors_are_translated(kind: type[Exception], starting: bool, wanted: type[DeidError]) -> None:
    assert type(translate_error(kind(), "x", starting=starting)) is wanted


def test_a_wrapped_error_counts_as_its_cause() -> None:
    wrapper = kafka_errors.KafkaError("Unexpected error during batch delivery")
    wrapper.__cause__ = kafka_errors.InvalidTxnState()
    assert root_cause(wrapper) is wrapper.__cause__
    assert isinstance(translate_error(wrapper, "x"), TransientError)
    wrapper.__cause__ = KeyError("Okonkwo")
    assert isinstance(translate_error(wrapper, "x"), UnsafeError)


def test_advice_names_the_remedy() -> None:
    text = str(translate_error(kafka_errors.OffsetOutOfRangeError(), "read records"))
    assert "kafka-consumer-groups" in text


@pytest.mark.parametrize("days", [(-30, -1), (1, 30)], ids=["expired", "not yet valid"])
async def test_a_certificate_out_of_its_time_points_at_the_clock(days: tuple[int, int]) -> None:
    """A host whose clock is wrong sees a good certificate so; another authority would not help."""
    authority, now = trustme.CA(), datetime.now(UTC)
    begin, end = (now + timedelta(days=day) for day in days)
    serving, trusting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost", not_before=begin, not_after=end).configure_cert(serving)
    authority.configure_trust(trusting)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
    server.close()
    assert "compare its dates with the clock of this host" in tls_advice(caught.value)
