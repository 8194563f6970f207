"""The error codes of Kafka that aiokafka 0.14 has no class for.

aiokafka turns each of them into a bare ``UnknownError``, so neither the log nor a decision can tell them apart. This
module adds a class of its own for each code to aiokafka's table. All are subclasses of ``UnknownError``: aiokafka and
our table of error classes treat them as before.
"""

from aiokafka import errors as kafka_errors

_NAMES = """
    73 TOPIC_DELETION_DISABLED 74 FENCED_LEADER_EPOCH 75 UNKNOWN_LEADER_EPOCH 76 UNSUPPORTED_COMPRESSION_TYPE
    77 STALE_BROKER_EPOCH 78 OFFSET_NOT_AVAILABLE 80 PREFERRED_LEADER_NOT_AVAILABLE 81 GROUP_MAX_SIZE_REACHED
    82 FENCED_INSTANCE_ID 83 ELIGIBLE_LEADERS_NOT_AVAILABLE 84 ELECTION_NOT_NEEDED 85 NO_REASSIGNMENT_IN_PROGRESS
    86 GROUP_SUBSCRIBED_TO_TOPIC 87 INVALID_RECORD 88 UNSTABLE_OFFSET_COMMIT 89 THROTTLING_QUOTA_EXCEEDED
    90 PRODUCER_FENCED 91 RESOURCE_NOT_FOUND 92 DUPLICATE_RESOURCE 93 UNACCEPTABLE_CREDENTIAL
    94 INCONSISTENT_VOTER_SET 95 INVALID_UPDATE_VERSION 96 FEATURE_UPDATE_FAILED 97 PRINCIPAL_DESERIALIZATION_FAILURE
    98 SNAPSHOT_NOT_FOUND 99 POSITION_OUT_OF_RANGE 100 UNKNOWN_TOPIC_ID 101 DUPLICATE_BROKER_REGISTRATION
    102 BROKER_ID_NOT_REGISTERED 103 INCONSISTENT_TOPIC_ID 104 INCONSISTENT_CLUSTER_ID 105 TRANSACTIONAL_ID_NOT_FOUND
    106 FETCH_SESSION_TOPIC_ID_ERROR 107 INELIGIBLE_REPLICA 108 NEW_LEADER_ELECTED 109 OFFSET_MOVED_TO_TIERED_STORAGE
    110 FENCED_MEMBER_EPOCH 111 UNRELEASED_INSTANCE_ID 112 UNSUPPORTED_ASSIGNOR 113 STALE_MEMBER_EPOCH
    114 MISMATCHED_ENDPOINT_TYPE 115 UNSUPPORTED_ENDPOINT_TYPE 116 UNKNOWN_CONTROLLER_ID 117 UNKNOWN_SUBSCRIPTION_ID
    118 TELEMETRY_TOO_LARGE 119 INVALID_REGISTRATION 120 TRANSACTION_ABORTABLE
    """


def _add_classes() -> dict[int, type[kafka_errors.UnknownError]]:
    words = _NAMES.split()
    named = {int(code): name for code, name in zip(words[::2], words[1::2], strict=True)}
    added = {
        code: type(name, (kafka_errors.UnknownError,), {"errno": code, "message": name, "__module__": __name__})
        for code, name in named.items()
        if code not in kafka_errors.kafka_errors
    }
    kafka_errors.kafka_errors.update(added)
    return added


ADDED = _add_classes()
"""The added classes by code."""

INVALID_RECORD = ADDED[87]
"""The broker refuses a record of the batch: most often one without a key in a compacted topic."""


def kafka_name(kind: type[BaseException]) -> str:
    """The class of an error, with the name that Kafka's documentation and tools use if they differ."""
    name = getattr(kind, "message", "")
    if not issubclass(kind, kafka_errors.BrokerResponseError) or not name or name == kind.__name__:
        return kind.__name__
    return f"{kind.__name__} ({name})"
