"""MLLP: the listener for messages, and the receiver of sanitized ones."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from deid_agent.config.section import Seconds, Section, password


class MllpSettings(Section):
    """The listener for HL7 v2 over MLLP."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; loopback alone unless another is given"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=2575, description="port to listen on; 0 takes any free one, which the log then names"
    )
    dead_letters: Path = Field(description="folder of refused messages and why")
    output: Path | None = Field(
        default=None, description="folder of sanitized messages, where the top-level output is directory"
    )
    refused: Annotated[str, Field(pattern="^(AA|AE|AR)$")] = Field(
        default="AA", description="answer to a message that stands among the dead letters: AA, AE or AR (or CA, CE, CR)"
    )
    trouble: Annotated[str, Field(pattern="^(answer|close)$")] = Field(
        default="answer",
        description="to a message that was not taken because of us: answer AE, or close the connection",
    )
    answer_s: Seconds = Field(
        default=20.0, description="time that a message waits for the place where it goes, before its sender is told"
    )
    max_connections: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=32, description="senders at once; one more takes the place of the one idle for longest, if any is"
    )
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=16 * 1024 * 1024, description="longer messages are answered AR and not kept"
    )
    max_pending: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="messages of a connection that are not answered; then it is not read for a while"
    )
    read_timeout_s: Seconds = Field(default=30.0, description="time for a whole message, and for reading our answers")
    idle_timeout_s: Annotated[float, Field(gt=0, le=604_800)] = Field(
        default=3600.0, description="time after which a silent connection is closed"
    )
    tls_certfile: Path | None = Field(default=None, description="certificate of the listener (PEM); switches TLS on")
    tls_keyfile: Path | None = Field(default=None, description="its key (PEM), mode 0600")
    tls_password: SecretStr | None = Field(default=None, description="password of the key; set it in the environment")
    tls_password_file: Path | None = Field(default=None, description="file of that password, mode 0600")
    tls_client_cafile: Path | None = Field(
        default=None, description="authority (PEM) that must have signed the certificate of every sender"
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "MllpSettings":
        _certificate_has_its_key(self.tls_certfile, self.tls_keyfile)
        if self.tls_client_cafile is not None and self.tls_certfile is None:
            raise ValueError("tls_client_cafile needs tls_certfile and tls_keyfile: without TLS nobody is asked")
        return self

    def key_password(self) -> str | None:
        """The password of the key, from wherever it comes. Raises ``ConfigurationError``."""
        return password(self.tls_password, self.tls_password_file, "mllp.tls_password")


class MllpOutSettings(Section):
    """The receiver of sanitized messages over MLLP."""

    host: str = Field(min_length=1, description="where the receiver listens")
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(description="its port")
    connections: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="connections to it; order holds within each, and one sender's messages stay on one"
    )
    connect_timeout_s: Seconds = Field(default=10.0, description="time to connect")
    ack_timeout_s: Seconds = Field(default=30.0, description="time for its answer, before the message is sent again")
    error_attempts: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="sendings of a message that it answers AE or CE, before it is refused; 0 is for ever"
    )
    tls: bool = Field(default=False, description="encrypt, and check its certificate and name")
    tls_cafile: Path | None = Field(default=None, description="authority (PEM) in place of those of the system")
    tls_certfile: Path | None = Field(default=None, description="our certificate (PEM), where it wants one")
    tls_keyfile: Path | None = Field(default=None, description="its key (PEM), mode 0600")
    tls_password: SecretStr | None = Field(default=None, description="password of the key; set it in the environment")
    tls_password_file: Path | None = Field(default=None, description="file of that password, mode 0600")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "MllpOutSettings":
        _certificate_has_its_key(self.tls_certfile, self.tls_keyfile)
        if not self.tls and (self.tls_cafile or self.tls_certfile):
            raise ValueError("certificates are given but tls is false: nothing would be encrypted")
        return self

    def key_password(self) -> str | None:
        """The password of the key, from wherever it comes. Raises ``ConfigurationError``."""
        return password(self.tls_password, self.tls_password_file, "mllp_out.tls_password")


def _certificate_has_its_key(certfile: Path | None, keyfile: Path | None) -> None:
    if (certfile is None) != (keyfile is None):
        raise ValueError("tls_certfile and tls_keyfile go together")
