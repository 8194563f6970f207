"""The section ``[service.smart]``: logins of the HTTP interface by signed tokens (SMART Backend Services)."""

import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from deid_agent.config.service import Section

CLIENT_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}"
"""The name of a client. It goes into the audit."""
OWN_ALGORITHMS: Final = ("ES384", "RS384")
"""The signatures that SMART Backend Services requires of servers."""


def _is_local(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def _check_address(value: str) -> str:
    """A plain address: a token or a key that travels there must not be readable on the way."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is no address") from None
    if not host or not value.isascii() or not value.isprintable() or set(value) & set(' "<>\\^`{|}@?#'):
        raise ValueError("write https://HOST/PATH, without user, query and fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_local(host)):
        raise ValueError("write https://; http:// is for this machine only")
    return value


def _check_keys(value: str) -> str:
    if not _check_address(value).startswith("https://"):
        raise ValueError("write https://: whoever changes the keys on their way can log in")
    return value


Address = Annotated[str, AfterValidator(_check_address)]
KeysAddress = Annotated[str, AfterValidator(_check_keys)]
ClientName = Annotated[str, Field(pattern=f"^{CLIENT_PATTERN}$")]


class SmartMode(StrEnum):
    """Who gives out access tokens."""

    SELF = "self"
    ISSUER = "issuer"


class SmartClientSettings(Section):
    """The public keys of one client, from a file or from its address."""

    jwks_file: Path | None = Field(default=None, description="mode self: file with the client's public keys (JWKS)")
    jwks_url: KeysAddress | None = Field(default=None, description="mode self: https address of those keys")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("set jwks_file or jwks_url")
        return self

    def __str__(self) -> str:
        return str(self.jwks_file or self.jwks_url)


class SmartSettings(Section):
    """Logins by signed tokens. With ``self`` this agent gives out the access tokens, else another server does."""

    mode: SmartMode = Field(description="self: this agent gives out access tokens; issuer: another server does")
    url: Address = Field(
        description="address of the interface as its clients write it; in mode self, tokens are at url/token"
    )
    clients: dict[ClientName, SmartClientSettings] = Field(default={}, description="mode self: the clients, by name")
    issuer: str | None = Field(default=None, min_length=1, description="mode issuer: the claim iss of its tokens")
    token_url: Address | None = Field(default=None, description="mode issuer: the address at which it gives out tokens")
    audience: str | None = Field(default=None, min_length=1, description="mode issuer: the claim aud; None is url")
    jwks_file: Path | None = Field(default=None, description="mode issuer: file with its public keys (JWKS)")
    jwks_url: KeysAddress | None = Field(default=None, description="mode issuer: https address of those keys")
    jwks_cafile: Path | None = Field(
        default=None, description="authority (PEM) of the addresses of keys, in place of the system's"
    )
    algorithms: Annotated[tuple[Literal["ES256", "ES384", "RS256", "RS384"], ...], Field(min_length=1)] = Field(
        default=OWN_ALGORITHMS, description="signatures that are accepted; in mode self ES384 and RS384 only"
    )
    attempts_per_s: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=5.0, description="mode self: requests for tokens of one address per second; more are answered 429"
    )

    @property
    def token_endpoint(self) -> str:
        """The address at which clients get tokens."""
        return self.token_url or f"{self.url}/token"

    @property
    def fetches(self) -> bool:
        """True if keys come from an address."""
        return self.jwks_url is not None or any(each.jwks_url is not None for each in self.clients.values())

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.url.endswith("/"):
            raise ValueError("url: write it without / at its end")
        theirs = {name: getattr(self, name) for name in ("issuer", "token_url", "audience", "jwks_file", "jwks_url")}
        if self.mode is SmartMode.SELF:
            if given := [name for name, value in theirs.items() if value is not None]:
                raise ValueError(f"{given[0]} is of mode issuer; remove it")
            if not self.clients:
                raise ValueError("mode self needs a client: add [service.smart.clients.NAME]")
            if foreign := [each for each in self.algorithms if each not in OWN_ALGORITHMS]:
                raise ValueError(f"algorithms: {foreign[0]} is for mode issuer only")
        else:
            if self.clients:
                raise ValueError("clients are of mode self: in mode issuer the other server has them")
            if missing := [name for name in ("issuer", "token_url") if theirs[name] is None]:
                raise ValueError(f"mode issuer needs {missing[0]}")
            if (self.jwks_file is None) == (self.jwks_url is None):
                raise ValueError("mode issuer needs jwks_file or jwks_url")
        if self.jwks_cafile is not None and not self.fetches:
            raise ValueError("jwks_cafile is for addresses of keys; there is no jwks_url")
        return self
