"""The operator's pages: health, metrics and the console."""

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from deid_agent.config.section import Section, password
from deid_agent.errors import ConfigurationError

_TOKEN_LEAST, _TOKEN_MOST = 20, 512
_HOW_TO_TOKEN = "make one with: (umask 077; head -c 24 /dev/urandom | base64 > console.token)"  # noqa: S105 - says how, and is none


class HttpSettings(Section):
    """Where health and metrics are served."""

    enabled: bool = Field(default=True, description="serve /healthz, /readyz and /metrics")
    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; loopback alone unless another is given"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9464, description="port to listen on; 0 takes any free one, which the log then names"
    )
    console: bool = Field(default=False, description="serve the console at /console/; it is read-only")
    console_token: SecretStr | None = Field(
        default=None, description="whoever looks at the console must have it; set it in the environment"
    )
    console_token_file: Path | None = Field(
        default=None, description="file of that token in its place, mode 0600; a last line end is left out"
    )
    console_write: bool = Field(
        default=False,
        description="let the console put dead letters back; needs a token, and their private key each time",
    )
    console_playground: bool = Field(default=True, description="let the console try notes and messages; stores nothing")
    console_report: Path | None = Field(
        default=None, description="a page of `eval --html` that the console shows; it holds text, so it needs a token"
    )

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach the pages."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def has_token(self) -> bool:
        """True where a token is named, wherever it lies."""
        return self.console_token is not None or self.console_token_file is not None

    @model_validator(mode="after")
    def _console_is_closed(self) -> "HttpSettings":
        if self.console and not self.enabled:
            raise ValueError("console needs enabled = true: it is served beside health and metrics")
        if self.has_token or not self.console:
            return self
        how = f"set http.console_token_file; {_HOW_TO_TOKEN}"
        if not self.loopback:
            raise ValueError(f"the console listens on {self.host}, where others can reach it, without a token: {how}")
        if self.console_write:
            raise ValueError(f"console_write needs a token: {how}")
        if self.console_report is not None:
            raise ValueError(f"console_report holds text of notes and needs a token: {how}")
        return self

    def token(self) -> str | None:
        """The console's token, from wherever it comes. Raises ``ConfigurationError``, also for one that is short."""
        found = password(self.console_token, self.console_token_file, "http.console_token")
        if found is not None and not (_TOKEN_LEAST <= len(found) <= _TOKEN_MOST and found.isascii()):
            raise ConfigurationError(
                f"http.console_token: {_TOKEN_LEAST} to {_TOKEN_MOST} characters of ASCII; {_HOW_TO_TOKEN}"
            )
        return found
