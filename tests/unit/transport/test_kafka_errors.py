"""Every error of the client library has a meaning for the agent, and its text goes no further."""

import inspect

import pytest
from aiokafka import errors as theirs

from deid_agent.errors import ConfigurationError, DeidError, LostError, TransientError, UnsafeError
from deid_agent.transport.kafka_errors import (
    CLIENT_ERRORS,
    Verdict,
    cause_of,
    translate,
    verdict_of,
)

ALL = sorted(
    {
        kind
        for _, kind in inspect.getmembers(theirs, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == theirs.__name__
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


def test_the_walk_finds_the_library_s_errors() -> None:
    assert len(ALL) > 100
    assert {theirs.KafkaError, theirs.ProducerFenced, theirs.IllegalOperation} <= set(ALL)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_place_in_our_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, CLIENT_ERRORS), "an error that no handler of the transport would catch"
    for starting in (False, True):
        ours = translate(kind("Okonkwo"), "settle adt/0", starting=starting)
        assert isinstance(ours, DeidError)
        assert "settle adt/0" in str(ours)
        assert kind.__name__ in str(ours)
        assert "Okonkwo" not in str(ours)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_what_the_library_calls_retriable_never_stops_a_running_agent(kind: type[Exception]) -> None:
    if getattr(kind, "retriable", False):
        assert isinstance(translate(kind(), "x"), TransientError)


def test_going_on_is_refused_for_exactly_these() -> None:
    assert [kind.__name__ for kind in ALL if verdict_of(kind) is Verdict.UNSAFE] == UNSAFE.split()


def test_another_owner_is_suspected_for_exactly_these() -> None:
    assert [kind.__name__ for kind in ALL if verdict_of(kind) is Verdict.LOST] == LOST.split()
    assert isinstance(translate(theirs.ProducerFenced(), "x"), LostError)


@pytest.mark.parametrize("code", [82, 88, 90])
def test_codes_the_library_does_not_know_stop_the_agent(code: int) -> None:
    kind = theirs.for_code(code)
    assert kind is theirs.UnknownError
    assert isinstance(translate(kind(), "x"), UnsafeError)


@pytest.mark.parametrize(
    ("kind", "starting", "wanted"),
    [
        (theirs.UnknownTopicOrPartitionError, True, ConfigurationError),
        (theirs.UnknownTopicOrPartitionError, False, TransientError),
        (theirs.TopicAuthorizationFailedError, True, ConfigurationError),
        (theirs.TopicAuthorizationFailedError, False, UnsafeError),
        (theirs.AuthenticationFailedError, True, ConfigurationError),
        (theirs.MessageSizeTooLargeError, False, UnsafeError),
        (theirs.KafkaConnectionError, True, TransientError),
        (theirs.OutOfOrderSequenceNumber, False, TransientError),
        (ConnectionResetError, False, TransientError),
        (TimeoutError, False, TransientError),
        (NotImplementedError, True, ConfigurationError),
        (AssertionError, False, TransientError),
    ],
)
def test_some_verdicts(kind: type[Exception], starting: bool, wanted: type[DeidError]) -> None:
    assert type(translate(kind(), "x", starting=starting)) is wanted


def test_a_wrapped_error_counts_as_what_it_wraps() -> None:
    wrapper = theirs.KafkaError("Unexpected error during batch delivery")
    wrapper.__cause__ = theirs.InvalidTxnState()
    assert cause_of(wrapper) is wrapper.__cause__
    assert isinstance(translate(wrapper, "x"), TransientError)
    wrapper.__cause__ = KeyError("Okonkwo")
    assert isinstance(translate(wrapper, "x"), UnsafeError)


def test_advice_says_what_to_do() -> None:
    text = str(translate(theirs.OffsetOutOfRangeError(), "read records"))
    assert "kafka-consumer-groups" in text
