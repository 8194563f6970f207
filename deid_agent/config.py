"""One frozen ``Settings`` from flags, environment and a TOML file, in that order of precedence.

Unknown keys are errors, in the file and in the environment: a mistyped
``DEID_POLCY`` that silently ran the default policy would leak.
"""

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from deid_agent import secret
from deid_agent.errors import ConfigurationError

_PREFIX = "DEID_"
_OTHER_VARIABLES = frozenset({"DEID_KEY", "DEID_SHARED", "DEID_REQUIRE_BROKER"})

Seconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class TransportKind(StrEnum):
    """Where messages come from and go to."""

    KAFKA = "kafka"
    DIRECTORY = "directory"


class DeliveryKind(StrEnum):
    """What Kafka promises about an output."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentSettings(_Section):
    """How much runs at once, and for how long."""

    workers: Annotated[int, Field(ge=0, le=256)] = Field(
        default=2, description="worker processes; 0 runs in the agent's own process (tests only)"
    )
    deadline_s: Seconds = Field(default=30.0, description="longest time for one message before its worker is replaced")
    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="tries of a message whose worker died, before it is dead-lettered as POISON"
    )
    max_in_flight: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=512, description="records at work per partition before it is paused"
    )
    batch: Count = Field(default=100, description="most records settled at once (one transaction)")
    drain_s: Seconds = Field(default=20.0, description="time to finish work on a rebalance; a stop is over by then")
    start_s: Seconds = Field(default=60.0, description="time for the broker to answer at the start, before giving up")
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024, description="larger messages are dead-lettered as RESOURCE"
    )
    validate_output: bool = Field(
        default=False, description="check with hl7apy and fhir.resources that no output is less valid than its input"
    )


class DeadLetterSettings(_Section):
    """How refused messages are kept, and how many are too many. One of the first two must be said."""

    public_key: Path | None = Field(
        default=None, description="they are sealed to the key in this .pub file of `deid-agent letters keygen`"
    )
    plain: bool = Field(default=False, description="they are kept in the clear, with all PHI; in place of a key")
    ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description="most dead letters among the last 1,000 records of a partition; one more stops the agent",
    )
    run: Count = Field(default=500, description="most dead letters in a row of one partition; one more stops the agent")


class KafkaSettings(_Section):
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
        return _password(self.ssl_password, self.ssl_password_file, "kafka.ssl_password")

    def user_password(self) -> str | None:
        """The SASL password, from wherever it comes. Raises ``ConfigurationError``."""
        return _password(self.sasl_password, self.sasl_password_file, "kafka.sasl_password")


def _password(value: SecretStr | None, path: Path | None, setting: str) -> str | None:
    return secret.password(None if value is None else value.get_secret_value(), path, setting)


class DirectorySettings(_Section):
    """Folders in place of topics."""

    input: Path = Field(
        description="folder of messages, read recursively without hidden files; written to by `replay` alone"
    )
    output: Path = Field(description="sanitized messages, under the same relative names")
    dead_letters: Path = Field(description="refused messages and why; in the clear or with names they hold PHI")
    state: Path = Field(description="a file: which messages are settled, by keyed digests of name and content")
    watch: bool = Field(default=False, description="keep running and take new and changed files")
    interval_s: Seconds = Field(default=1.0, description="time between two looks at a watched folder")
    settle_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=5.0, description="time for which a file's size and times must stand still before a watch takes it"
    )


class AuditSettings(_Section):
    """What was done, without a value."""

    path: Path = Field(description="a folder: chained lines in segments, synced before any position moves")
    checkpoint_s: Seconds = Field(default=1.0, description="time after which what was written is signed, at the latest")
    segment_bytes: Annotated[int, Field(ge=65_536)] = Field(
        default=64 * 1024 * 1024, description="size at which a segment ends and the next begins"
    )
    topic: str | None = Field(
        default=None, min_length=1, description="Kafka topic that gets every entry too, with the outputs"
    )


class HttpSettings(_Section):
    """Where health and metrics are served."""

    enabled: bool = Field(default=True, description="serve /healthz, /readyz and /metrics")
    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; loopback alone unless another is given"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9464, description="port to listen on; 0 takes any free one, which the log then names"
    )


class Settings(BaseSettings):
    """Everything that an operator can set. Plain values go down to the parts; nobody else reads the environment."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    transport: TransportKind = Field(description="kafka or directory")
    policy: str = Field(default="pseudonymised", description="a shipped profile or a policy file")
    profile: str = Field(default="recall", description="precision, balanced or recall")
    system: str = Field(default="default", description="which recognizers run")
    key_file: Path | None = Field(default=None, description="the secret key, at least 32 bytes, mode 0600")
    allow_demo_key: bool = Field(default=False, description="let Kafka run with the demo key")
    rules: Path | None = Field(default=None, description="rules folder in place of the packaged one")
    models: Path | None = Field(default=None, description="models folder in place of the packaged one")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="least severe log line")
    agent: AgentSettings = AgentSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    kafka: KafkaSettings | None = None
    directory: DirectorySettings | None = None
    audit: AuditSettings
    http: HttpSettings = HttpSettings()

    @model_validator(mode="after")
    def _transport_is_set(self) -> "Settings":
        if getattr(self, self.transport.value) is None:
            raise ValueError(f"transport is {self.transport.value!r} but there is no [{self.transport.value}] section")
        if self.audit.topic is not None and self.transport is not TransportKind.KAFKA:
            raise ValueError("audit.topic is a topic of Kafka: take it away, or set the transport to kafka")
        return self

    @model_validator(mode="after")
    def _letters_are_decided(self) -> "Settings":
        letters = self.dead_letters
        if letters.plain == (letters.public_key is not None):
            raise ValueError(
                "dead_letters: say one of public_key (make a pair with: deid-agent letters keygen --out letters.key; "
                "name letters.key.pub) and plain = true (dead letters hold PHI, and lie there in the clear)"
            )
        return self


def load(path: Path, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of the file at ``path`` under the environment and ``overrides`` (flags; ``None`` means unset).

    Raises ``ConfigurationError``: one line per call that names the file, the setting and what is wrong. It never
    shows a value.
    """
    if not path.is_file():
        raise ConfigurationError(f"configuration {path}: no such file")
    refuse_unknown_variables()
    flags = {key: value for key, value in (overrides or {}).items() if value is not None}

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic-settings names the four)
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)

    try:
        return FromFile(**flags)  # type: ignore[arg-type]  # the model checks the flags
    except ValidationError as problem:
        raise ConfigurationError(f"configuration {path}: {_first(problem)}") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"configuration {path}: not TOML: {problem}") from None
    except OSError as problem:
        raise ConfigurationError(f"configuration {path}: cannot be read ({type(problem).__name__})") from None


def _first(problem: ValidationError) -> str:
    """The first fault as ``section.key: what is wrong``, and how many more there are."""
    errors = problem.errors(include_input=False, include_url=False, include_context=False)
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"])
    text = {"extra_forbidden": "unknown setting", "missing": "is required"}.get(first["type"], first["msg"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return (f"{name}: {text}" if name else text.removeprefix("Value error, ")) + more


def refuse_unknown_variables() -> None:
    """``ConfigurationError`` for a ``DEID_`` variable of the environment that no setting has."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    for variable in sorted(os.environ):
        if not variable.startswith(_PREFIX) or variable.startswith("DEID_TEST_"):
            continue
        if variable.split("__")[0] not in known:
            raise ConfigurationError(f"environment variable {variable}: unknown setting; unset it or correct its name")
