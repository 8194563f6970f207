"""What the Kafka transport is told: one frozen dataclass of plain values, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from aiokafka.helpers import create_ssl_context

from deid_agent.errors import ConfigurationError

_COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Delivery(StrEnum):
    """What the transport promises about an output."""

    EXACTLY_ONCE = "exactly_once"
    """Outputs, dead letters and position in one transaction; readers must read committed."""

    AT_LEAST_ONCE = "at_least_once"
    """Outputs acknowledged, then dead letters, then the position; a crash between them doubles records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The broker, the group and the routes. Times in milliseconds, sizes in bytes.

    ``routes`` maps each input topic to its output topic, which is empty where outputs go elsewhere. Dead letters go
    to input topic + suffix, lines of the audit to ``audit_topic``, if there is one.
    ``instance_id`` gives static membership (KIP-345): a restart within the session causes no rebalance.
    ``rebalance_timeout_ms`` is how long others wait for this member's drain before it is thrown out.
    ``settle_timeout_ms`` bounds one ``settle`` and stays below ``transaction_timeout_ms``.
    Making one raises ``ConfigurationError`` where a value cannot work.
    """

    bootstrap_servers: str
    group_id: str
    routes: Mapping[str, str]
    dead_letter_suffix: str = ".dlq"
    audit_topic: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    client_id: str = "deid-agent"
    instance_id: str | None = None
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 86_400_000
    request_timeout_ms: int = 15_000
    settle_timeout_ms: int = 30_000
    transaction_timeout_ms: int = 60_000
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_partition_bytes: int = 1024 * 1024
    max_request_bytes: int = 64 * 1024 * 1024
    batch_bytes: int = 512 * 1024
    linger_ms: int = 0
    compression: str | None = None
    security_protocol: str = "PLAINTEXT"
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_password: str | None = field(default=None, repr=False)
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", MappingProxyType(dict(self.routes)))
        object.__setattr__(self, "delivery", Delivery(self.delivery))
        for wrong, what in self._faults():
            if wrong:
                raise ConfigurationError(f"kafka.{what}")

    def _faults(self) -> tuple[tuple[bool, str], ...]:
        inputs, outputs = set(self.routes), set(self.routes.values())
        letters = {self.letters_of(topic) for topic in inputs}
        secured = self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        return (
            (not _are_addresses(self.bootstrap_servers), "bootstrap_servers: write host:port, several with commas"),
            (not self.group_id, "group_id: name the consumer group"),
            (not self.routes, "routes: map at least one input topic to its output topic"),
            (not self.dead_letter_suffix, "dead_letter_suffix: must not be empty"),
            (bool(inputs & outputs), "routes: a topic is an input and an output, its messages would go round"),
            (bool(letters & (inputs | outputs)), "routes: a topic of dead letters is an input or an output"),
            (
                self.audit_topic in inputs | outputs | letters,
                "routes: the topic of the audit (audit.topic) takes messages too; give it one of its own",
            ),
            (self.compression not in _COMPRESSIONS, "compression: use gzip, snappy, lz4 or zstd, or leave it out"),
            (self.security_protocol not in _PROTOCOLS, f"security_protocol: use one of {', '.join(_PROTOCOLS)}"),
            (self.sasl_mechanism not in _MECHANISMS, f"sasl_mechanism: use one of {', '.join(_MECHANISMS)}"),
            (secured and not (self.sasl_username and self.sasl_password), "sasl_username, sasl_password: set both"),
            (
                self.settle_timeout_ms >= self.transaction_timeout_ms,
                "settle_timeout_ms: must be shorter than transaction_timeout_ms",
            ),
        )

    def letters_of(self, topic: str) -> str:
        """The topic that takes the dead letters of this input topic."""
        return topic + self.dead_letter_suffix

    def transactional_id(self, topic: str, partition: int) -> str:
        """The id that only the owner of this input partition may write under; stable over restarts and members."""
        return f"deid-{self.group_id}-/{topic}/{partition}"

    def replay_id(self, topic: str) -> str:
        """The transactional id for putting letters of this topic back; those of partitions end in a digit."""
        return f"deid-{self.group_id}-/{self.letters_of(topic)}/replay"

    @property
    def longest_s(self) -> float:
        """How long one message may take that is sent by itself, from connecting on."""
        return (self.request_timeout_ms + self.settle_timeout_ms) / 1000

    def connection(self) -> dict[str, object]:
        """The arguments that every client shares. Raises ``ConfigurationError`` where TLS files don't load."""
        options: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol in ("SSL", "SASL_SSL"):
            options["ssl_context"] = self._tls()
        if self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.sasl_password
        return options

    def _tls(self) -> object:
        # An empty password, not None: OpenSSL would ask the terminal for one and hang the agent.
        try:
            return create_ssl_context(
                cafile=self.ssl_cafile and str(self.ssl_cafile),
                certfile=self.ssl_certfile and str(self.ssl_certfile),
                keyfile=self.ssl_keyfile and str(self.ssl_keyfile),
                password=self.ssl_password or "",
            )
        except OSError as problem:  # ssl.SSLError and a missing file alike
            raise ConfigurationError(
                f"kafka.ssl_cafile, ssl_certfile, ssl_keyfile: cannot be loaded ({type(problem).__name__}); "
                "name readable PEM files, and the key's password if it has one"
            ) from None


def _are_addresses(servers: str) -> bool:
    """True for ``host:port`` or ``[v6]:port``, one or several with commas."""
    parts = [part.strip().rpartition(":") for part in servers.split(",")]
    return all(host and port.isdigit() and 0 < int(port) < 65536 for host, _, port in parts)
