"""The section ``[service]``: the HTTP interface for clients that send messages and wait for the result."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, SecretStr, model_validator

from deid_agent.config.projects import Name
from deid_agent.config.secrets import read_secret_file
from deid_agent.config.service import Seconds, Section, secret_value
from deid_agent.config.smart import CLIENT_PATTERN, SmartSettings
from deid_agent.model import ConfigurationError

LOCAL_CLIENT: Final = "local"
"""The name of every client of a listener on loopback without logins."""
_CLIENT = re.compile(CLIENT_PATTERN)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HOW = (
    "write a line for each client: its name, a space, the SHA-256 of its token in hex; make a token with: "
    "head -c 32 /dev/urandom | base64"
)


@dataclass(frozen=True, slots=True)
class ClientToken:
    """A client and the SHA-256 of its token, in hex. The token itself is with the client only."""

    client: str
    digest: str


class ClientPermissions(Section):
    """The rights of one client."""

    projects: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="the only projects that the client may use; a client without this section may use all"
    )

    def __str__(self) -> str:
        return " and ".join(self.projects)


class ServiceSettings(Section):
    """The HTTP interface. A client sends a message and waits for the result, which is kept nowhere.

    It has a listener and limits of its own, so that clients cannot keep a probe from /readyz. ``records_per_s`` counts
    requests, and the lines of a stream.
    """

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; another than loopback needs TLS and logins",
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9466, description="port to listen on; 0 takes any free one, which the log then names"
    )
    max_requests: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=64, description="requests in process at once; half of them may be streams; more are answered 429"
    )
    max_in_flight_bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        default=256 * 1024 * 1024, description="bytes of all requests at once; more are answered 429"
    )
    max_connections: Annotated[int, Field(ge=2, le=4096)] = Field(
        default=256, description="connections at once; if all are in use, the quietest one gives way"
    )
    idle_s: Seconds = Field(default=30.0, description="time without a byte after which a connection is closed")
    answer_s: Seconds = Field(default=150.0, description="longest time for a result before the answer is 503")
    records_per_s: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        default=200.0, description="records of one client per second; more are answered 429, and streams slow down"
    )
    tokens_file: Path | None = Field(
        default=None, description="file of clients and SHA-256 digests of their bearer tokens, mode 0600"
    )
    clients: tuple[str, ...] = Field(
        default=(), description="names of certificates (SAN) that may use the interface; empty is all of the authority"
    )
    permissions: dict[str, ClientPermissions] = Field(
        default={}, description="rights of single clients, by the name of the token or certificate"
    )
    tls_certfile: Path | None = Field(default=None, description="certificate of the listener (PEM); switches TLS on")
    tls_keyfile: Path | None = Field(default=None, description="its key (PEM), mode 0600")
    tls_password: SecretStr | None = Field(default=None, description="password of the key; set it in the environment")
    tls_password_file: Path | None = Field(default=None, description="file with that password, mode 0600")
    tls_client_cafile: Path | None = Field(
        default=None, description="authority (PEM) that must have signed the certificate of every client"
    )
    smart: SmartSettings | None = None

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the interface."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            raise ValueError("tls_certfile and tls_keyfile go together")
        if self.tls_client_cafile is not None and self.tls_certfile is None:
            raise ValueError("tls_client_cafile needs tls_certfile and tls_keyfile: certificates need TLS")
        if self.clients and self.tls_client_cafile is None:
            raise ValueError("clients are names of certificates: set tls_client_cafile")
        by_token = self.tokens_file is not None or self.smart is not None
        if self.permissions and self.tls_client_cafile is not None and not by_token and not self.clients:
            raise ValueError("permissions limit single clients: list all names of certificates in clients")
        if self.loopback:
            return self
        if self.tls_certfile is None:
            raise ValueError(
                f"the interface listens on {self.host}, where others can reach it, without TLS: set "
                "service.tls_certfile and service.tls_keyfile"
            )
        if self.tokens_file is None and self.tls_client_cafile is None and self.smart is None:
            raise ValueError(
                f"the interface listens on {self.host}, where others can reach it, without logins: set "
                "service.tokens_file, service.tls_client_cafile or service.smart"
            )
        return self

    def key_password(self) -> str | None:
        """The password of the key, from the value or the file. Raises ``ConfigurationError``."""
        return secret_value(self.tls_password, self.tls_password_file, "service.tls_password")

    def tokens(self) -> tuple[ClientToken, ...]:
        """The clients of ``tokens_file``; several lines may name one client. Raises ``ConfigurationError``."""
        if self.tokens_file is None:
            return ()
        name = "service.tokens_file"
        try:
            text = read_secret_file(self.tokens_file, name).decode("ascii")
        except UnicodeDecodeError:
            raise ConfigurationError(f"{name} {self.tokens_file}: is not ASCII; {_HOW}") from None
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or line.startswith("#"):
                continue
            # The faulty line is not shown: it may hold a token in place of its digest.
            if len(words) != 2 or not _CLIENT.fullmatch(words[0]) or not _DIGEST.fullmatch(words[1]):
                raise ConfigurationError(f"{name} {self.tokens_file}: line {number}: {_HOW}")
            found.append(ClientToken(*words))
        if not found:
            raise ConfigurationError(f"{name} {self.tokens_file}: names no client; {_HOW}")
        if len({each.digest for each in found}) != len(found):
            raise ConfigurationError(f"{name} {self.tokens_file}: two lines have one token; each client has its own")
        return tuple(found)

    def permitted_projects(self, tokens: Sequence[ClientToken]) -> Mapping[str, frozenset[str]]:
        """The projects of each client that may not use all of them.

        Raises ``ConfigurationError`` for the name of no client: the one that was meant would have every right.
        """
        by_name = [LOCAL_CLIENT] if self.tls_client_cafile is None else self.clients
        signing = self.smart.clients if self.smart is not None else {}
        by_token = self.tokens_file is not None or self.smart is not None
        known = {*(each.client for each in tokens), *signing} if by_token else {*by_name}
        if unknown := sorted(self.permissions.keys() - known):
            raise ConfigurationError(
                f"service.permissions: {unknown[0]!r} is no client; the clients are: {', '.join(sorted(known))}"
            )
        return {name: frozenset(each.projects) for name, each in self.permissions.items()}


def is_client_name(name: str) -> bool:
    """True if a name of a certificate may be a client: it goes into the audit."""
    return _CLIENT.fullmatch(name) is not None
