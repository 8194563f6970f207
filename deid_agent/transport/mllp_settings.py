"""What the MLLP transport is told: frozen dataclasses of plain values, checked when they are made."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from deid_agent import secret
from deid_agent.errors import ConfigurationError
from deid_agent.transport.mllp_ack import Verdict


class Trouble(StrEnum):
    """What a sender is told of a message that could not be taken because of us."""

    ANSWER = "answer"
    """AE or CE with a code."""

    CLOSE = "close"
    """Nothing: the connection is closed, and whoever sends again by itself does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of one side. ``authority`` is whom the other side's certificate must be signed by."""

    certificate: Path | None = None
    key: Path | None = None
    password: str | None = field(default=None, repr=False)
    authority: Path | None = None

    def server(self, section: str) -> ssl.SSLContext:
        """For a listener; wants a client's certificate where there is an ``authority``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(context, section)
        if self.authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, section: str) -> ssl.SSLContext:
        """For a sender; trusts what the system trusts where there is no ``authority``. Names are checked."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(context, section)
        if self.authority is None:
            context.load_default_certs()
        return context

    def _load(self, context: ssl.SSLContext, section: str) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.key is not None:
            secret.read(self.key, f"{section}.tls_keyfile")
        try:
            if self.certificate is not None:
                # An empty password, not None: OpenSSL would ask the terminal for one and hang the agent.
                context.load_cert_chain(self.certificate, self.key, self.password or "")
            if self.authority is not None:
                context.load_verify_locations(self.authority)
        except OSError as problem:  # ssl.SSLError and a missing file alike
            raise ConfigurationError(
                f"{section}.tls_*: a file cannot be loaded ({type(problem).__name__}); name readable PEM files, "
                "and the key's password if it has one"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """The listener. Times in seconds.

    ``read_timeout_s`` is for a whole message, from its first byte. ``answer_s`` is how long a message may wait for the
    place where messages go before its sender is told that it was not taken. ``refused`` is what the sender is
    told of a message that stands among the dead letters. Each connection has at most ``max_pending`` messages
    that are not answered, or ``max_message_bytes`` and one message; then nothing more is read of it.
    """

    host: str = "127.0.0.1"
    port: int = 2575
    max_connections: int = 32
    max_message_bytes: int = 16 << 20
    max_pending: int = 64
    idle_timeout_s: float = 3600.0
    read_timeout_s: float = 30.0
    answer_s: float = 20.0
    trouble: Trouble = Trouble.ANSWER
    refused: Verdict = Verdict.ACCEPT
    tls: Tls | None = None

    def context(self) -> ssl.SSLContext | None:
        """For TLS; None without. Raises ``ConfigurationError``."""
        return None if self.tls is None else self.tls.server("mllp")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    """The receiver. Times in seconds.

    ``error_attempts``: how often a message is sent that is answered AE or CE before it is given up; 0 is for ever.
    """

    host: str
    port: int
    connections: int = 1
    connect_timeout_s: float = 10.0
    ack_timeout_s: float = 30.0
    error_attempts: int = 0
    tls: Tls | None = None

    @property
    def longest_s(self) -> float:
        """How long one message may take."""
        return self.connect_timeout_s + self.ack_timeout_s

    @property
    def place(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """For TLS; None without. Raises ``ConfigurationError``."""
        return None if self.tls is None else self.tls.client("mllp_out")
