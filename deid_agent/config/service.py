"""The base of every settings section, and the sections ``[agent]``, ``[dead_letters]``, ``[audit]`` and ``[http]``."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from deid_agent.config.secrets import read_password
from deid_agent.model import ConfigurationError

Seconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Section(BaseModel):
    """Base of every section: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def secret_value(value: SecretStr | None, path: Path | None, setting: str) -> str | None:
    """The secret of ``setting``, from its value or its file. Raises ``ConfigurationError`` like ``read_password``."""
    return read_password(None if value is None else value.get_secret_value(), path, setting)


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting in the form for a person. For a secret ``value`` reports only that it is set."""

    name: str
    value: str
    default: bool
    meaning: str


def shown_settings(model: BaseModel, prefix: str = "") -> Iterator[ShownSetting]:
    """Every setting with its dotted name, in the order of the model; the settings of a section follow in its place."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from shown_settings(value, f"{prefix}{name}.")
        else:
            yield ShownSetting(prefix + name, _shown_value(value), value == info.default, info.description or "")


def _shown_value(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(set, not shown)"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {item}" for key, item in value.items())
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class AgentSettings(Section):
    """Parallelism and time limits."""

    workers: Annotated[int, Field(ge=0, le=256)] = Field(
        default=2, description="worker processes; 0 runs in the agent's own process (tests only)"
    )
    deadline_s: Seconds = Field(default=60.0, description="longest time for one message before its worker is replaced")
    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="attempts for a message whose worker died, before it is dead-lettered as POISON"
    )
    max_in_flight: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=512, description="records in flight per partition before it is paused"
    )
    batch: Count = Field(default=100, description="most records committed at once (one transaction)")
    drain_s: Seconds = Field(default=20.0, description="time to finish work on a rebalance or a stop")
    start_s: Seconds = Field(default=60.0, description="time for the broker to answer at the start")
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024, description="larger messages are dead-lettered as RESOURCE"
    )
    remembered_patients: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0,
        description="patients per worker whose names are found in their later messages too; outputs then depend on "
        "earlier messages",
    )
    validate_output: bool = Field(
        default=False,
        description="check with hl7apy and fhir.resources that no output is less valid than its input; of XML, that it "
        "is well-formed",
    )


class DeadLetterSettings(Section):
    """How refused messages are kept, and how many stop the agent. Exactly one of the first two must be set."""

    public_key: Path | None = Field(
        default=None,
        description="seal dead letters to this public key, a .pub file of `deid-agent dead-letters keygen`",
    )
    plain: bool = Field(default=False, description="keep dead letters in the clear, with all PHI, in place of a key")
    ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description="most dead letters among the last 1,000 records of a partition; one more stops the agent",
    )
    run: Count = Field(default=500, description="most dead letters in a row of one partition; one more stops the agent")


class DriftSettings(Section):
    """How the agent compares feeds with the samples of their leak bounds."""

    window: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=200, description="documents of one comparison; 0 compares nothing (docs/leak-bound.md)"
    )
    file: Path | None = Field(
        default=None, description="file that keeps the comparisons over restarts, for check; None keeps nothing"
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if 0 < self.window < 50:
            raise ValueError("window: 0, or 50 and more: fewer documents show no difference")
        return self


class AuditSettings(Section):
    """The audit trail, which contains no values."""

    path: Path = Field(description="folder of the trail: chained lines in segments, synced before a commit")
    checkpoint_s: Seconds = Field(default=1.0, description="longest time before written lines are signed")
    segment_bytes: Annotated[int, Field(ge=65_536)] = Field(
        default=64 * 1024 * 1024, description="size at which the next segment begins"
    )
    agent: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] | None = Field(
        default=None, description="name of this agent in its trail; None is the name of the host"
    )
    epoch_s: Seconds = Field(
        default=3600.0, description="longest time that one key signs; a stop ends it too, and then it is destroyed"
    )
    witness_file: Path | None = Field(
        default=None, description="file on another disk that gets the signed heads, one a line"
    )
    witness_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] | None = Field(
        default=None, description="http or https address that gets the signed heads by POST"
    )
    witness_s: Seconds = Field(default=10.0, description="shortest time between two heads for the witnesses")
    unexamined: Path | None = Field(
        default=None, description="CSV file that counts the values that leave unread, by path; costs time per message"
    )
    topic: str | None = Field(
        default=None, min_length=1, description="Kafka topic that also gets every entry, with the outputs"
    )


_TOKEN_LEAST, _TOKEN_MOST = 20, 512
_HOW_TO_TOKEN = "make one with: (umask 077; head -c 24 /dev/urandom | base64 > console.token)"  # noqa: S105 - not a token


class HttpSettings(Section):
    """The operator's pages: health, metrics and the console."""

    enabled: bool = Field(default=True, description="serve /healthz, /readyz and /metrics")
    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; the default is loopback only"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9464, description="port to listen on; 0 takes any free one, which the log then names"
    )
    console: bool = Field(default=False, description="serve the console at /console/; it is read-only")
    console_token: SecretStr | None = Field(
        default=None, description="token that the console asks for; set it in the environment"
    )
    console_token_file: Path | None = Field(
        default=None, description="file with that token, mode 0600; a final line end is ignored"
    )
    console_write: bool = Field(
        default=False,
        description="let the console replay dead letters; needs a token, and their private key each time",
    )
    console_playground: bool = Field(default=True, description="let the console try notes and messages; stores nothing")
    console_report: Path | None = Field(
        default=None, description="page of `eval --html` for the console; it contains text, so it needs a token"
    )

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the pages."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def has_token(self) -> bool:
        """True if a token or its file is set."""
        return self.console_token is not None or self.console_token_file is not None

    @model_validator(mode="after")
    def _check_console(self) -> "HttpSettings":
        if self.console and not self.enabled:
            raise ValueError("console needs enabled = true")
        if self.has_token or not self.console:
            return self
        hint = f"set http.console_token_file; {_HOW_TO_TOKEN}"
        if not self.loopback:
            raise ValueError(f"the console listens on {self.host}, where others can reach it, without a token: {hint}")
        if self.console_write:
            raise ValueError(f"console_write needs a token: {hint}")
        if self.console_report is not None:
            raise ValueError(f"console_report contains text of notes and needs a token: {hint}")
        return self

    def token(self) -> str | None:
        """The token of the console. Raises ``ConfigurationError`` if it cannot be read or is too short."""
        found = secret_value(self.console_token, self.console_token_file, "http.console_token")
        if found is not None and not (_TOKEN_LEAST <= len(found) <= _TOKEN_MOST and found.isascii()):
            raise ConfigurationError(
                f"http.console_token: {_TOKEN_LEAST} to {_TOKEN_MOST} characters of ASCII; {_HOW_TO_TOKEN}"
            )
        return found
