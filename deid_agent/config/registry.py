"""The section ``[registry]``: the schema registry of records with a schema."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from deid_agent.config.service import Section, secret_value


class RegistrySettings(Section):
    """The address and the credentials of a schema registry with Confluent's HTTP interface."""

    url: str = Field(description="address with http:// or https://; several with commas, tried in order")
    username: str | None = Field(default=None, description="user of basic authentication")
    password: SecretStr | None = Field(default=None, description="its password; set it in the environment")
    password_file: Path | None = Field(
        default=None, description="file with that password, mode 0600; a final line end is ignored"
    )
    ca_file: Path | None = Field(default=None, description="certificate authority (PEM); the system's by default")
    cert_file: Path | None = Field(default=None, description="client certificate (PEM)")
    key_file: Path | None = Field(default=None, description="client key (PEM), not encrypted")
    timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(default=5.0, description="longest time for one request")
    cache: Annotated[int, Field(ge=1, le=100_000)] = Field(default=1000, description="schemas kept by each worker")

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses in order."""
        return tuple(part.strip() for part in self.url.split(","))

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        for each in value.split(","):
            try:
                parts = urlsplit(each.strip())
                valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
            except ValueError:
                valid = False
            if not valid:
                raise ValueError("write https://host:port, several with commas")
            if parts.username is not None or parts.query or parts.fragment:
                raise ValueError("an address without user, query and fragment: credentials have their own settings")
        return value

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.username is not None):
            raise ValueError("set username and one of password and password_file, or none of them")
        if self.cert_file is None and self.key_file is not None:
            raise ValueError("key_file needs cert_file")
        files = (self.ca_file, self.cert_file)
        if any(each is not None for each in files) and not any(url.startswith("https:") for url in self.urls):
            raise ValueError("ca_file and cert_file are for https:// addresses")
        return self

    def secret(self) -> str | None:
        """The password. Raises ``ConfigurationError`` like ``read_password``."""
        return secret_value(self.password, self.password_file, "registry.password")
