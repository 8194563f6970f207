"""Kafka: the broker, what it promises, and the routes."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from deid_agent.config.section import Section, password


class DeliveryKind(StrEnum):
    """What Kafka promises about an output."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class KafkaSettings(Section):
    """The broker, the group and the routes."""

    bootstrap_servers: str = Field(description="host:port, several with commas")
    group_id: str = Field(default="deid-agent", description="consumer group")
    routes: dict[str, str] = Field(min_length=1, description="input topic = output topic")
    delivery: DeliveryKind = Field(default=DeliveryKind.EXACTLY_ONCE, description="exactly_once or at_least_once")
    dead_letter_suffix: str = Field(
        default=".dlq", min_length=1, description="dead letters of a topic go to topic + this"
    )
    client_id: str = Field(default="deid-agent", description="name in the broker's logs")
    instance_id: str | None = Field(default=None, description="static membership")
    session_timeout_ms: Annotated[int, Field(ge=1000)] = Field(default=30_000, description="group session")
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
        default=None, description="file of that password in its place, mode 0600; a last line end is left out"
    )
    sasl_mechanism: str = Field(default="PLAIN", description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    sasl_username: str | None = Field(default=None, description="SASL user")
    sasl_password: SecretStr | None = Field(default=None, description="SASL password; set it in the environment")
    sasl_password_file: Path | None = Field(
        default=None, description="file of the SASL password in its place, mode 0600; a last line end is left out"
    )

    @model_validator(mode="after")
    def _no_loops(self) -> "KafkaSettings":
        if loops := sorted(set(self.routes) & set(self.routes.values())):
            raise ValueError(f"topic {loops[0]!r} is an input and an output: its messages would go round for ever")
        return self

    def key_password(self) -> str | None:
        """The password of the client key, from wherever it comes. Raises ``ConfigurationError``."""
        return password(self.ssl_password, self.ssl_password_file, "kafka.ssl_password")

    def user_password(self) -> str | None:
        """The SASL password, from wherever it comes. Raises ``ConfigurationError``."""
        return password(self.sasl_password, self.sasl_password_file, "kafka.sasl_password")
