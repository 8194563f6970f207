"""The sections of the transports: ``[kafka]``, ``[mllp]``, ``[mllp_out]`` and ``[directory]``."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from deid_agent.config.service import Seconds, Section, secret_value
from deid_agent.config.topic_patterns import PLACEHOLDER, pattern_fault

_COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Delivery(StrEnum):
    """The delivery guarantee of the Kafka transport."""

    EXACTLY_ONCE = "exactly_once"
    """Outputs, dead letters and position in one transaction; readers must use ``read_committed``."""

    AT_LEAST_ONCE = "at_least_once"
    """Outputs are acknowledged first, then dead letters, then the position; a crash in between duplicates records."""


class FailureReply(StrEnum):
    """The reply to the sender of a message that the agent could not take for a reason of its own."""

    ANSWER = "answer"
    """AE or CE with a code."""

    CLOSE = "close"
    """None: the connection is closed, for senders that send again by themselves after that."""


class KafkaSettings(Section):
    """The broker, the consumer group and the routes.

    ``routes`` maps each input topic to its output topic, which is empty if outputs go elsewhere. ``instance_id`` gives
    static membership (KIP-345): a restart within the session causes no rebalance.
    """

    bootstrap_servers: str = Field(description="host:port, several with commas")
    group_id: str = Field(default="deid-agent", description="consumer group")
    routes: dict[str, str] = Field(default={}, description="input topic = output topic")
    topics_pattern: str | None = Field(
        default=None, description="in place of routes: input topics by regular expression, also those that come later"
    )
    output: str | None = Field(
        default=None, description='output topic of each input of topics_pattern, such as "deid.{topic}"'
    )
    delivery: Delivery = Field(default=Delivery.EXACTLY_ONCE, description="exactly_once or at_least_once")
    dead_letter_suffix: str = Field(
        default=".dlq", min_length=1, description="dead letters of a topic go to topic + this"
    )
    client_id: str = Field(default="deid-agent", description="name in the broker's logs")
    instance_id: str | None = Field(default=None, description="static membership")
    session_timeout_ms: Annotated[int, Field(ge=1000)] = Field(default=30_000, description="group session")
    longest_stop_hours: Annotated[int, Field(ge=1, le=87_600)] = Field(
        default=168,
        description="longest planned stop of all agents; `check` warns if the broker forgets positions sooner",
    )
    max_request_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024, description="largest request; the broker's message.max.bytes must allow it"
    )
    compression: str | None = Field(default=None, description="gzip, snappy, lz4 or zstd")
    security_protocol: str = Field(default="PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    ssl_cafile: Path | None = Field(default=None, description="certificate authority (PEM)")
    ssl_certfile: Path | None = Field(default=None, description="client certificate (PEM)")
    ssl_keyfile: Path | None = Field(default=None, description="client key (PEM)")
    ssl_password: SecretStr | None = Field(
        default=None, description="password of the client key; set it in the environment"
    )
    ssl_password_file: Path | None = Field(
        default=None, description="file with that password, mode 0600; a final line end is ignored"
    )
    sasl_mechanism: str = Field(default="PLAIN", description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    sasl_username: str | None = Field(default=None, description="SASL user")
    sasl_password: SecretStr | None = Field(default=None, description="SASL password; set it in the environment")
    sasl_password_file: Path | None = Field(
        default=None, description="file with the SASL password, mode 0600; a final line end is ignored"
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_addresses(cls, value: str) -> str:
        """Accepts ``host:port`` and ``[v6]:port``, one or several with commas."""
        parts = [part.strip().rpartition(":") for part in value.split(",")]
        if not all(host and port.isdigit() and 0 < int(port) < 65536 for host, _, port in parts):
            raise ValueError("write host:port, several with commas")
        return value

    @field_validator("group_id")
    @classmethod
    def _check_group(cls, value: str) -> str:
        if not value:
            raise ValueError("name the consumer group")
        return value

    @field_validator("compression")
    @classmethod
    def _check_compression(cls, value: str | None) -> str | None:
        if value is not None and value not in _COMPRESSIONS:
            raise ValueError("use gzip, snappy, lz4 or zstd, or leave it out")
        return value

    @field_validator("security_protocol")
    @classmethod
    def _check_protocol(cls, value: str) -> str:
        if value not in _PROTOCOLS:
            raise ValueError(f"use one of {', '.join(_PROTOCOLS)}")
        return value

    @field_validator("sasl_mechanism")
    @classmethod
    def _check_mechanism(cls, value: str) -> str:
        if value not in _MECHANISMS:
            raise ValueError(f"use one of {', '.join(_MECHANISMS)}")
        return value

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        if self.topics_pattern is None:
            if not self.routes:
                raise ValueError("kafka.routes: name at least one input topic, or set kafka.topics_pattern")
            if self.output is not None:
                raise ValueError("kafka.output is for kafka.topics_pattern: name the output topics in kafka.routes")
        elif self.routes:
            raise ValueError("kafka.routes, kafka.topics_pattern: set one of them")
        elif fault := pattern_fault(self.topics_pattern, self.output or ""):
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        inputs, outputs = set(self.routes), set(self.routes.values())
        if loops := sorted(inputs & outputs):
            raise ValueError(
                f"kafka.routes: topic {loops[0]!r} is an input and an output: its messages would loop forever"
            )
        if clashes := sorted({self.dead_letter_topic(topic) for topic in inputs} & (inputs | outputs)):
            raise ValueError(
                f"kafka.routes: topic {clashes[0]!r} is a topic of dead letters and an input or an output; "
                "change the route or kafka.dead_letter_suffix"
            )
        return self

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        password = self.sasl_password is not None and bool(self.sasl_password.get_secret_value())
        has_password = password or self.sasl_password_file is not None
        if self.security_protocol.startswith("SASL_") and not (self.sasl_username and has_password):
            raise ValueError("kafka.sasl_username, kafka.sasl_password: set both")
        return self

    def route(self, topic: str) -> str | None:
        """The output topic of an input topic; None if this is no input topic.

        A topic of dead letters is never an input of a pattern, nor is an internal topic of Kafka.
        """
        if self.topics_pattern is None:
            return self.routes.get(topic)
        if topic.startswith("__") or topic.endswith(self.dead_letter_suffix):
            return None
        matched = re.fullmatch(self.topics_pattern, topic)
        return (self.output or "").replace(PLACEHOLDER, topic) if matched else None

    def dead_letter_topic(self, topic: str) -> str:
        """The topic that takes the dead letters of this input topic."""
        return topic + self.dead_letter_suffix

    def key_password(self) -> str | None:
        """The password of the client key, from the value or the file. Raises ``ConfigurationError``."""
        return secret_value(self.ssl_password, self.ssl_password_file, "kafka.ssl_password")

    def user_password(self) -> str | None:
        """The SASL password, from the value or the file. Raises ``ConfigurationError``."""
        return secret_value(self.sasl_password, self.sasl_password_file, "kafka.sasl_password")


class MllpSettings(Section):
    """The listener for HL7 v2 over MLLP.

    Inside a message a sender may fall ``read_timeout_s`` behind ``min_bytes_per_s``; a short message has that time in
    all. If all connections are in use, a new sender waits that long for one. ``answer_s`` is how long a message may
    wait for its destination before its sender gets the answer that it was not taken. A connection has at most
    ``max_pending`` unanswered messages, or ``max_message_bytes`` and one message; beyond that it is not read.
    """

    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; the default is loopback only"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=2575, description="port to listen on; 0 takes any free one, which the log then names"
    )
    dead_letters: Path = Field(description="folder of refused messages with the reasons")
    state: Path | None = Field(
        default=None, description="file of the numbers of messages; None is `numbers` in dead_letters"
    )
    output: Path | None = Field(
        default=None, description="folder of sanitized messages, if the top-level output is directory"
    )
    refused: Annotated[str, Field(pattern="^(AA|AE|AR)$")] = Field(
        default="AA", description="answer to a message that became a dead letter: AA, AE or AR (or CA, CE, CR)"
    )
    trouble: FailureReply = Field(
        default=FailureReply.ANSWER,
        description="reply to a message that the agent could not take: answer AE, or close the connection",
    )
    answer_s: Seconds = Field(
        default=20.0, description="longest time a message waits for its destination before it is answered AE"
    )
    max_connections: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=32, description="connections at once; if all are in use, the stalest one gives way to a new sender"
    )
    max_connections_per_address: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="most connections of one address; a proxy's senders share one, so the default is none"
    )
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=16 * 1024 * 1024, description="longer messages are answered AR and not kept"
    )
    max_pending: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="most unanswered messages of a connection; beyond that it is not read for a while"
    )
    read_timeout_s: Seconds = Field(
        default=30.0, description="longest silence inside a message, and longest time for reading our answers"
    )
    min_bytes_per_s: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=500, description="slowest rate of a message; read_timeout_s is the delay that it may accumulate"
    )
    idle_timeout_s: Annotated[float, Field(gt=0, le=604_800)] = Field(
        default=3600.0, description="time after which a silent connection is closed"
    )
    tls_certfile: Path | None = Field(default=None, description="certificate of the listener (PEM); switches TLS on")
    tls_keyfile: Path | None = Field(default=None, description="its key (PEM), mode 0600")
    tls_password: SecretStr | None = Field(default=None, description="password of the key; set it in the environment")
    tls_password_file: Path | None = Field(default=None, description="file with that password, mode 0600")
    tls_client_cafile: Path | None = Field(
        default=None, description="authority (PEM) that must have signed the certificate of every sender"
    )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        _check_key_pair(self.tls_certfile, self.tls_keyfile)
        if self.tls_client_cafile is not None and self.tls_certfile is None:
            raise ValueError("tls_client_cafile needs tls_certfile and tls_keyfile: certificates need TLS")
        return self

    def key_password(self) -> str | None:
        """The password of the key, from the value or the file. Raises ``ConfigurationError``."""
        return secret_value(self.tls_password, self.tls_password_file, "mllp.tls_password")


class MllpOutSettings(Section):
    """The receiver of sanitized messages over MLLP."""

    host: str = Field(min_length=1, description="host of the receiver")
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(description="its port")
    connections: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="connections to it; each keeps the order, and the messages of one sender use one"
    )
    connect_timeout_s: Seconds = Field(default=10.0, description="time to connect")
    ack_timeout_s: Seconds = Field(default=30.0, description="time for its answer, before the message is sent again")
    error_attempts: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="times a message that it answers AE or CE is sent before it is refused; 0 is unlimited"
    )
    tls: bool = Field(default=False, description="encrypt, and check its certificate and name")
    tls_cafile: Path | None = Field(default=None, description="authority (PEM) in place of those of the system")
    tls_certfile: Path | None = Field(default=None, description="our certificate (PEM), if it asks for one")
    tls_keyfile: Path | None = Field(default=None, description="its key (PEM), mode 0600")
    tls_password: SecretStr | None = Field(default=None, description="password of the key; set it in the environment")
    tls_password_file: Path | None = Field(default=None, description="file with that password, mode 0600")

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        _check_key_pair(self.tls_certfile, self.tls_keyfile)
        if not self.tls and (self.tls_cafile or self.tls_certfile):
            raise ValueError("certificates are given but tls is false: nothing would be encrypted")
        return self

    @property
    def longest_s(self) -> float:
        """The longest time that one message may take."""
        return self.connect_timeout_s + self.ack_timeout_s

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def key_password(self) -> str | None:
        """The password of the key, from the value or the file. Raises ``ConfigurationError``."""
        return secret_value(self.tls_password, self.tls_password_file, "mllp_out.tls_password")


def _check_key_pair(certfile: Path | None, keyfile: Path | None) -> None:
    if (certfile is None) != (keyfile is None):
        raise ValueError("tls_certfile and tls_keyfile go together")


class DirectorySettings(Section):
    """Folders in place of topics."""

    input: Path = Field(
        description="folder of messages, read recursively without hidden files; only `replay` writes to it"
    )
    output: Path = Field(description="sanitized messages, under the same relative names")
    dead_letters: Path = Field(
        description="refused messages with the reasons; file names are in the clear and may hold PHI"
    )
    state: Path = Field(description="a file: the messages that are done, as keyed digests of name and content")
    watch: bool = Field(default=False, description="keep running and take new and changed files")
    interval_s: Seconds = Field(default=1.0, description="time between two scans of a watched folder")
    stable_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=5.0, description="time for which size and times of a file must not change before a watch takes it"
    )
