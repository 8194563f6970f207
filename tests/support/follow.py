"""A reader that follows topics while they grow, and returns once a condition holds."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from support.kafka_internals import partition_numbers

from deid_agent.transport.kafka.client_internals import client_of

ID = "deid-id"


class Follower:
    """Counts the distinct inputs whose outputs or dead letters are in ``topics``, from the beginning.

    It continues after the broker restarts. With ``isolation="read_uncommitted"`` it sees outputs before
    their commit, which is the moment to kill a process.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], isolation: str = "read_committed") -> None:
        self.seen: dict[bytes, int] = {}
        self.records: list[ConsumerRecord] = []
        self._topics = topics
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        )
        self._grown = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Follower":
        await self._consumer.start()
        self._consumer.assign(await self._partitions())
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pause()
        await self._consumer.stop()

    async def reach(self, holds: Callable[[], bool]) -> None:
        """Return once ``holds`` is true; it is called after each batch of records."""
        async with self._grown:
            await self._grown.wait_for(holds)

    async def find_partitions(self, count: int) -> None:
        """Follow partitions that were added; return once each topic has ``count``."""
        await self._pause()
        before = {tp: await self._consumer.position(tp) for tp in self._consumer.assignment()}
        found: list[TopicPartition] = []
        while len(found) < count * len(self._topics):
            await client_of(self._consumer).force_metadata_update()
            found = await self._partitions()
        self._consumer.assign(found)
        for tp, position in before.items():
            self._consumer.seek(tp, position)
        self._task = asyncio.create_task(self._follow())

    async def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in await partition_numbers(self._consumer, topic)
        ]

    async def _pause(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(KafkaError):
                found = await self._consumer.getmany(timeout_ms=200)
                async with self._grown:
                    for record in (record for records in found.values() for record in records):
                        self.records.append(record)
                        name = dict(record.headers).get(ID, b"")
                        self.seen[name] = self.seen.get(name, 0) + 1
                    if found:
                        self._grown.notify_all()
