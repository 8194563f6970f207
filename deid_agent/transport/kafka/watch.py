"""Watches the brokers of a running transport: whether one answers, and whether the topics are still the same.

aiokafka hides an outage: it retries for ever, and ``getmany`` returns nothing meanwhile. It also follows a name: if a
topic is deleted and created again, it continues in the new topic at the old offset and skips the records before that.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata

from deid_agent.telemetry import BrokerReachable, BrokerUnreachable, Telemetry
from deid_agent.transport.kafka.client import CLIENT_ERRORS, cancel_and_wait, root_cause
from deid_agent.transport.kafka.error_codes import kafka_name
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.protocol import TopicIdentity, topic_identities

_INTERVAL_S = 5.0
_RETRY_S = 1.0
_DISCOVER_S = 30.0

IdentitiesCallback = Callable[[Mapping[str, TopicIdentity]], None]
ClusterCallback = Callable[[ClusterMetadata], None]


class BrokerWatch:
    """Asks the brokers for the identities of the topics every few seconds while it runs."""

    def __init__(
        self, settings: KafkaOptions, telemetry: Telemetry, found: IdentitiesCallback, topics: ClusterCallback
    ) -> None:
        """``topics`` is called with all topics from time to time if the settings have a pattern."""
        self._settings = settings
        self._telemetry = telemetry
        self._found, self._topics = found, topics
        self._discovered_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._lost_at: float | None = None
        self._answered_at = 0.0

    @property
    def outage(self) -> bool:
        """True while no broker answers."""
        return self._lost_at is not None

    def begin(self, client: AIOKafkaClient, topics: Callable[[], Collection[str]]) -> None:
        """Watch with this client until ``end``."""
        self._discovered_at = time.monotonic()
        self._task = asyncio.create_task(self._watch(client, topics))

    async def end(self) -> None:
        """Stop watching. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)

    def answered(self) -> None:
        """A broker has sent something. A large fetch may hold back the answer to the watch."""
        self._answered_at = time.monotonic()
        if self._lost_at is not None:
            self._telemetry.emit(BrokerReachable(self._settings.bootstrap_servers, self._answered_at - self._lost_at))
            self._lost_at = None

    async def _watch(self, client: AIOKafkaClient, topics: Callable[[], Collection[str]]) -> None:
        while True:
            await asyncio.sleep(_RETRY_S if self.outage else _INTERVAL_S)
            asked_at = time.monotonic()
            try:
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    identities = await topic_identities(client, topics())
                    cluster = await self._discover(client)
            except CLIENT_ERRORS as error:
                if self._answered_at < asked_at:
                    self._failed(kafka_name(type(root_cause(error))), asked_at)
            else:
                self.answered()
                self._found(identities)
                if cluster is not None:
                    self._topics(cluster)

    async def _discover(self, client: AIOKafkaClient) -> ClusterMetadata | None:
        """All topics, if it is time to look for new ones."""
        now = time.monotonic()
        if self._settings.topics_pattern is None or now - self._discovered_at < _DISCOVER_S:
            return None
        self._discovered_at = now
        return await client.fetch_all_metadata()

    def _failed(self, error: str, asked_at: float) -> None:
        if self._lost_at is None:
            self._lost_at = asked_at
        seconds = round(time.monotonic() - self._lost_at, 1)
        self._telemetry.emit(BrokerUnreachable(self._settings.bootstrap_servers, error, seconds))
