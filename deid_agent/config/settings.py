"""One frozen ``Settings`` of all sections, and what must hold between them."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from deid_agent.config.agent import AgentSettings, AuditSettings, DeadLetterSettings
from deid_agent.config.directory import DirectorySettings
from deid_agent.config.http import HttpSettings
from deid_agent.config.kafka import KafkaSettings
from deid_agent.config.mllp import MllpOutSettings, MllpSettings

PREFIX = "DEID_"


class TransportKind(StrEnum):
    """Where messages come from and go to."""

    KAFKA = "kafka"
    DIRECTORY = "directory"
    MLLP = "mllp"


class Settings(BaseSettings):
    """Everything that an operator can set. Plain values go down to the parts; nobody else reads the environment."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    transport: TransportKind = Field(description="where messages come from: kafka, directory or mllp")
    output: TransportKind | None = Field(
        default=None,
        description="where outputs go, as transport if nothing is said; kafka to mllp, mllp to kafka or directory",
    )
    policy: str = Field(default="pseudonymised", description="a shipped profile or a policy file")
    profile: str = Field(default="recall", description="precision, balanced or recall")
    system: str = Field(default="default", description="which recognizers run")
    key_file: Path | None = Field(default=None, description="the secret key, at least 32 bytes, mode 0600")
    allow_demo_key: bool = Field(default=False, description="let Kafka and MLLP run with the demo key")
    rules: Path | None = Field(default=None, description="rules folder in place of the packaged one")
    models: Path | None = Field(default=None, description="models folder in place of the packaged one")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="least severe log line")
    agent: AgentSettings = AgentSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    kafka: KafkaSettings | None = None
    directory: DirectorySettings | None = None
    mllp: MllpSettings | None = None
    mllp_out: MllpOutSettings | None = None
    audit: AuditSettings
    http: HttpSettings = HttpSettings()

    @model_validator(mode="after")
    def _transport_is_set(self) -> "Settings":
        if getattr(self, self.transport.value) is None:
            raise ValueError(f"transport is {self.transport.value!r} but there is no [{self.transport.value}] section")
        if self.audit.topic is not None and self.transport is not TransportKind.KAFKA:
            raise ValueError("audit.topic is a topic of Kafka: take it away, or set the transport to kafka")
        return self

    @property
    def goes_to(self) -> TransportKind:
        """Where outputs go."""
        return self.output or self.transport

    @model_validator(mode="after")
    def _outputs_have_a_place(self) -> "Settings":
        match self.transport, self.goes_to:
            case TransportKind.KAFKA | TransportKind.MLLP, TransportKind.MLLP:
                if self.mllp_out is None:
                    raise ValueError("outputs go to mllp but there is no [mllp_out] section: name the receiver there")
                if self.kafka is not None and any(self.kafka.routes.values()):
                    raise ValueError('kafka.routes: outputs go to mllp: write "input topic" = "" for each')
            case TransportKind.MLLP, TransportKind.KAFKA:
                if self.kafka is None or set(self.kafka.routes) != {"mllp"} or not self.kafka.routes["mllp"]:
                    raise ValueError('kafka.routes: write "mllp" = "output topic", for what comes over MLLP')
            case TransportKind.MLLP, TransportKind.DIRECTORY:
                if self.mllp is None or self.mllp.output is None:
                    raise ValueError("outputs go to a folder: name it in mllp.output")
            case source, target if source is not target:
                raise ValueError(f"output: from {source.value} to {target.value} is not supported")
            case TransportKind.KAFKA, _ if self.kafka is not None and not all(self.kafka.routes.values()):
                raise ValueError("kafka.routes: name the output topic of each input topic")
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
