"""Helpers for calls of aiokafka: safe cancellation, and translation of its errors.

Cancellation: if a call that opens a connection is cancelled between the connection and aiokafka's note of it, the
connection remains open. If a call that closes a client is cancelled, the cancellation is lost, and the caller waits for
ever. Calls that open or close a client therefore run in a task of their own, which gets a short time to end by itself.

Errors: one table assigns each aiokafka error an ``ErrorClass``. ``translate_error`` never copies aiokafka's text, which
may quote data, but uses class names and our own advice.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine
from enum import StrEnum
from typing import TypeVar

from aiokafka import errors as kafka_errors

from deid_agent.model import AssignmentLostError, ConfigurationError, DeidError, TransientError, UnsafeError
from deid_agent.transport.kafka.error_codes import kafka_name

T = TypeVar("T")

_GRACE_S = 0.5


async def run_to_completion(call: Coroutine[object, object, T]) -> T:
    """Return the result of ``call``.

    If the caller is cancelled, ``call`` may end by itself within half a second and is then cancelled. The cancellation
    is raised in every case, and ``call`` has ended by then, even if it ignored its own cancellation.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        # In a task of its own: a second cancellation must not leave the call running.
        ending = asyncio.ensure_future(_finish_or_cancel(task))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({ending})
        raise
    return task.result()


async def run_briefly(call: Coroutine[object, object, object]) -> None:
    """Let ``call`` end by itself within half a second, then cancel it. Its exception is dropped."""
    await run_to_completion(_finish_or_cancel(asyncio.ensure_future(call)))


async def _finish_or_cancel(task: "asyncio.Future[T]") -> None:
    await asyncio.wait({task}, timeout=_GRACE_S)
    await cancel_and_wait(task)


