"""Options of the Kafka clients: the ``[kafka]`` section, with the times and sizes that no setting changes."""

from collections.abc import Mapping
from typing import Self

from aiokafka.helpers import create_ssl_context
from pydantic import Field, model_validator

from deid_agent.agent import DEFAULT_PROJECT
from deid_agent.config import KafkaSettings, Settings
from deid_agent.model import ConfigurationError


class KafkaOptions(KafkaSettings):
    """The section, and what is derived from other sections or fixed. Times in milliseconds, sizes in bytes.

    Lines of the audit go to ``audit_topic``, if there is one. ``provenance_topics`` are those of input topics; the
    empty name is every other input. ``rebalance_timeout_ms`` is how long the group waits for
    this member to drain before it removes the member. ``commit_timeout_ms`` bounds one ``commit`` and is shorter than
    ``transaction_timeout_ms``. Within ``metadata_max_age_ms`` the group finds new partitions.
    """

    audit_topic: str | None = None
    provenance_topics: Mapping[str, str] = Field(default_factory=dict)
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 86_400_000
    request_timeout_ms: int = 15_000
    commit_timeout_ms: int = 30_000
    transaction_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 30_000
    fetch_wait_ms: int = 100
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_partition_bytes: int = 1024 * 1024
    batch_bytes: int = 512 * 1024
    linger_ms: int = 0

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.commit_timeout_ms >= self.transaction_timeout_ms:
            raise ValueError("commit_timeout_ms must be shorter than transaction_timeout_ms")
        return self

    def provenance_topic(self, source: str) -> str:
        """The topic for the Provenance of records from this input; empty if there is none."""
        return self.provenance_topics.get(source) or self.provenance_topics.get("", "")

    def transactional_id(self, topic: str, partition: int) -> str:
        """The id under which only the owner of this input partition may write; the same over restarts and members."""
        return f"deid-{self.group_id}-/{topic}/{partition}"

    def replay_id(self, topic: str) -> str:
        """The transactional id for replaying dead letters of this topic; the ids of partitions end in a digit."""
        return f"deid-{self.group_id}-/{self.dead_letter_topic(topic)}/replay"

    @property
    def longest_s(self) -> float:
        """The longest time in seconds for a message that is sent by itself, including connecting."""
        return (self.request_timeout_ms + self.commit_timeout_ms) / 1000

    def connection(self) -> dict[str, object]:
        """The arguments that all clients share. Raises ``ConfigurationError`` if TLS or password files do not load."""
        options: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol in ("SSL", "SASL_SSL"):
            options["ssl_context"] = self._tls_context()
        if self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.user_password()
        return options

    def _tls_context(self) -> object:
        # An empty password, not None: OpenSSL would ask the terminal for one and hang the agent.
        password = self.key_password() or ""
        try:
            return create_ssl_context(
                cafile=self.ssl_cafile and str(self.ssl_cafile),
                certfile=self.ssl_certfile and str(self.ssl_certfile),
                keyfile=self.ssl_keyfile and str(self.ssl_keyfile),
                password=password,
            )
        except OSError as problem:  # ssl.SSLError and a missing file alike
            raise ConfigurationError(
                f"kafka.ssl_cafile, ssl_certfile, ssl_keyfile: cannot be loaded ({type(problem).__name__}); "
                "name readable PEM files, and the key's password if it has one"
            ) from None


def kafka_options(settings: Settings) -> KafkaOptions:
    """The client options of these settings. Reads password files. Raises ``ConfigurationError``."""
    section = settings.kafka
    if section is None:
        raise ConfigurationError("there is no [kafka] section")
    # Password files are read once, here: a file that is replaced later must not stop a running agent.
    passwords = {
        "ssl_password": section.key_password(),
        "ssl_password_file": None,
        "sasl_password": section.user_password(),
        "sasl_password_file": None,
    }
    return KafkaOptions.model_validate(
        dict(section)
        | passwords
        | {
            "audit_topic": settings.audit.topic,
            "provenance_topics": _provenance_topics(settings),
            # The group must not remove a member that still drains.
            "rebalance_timeout_ms": max(60_000, int(2_000 * settings.agent.drain_s)),
        }
    )


def _provenance_topics(settings: Settings) -> dict[str, str]:
    """The topics for Provenance by input. Inputs of a pattern belong to the project ``default``."""
    markings = settings.markings
    named = {feed.topic: markings[feed.project].topic for feed in settings.feeds}
    named[""] = markings[DEFAULT_PROJECT].topic
    return {source: topic for source, topic in named.items() if topic is not None}
