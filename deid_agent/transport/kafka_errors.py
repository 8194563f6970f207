"""Every error of the client library in our tree: one table.

``translate`` never copies the library's text: class names and advice only.
"""

import ssl
from enum import StrEnum

from aiokafka import errors as theirs

from deid_agent.errors import ConfigurationError, DeidError, LostError, TransientError, UnsafeError

CLIENT_ERRORS = (
    theirs.KafkaError,
    theirs.IllegalOperation,
    theirs.ConsumerStoppedError,
    OSError,
    TimeoutError,
    AssertionError,
    NotImplementedError,
)
"""What the library raises: its tree, its two strays, its assertions, and an API version it lacks."""


class Verdict(StrEnum):
    """What an error means for the agent."""

    TRANSIENT = "transient"
    LOST = "lost"
    UNSAFE = "unsafe"
    CONFIGURATION = "configuration"


_NAMES: dict[Verdict, str] = {
    # The broker is away, or the call says nothing about what happened: the producer is made anew, then
    # the committed position tells. BrokerNotAvailable and the like are not marked retriable over there.
    Verdict.TRANSIENT: """
        KafkaTimeoutError KafkaUnavailableError QuotaViolationError ProducerClosed
        BrokerNotAvailableError ReplicaNotAvailableError StaleControllerEpochError StaleLeaderEpochCodeError
        OutOfOrderSequenceNumber DuplicateSequenceNumber UnknownProducerId InvalidTxnState
        ConcurrentTransactions TransactionCoordinatorFenced OperationNotAttempted
        ReassignmentInProgress ListenerNotFound FetchSessionIdNotFound InvalidFetchSessionEpoch MemberIdRequired
        """,
    # Another member holds the partition, or the group has moved on. An expired transaction looks the same.
    Verdict.LOST: """
        ProducerFenced InvalidProducerEpoch InvalidProducerIdMapping
        CommitFailedError IllegalGenerationError UnknownMemberIdError RebalanceInProgressError IllegalStateError
        """,
    Verdict.CONFIGURATION: """
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
_TABLE: dict[type[BaseException], Verdict] = {
    getattr(theirs, name): verdict for verdict, names in _NAMES.items() for name in names.split()
} | {
    # The codes 82, 88 and 90 have no class there and arrive as UnknownError: going on could double records.
    theirs.UnknownError: Verdict.UNSAFE,
    theirs.ConsumerStoppedError: Verdict.UNSAFE,
    theirs.IllegalOperation: Verdict.UNSAFE,
    NotImplementedError: Verdict.CONFIGURATION,
    AssertionError: Verdict.TRANSIENT,
    OSError: Verdict.TRANSIENT,
}

_ADVICE: dict[type[BaseException], str] = {
    theirs.UnknownTopicOrPartitionError: "create the topic",
    theirs.MessageSizeTooLargeError: "raise max.message.bytes of the topic, and kafka.max_request_bytes",
    theirs.RecordListTooLargeError: "raise max.message.bytes and segment.bytes of the topic",
    theirs.OffsetOutOfRangeError: (
        "records were deleted before they were read; look what is missing, then set the group's offset "
        "with kafka-consumer-groups and start again"
    ),
    theirs.TopicAuthorizationFailedError: "grant the principal access to the topics of kafka.routes",
    theirs.GroupAuthorizationFailedError: "grant the principal READ on the consumer group",
    theirs.TransactionalIdAuthorizationFailed: "grant the principal WRITE on transactional ids deid-<group>-*",
    theirs.InvalidTransactionTimeout: "raise transaction.max.timeout.ms of the broker to 60000 at least",
    theirs.InvalidSessionTimeoutError: "set kafka.session_timeout_ms within the broker's group limits",
    NotImplementedError: "the broker's version is not supported; Apache Kafka 2.5 or later is needed",
}


def verdict_of(kind: type[BaseException]) -> Verdict:
    """What this class of error means; retriable ones are TRANSIENT, anything unknown is UNSAFE."""
    for base in kind.__mro__:
        if base in _TABLE:
            return _TABLE[base]
    return Verdict.TRANSIENT if getattr(kind, "retriable", False) else Verdict.UNSAFE


def cause_of(error: BaseException) -> BaseException:
    """The error that says what happened: the sender and the coordinator wrap it in a bare ``KafkaError``."""
    inner = error.__cause__
    if type(error) is theirs.KafkaError and isinstance(inner, CLIENT_ERRORS):
        return cause_of(inner)
    return error


def translate(error: BaseException, doing: str, *, starting: bool = False) -> DeidError:
    """The same fault in our tree. ``doing`` names what failed, with topics and partitions but no values.

    A fault of the configuration is a ``ConfigurationError`` while the agent starts; later it stops the
    agent (``UnsafeError``), except for a topic that the broker may not know yet after a restart.
    """
    error = cause_of(error)
    kind = type(error)
    advice = next((_ADVICE[base] for base in kind.__mro__ if base in _ADVICE), "")
    text = f"Kafka: {doing}: {kind.__name__}" + (f": {advice}" if advice else "")
    match verdict_of(kind):
        case Verdict.TRANSIENT:
            return TransientError(text)
        case Verdict.LOST:
            return LostError(text)
        case Verdict.CONFIGURATION if starting:
            return ConfigurationError(text)
        case Verdict.CONFIGURATION if getattr(kind, "retriable", False):
            return TransientError(text)
        case Verdict.CONFIGURATION | Verdict.UNSAFE:
            return UnsafeError(text)


_OTHER_HOST = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


def tls_advice(error: BaseException) -> str:
    """What to mend where TLS failed, alone or as the cause of what the library raised; empty where it did not.

    A broker that wants a certificate says so after the handshake (TLS 1.3), by an alert in place of its first answer.
    """
    found = error if isinstance(error, ssl.SSLError) else error.__cause__
    if not isinstance(found, ssl.SSLError):
        return ""
    if isinstance(found, ssl.SSLCertVerificationError):
        if found.verify_code in _OTHER_HOST:
            return "the broker's certificate is for another host: name it in kafka.bootstrap_servers as there"
        return "the broker's certificate is not trusted: set kafka.ssl_cafile to the authority that signed it"
    if "CERTIFICATE" in (found.reason or ""):
        return "the broker does not take our certificate, or wants one: set kafka.ssl_certfile and kafka.ssl_keyfile"
    return f"TLS failed ({found.reason}): check kafka.security_protocol"