async def cancel_and_wait(task: "asyncio.Future[T]") -> None:
    """Cancel ``task`` until it has ended. Its exception is dropped."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_GRACE_S)
    if not task.cancelled():
        task.exception()


CLIENT_ERRORS = (
    kafka_errors.KafkaError,
    kafka_errors.IllegalOperation,
    kafka_errors.ConsumerStoppedError,
    OSError,
    TimeoutError,
    AssertionError,
    NotImplementedError,  # raised by aiokafka itself: the broker lacks an API version that the client needs
)
"""The errors that aiokafka raises: its error tree, two classes outside of it, its assertions, and
``NotImplementedError`` for an API version that it does not support.
"""


class ErrorClass(StrEnum):
    """The meaning of an aiokafka error for the agent."""

    TRANSIENT = "transient"
    LOST = "lost"
    UNSAFE = "unsafe"
    CONFIGURATION = "configuration"


_CLASS_NAMES: dict[ErrorClass, str] = {
    # The broker is unavailable, or the outcome of the call is unknown. The producer is created anew, and the committed
    # position shows the outcome. aiokafka does not mark BrokerNotAvailable and similar errors as retriable.
    ErrorClass.TRANSIENT: """
        KafkaTimeoutError KafkaUnavailableError QuotaViolationError ProducerClosed
        BrokerNotAvailableError ReplicaNotAvailableError StaleControllerEpochError StaleLeaderEpochCodeError
        OutOfOrderSequenceNumber DuplicateSequenceNumber UnknownProducerId InvalidTxnState
        ConcurrentTransactions TransactionCoordinatorFenced OperationNotAttempted
        ReassignmentInProgress ListenerNotFound FetchSessionIdNotFound InvalidFetchSessionEpoch MemberIdRequired
        """,
    # Another member owns the partition, or the group has a new generation. An expired transaction looks the same.
    ErrorClass.LOST: """
        ProducerFenced InvalidProducerEpoch InvalidProducerIdMapping
        CommitFailedError IllegalGenerationError UnknownMemberIdError RebalanceInProgressError IllegalStateError
        """,
    ErrorClass.CONFIGURATION: """
        UnknownTopicOrPartitionError InvalidTopicError
        MessageSizeTooLargeError RecordListTooLargeError RecordTooLargeError
        AuthenticationFailedError AuthenticationMethodNotSupported SaslAuthenticationFailed
        UnsupportedSaslMechanismError IllegalSaslStateError SecurityDisabled InvalidPrincipalType
        TopicAuthorizationFailedError GroupAuthorizationFailedError ClusterAuthorizationFailedError
        TransactionalIdAuthorizationFailed
        DelegationTokenAuthDisabled DelegationTokenNotFound DelegationTokenOwnerMismatch
        DelegationTokenRequestNotAllowed DelegationTokenAuthorizationFailed DelegationTokenExpired
        InconsistentGroupProtocolError InvalidGroupIdError InvalidSessionTimeoutError InvalidTransactionTimeout
        UnsupportedVersionError UnrecognizedBrokerVersion IncompatibleBrokerVersion UnsupportedCodecError
        UnsupportedForMessageFormatError KafkaConfigurationError InvalidConfigurationError PolicyViolationError
        """,
}
_CLASSES: dict[type[BaseException], ErrorClass] = {
    getattr(kafka_errors, name): verdict for verdict, names in _CLASS_NAMES.items() for name in names.split()
} | {
    # The codes for which aiokafka has no class, 82, 88 and 90 among them. Continuing could duplicate records.
    kafka_errors.UnknownError: ErrorClass.UNSAFE,
    kafka_errors.ConsumerStoppedError: ErrorClass.UNSAFE,
    kafka_errors.IllegalOperation: ErrorClass.UNSAFE,
    # aiokafka raises it for a broker that is too old. A retry cannot help; a newer broker does.
    NotImplementedError: ErrorClass.CONFIGURATION,  # aiokafka: the broker is too old for the client
    AssertionError: ErrorClass.TRANSIENT,
    OSError: ErrorClass.TRANSIENT,
}

_ADVICE: dict[type[BaseException], str] = {
    kafka_errors.UnknownTopicOrPartitionError: "create the topic",
    kafka_errors.MessageSizeTooLargeError: "raise max.message.bytes of the topic, and kafka.max_request_bytes",
    kafka_errors.RecordListTooLargeError: "raise max.message.bytes and segment.bytes of the topic",
    kafka_errors.OffsetOutOfRangeError: (
        "records were deleted before they were read, or the topic was created again; start again, and if that does not "
        "name a choice, find out what is missing and set the group's offset with kafka-consumer-groups"
    ),
    kafka_errors.InvalidTimestampError: (
        "the clock of this host or of a sender is ahead of the broker's: correct it, or raise "
        "message.timestamp.after.max.ms of the topic"
    ),
    kafka_errors.TopicAuthorizationFailedError: "grant the principal access to the topics of kafka.routes",
    kafka_errors.GroupAuthorizationFailedError: "grant the principal READ on the consumer group",
    kafka_errors.TransactionalIdAuthorizationFailed: "grant the principal WRITE on transactional ids deid-<group>-*",
    kafka_errors.InvalidTransactionTimeout: "raise transaction.max.timeout.ms of the broker to 60000 at least",
    kafka_errors.InvalidSessionTimeoutError: "set kafka.session_timeout_ms within the broker's group limits",
    # aiokafka's own error for a broker that is too old
    NotImplementedError: "the broker's version is not supported; Apache Kafka 2.5 or later is needed",
}


def classify_error(kind: type[BaseException]) -> ErrorClass:
    """The class of an error type. Retriable types are TRANSIENT, unknown ones UNSAFE."""
    for base in kind.__mro__:
        if base in _CLASSES:
            return _CLASSES[base]
    return ErrorClass.TRANSIENT if getattr(kind, "retriable", False) else ErrorClass.UNSAFE


def root_cause(error: BaseException) -> BaseException:
    """The error that names the reason: the sender and the coordinator wrap it in a bare ``KafkaError``."""
    inner = error.__cause__
    if type(error) is kafka_errors.KafkaError and isinstance(inner, CLIENT_ERRORS):
        return root_cause(inner)
    return error


def translate_error(error: BaseException, doing: str, *, starting: bool = False) -> DeidError:
    """The same fault as an error of ``deid_agent.model``.

    ``doing`` names the failed operation with topics and partitions, but no values. A configuration fault is a
    ``ConfigurationError`` while the agent starts. Later it stops the agent (``UnsafeError``), unless it concerns a
    topic that the broker may not know yet after its own restart.
    """
    error = root_cause(error)
    kind = type(error)
    advice = next((_ADVICE[base] for base in kind.__mro__ if base in _ADVICE), "")
    text = f"Kafka: {doing}: {kafka_name(kind)}" + (f": {advice}" if advice else "")
    match classify_error(kind):
        case ErrorClass.TRANSIENT:
            return TransientError(text)
        case ErrorClass.LOST:
            return AssignmentLostError(text)
        case ErrorClass.CONFIGURATION if starting:
            return ConfigurationError(text)
        case ErrorClass.CONFIGURATION if getattr(kind, "retriable", False):
            return TransientError(text)
        case ErrorClass.CONFIGURATION | ErrorClass.UNSAFE:
            return UnsafeError(text)


def to_deid_error(error: Exception, doing: str) -> DeidError:
    """The error of a background call as one of ``deid_agent.model``; an unexpected one is unsafe."""
    if isinstance(error, DeidError):
        return error
    if isinstance(error, CLIENT_ERRORS):
        return translate_error(error, doing)
    return UnsafeError(f"Kafka: {doing}: unexpected {type(error).__name__}")


_HOST_MISMATCH = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""

_OUT_OF_TIME = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


def tls_advice(error: BaseException) -> str:
    """What to fix after a TLS failure; an empty string if ``error`` and its cause are not TLS errors.

    A broker that requires a client certificate reports that after the handshake (TLS 1.3), with an alert in place of
    its first answer.
    """
    found = error if isinstance(error, ssl.SSLError) else error.__cause__
    if not isinstance(found, ssl.SSLError):
        return ""
    if isinstance(found, ssl.SSLCertVerificationError):
        if found.verify_code in _HOST_MISMATCH:
            return "the broker's certificate is for another host: use its host name in kafka.bootstrap_servers"
        if found.verify_code in _OUT_OF_TIME:
            return "the broker's certificate is expired or not yet valid: compare its dates with the clock of this host"
        return "the broker's certificate is not trusted: set kafka.ssl_cafile to the authority that signed it"
    if "CERTIFICATE" in (found.reason or ""):
        return "the broker rejects our certificate, or requires one: set kafka.ssl_certfile and kafka.ssl_keyfile"
    return f"TLS failed ({found.reason}): check kafka.security_protocol"
