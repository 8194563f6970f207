"""Waiting for records of a consumer, in a way that can be woken or cancelled without losing one."""

import asyncio
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition

from deid_agent.agent import Partition
from deid_agent.transport.kafka.client import cancel_and_wait
from deid_agent.transport.kafka.consumer import Consumer

_POLL_S = 0.5
_NOTHING = TopicPartition("", 0)
"""No partition: ``getmany`` treats an empty list as all partitions."""

Fetched = dict[TopicPartition, list[ConsumerRecord]]


class Fetcher:
    """Fetches for one transport. ``is_ready`` is true for the partitions whose records may be delivered."""

    def __init__(self, is_ready: Callable[[Partition], bool]) -> None:
        self._is_ready = is_ready
        self._wakeup = asyncio.Event()
        self._fetching: asyncio.Task[Fetched] | None = None

    def wake(self) -> None:
        """End a waiting ``fetch`` now."""
        self._wakeup.set()

    async def cancel(self) -> None:
        """End a running fetch without a result; no fetch spans two assignments."""
        if self._fetching is not None:
            await cancel_and_wait(self._fetching)

    async def fetch(self, consumer: Consumer, wanted: frozenset[Partition], limit: int) -> Fetched:
        """Return the records of ``wanted`` that arrive within ``_POLL_S``; return early when woken. Loses none when
        cancelled.
        """
        self._wakeup.clear()
        partitions = [TopicPartition(stream.topic, stream.number) for stream in sorted(wanted)] or [_NOTHING]
        call = consumer.getmany(*partitions, timeout_ms=int(_POLL_S * 1000), max_records=limit)
        fetch = self._fetching = asyncio.create_task(call)
        woken = asyncio.create_task(self._wakeup.wait())
        try:
            # ``getmany`` alone would wait without limit during a rebalance.
            await asyncio.wait({fetch, woken}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            await cancel_and_wait(fetch)
        except asyncio.CancelledError:
            await cancel_and_wait(fetch)
            self._seek_back(consumer, fetch)
            raise
        finally:
            woken.cancel()
            self._fetching = None
        return {} if fetch.cancelled() else fetch.result()

    def _seek_back(self, consumer: Consumer, fetch: "asyncio.Task[Fetched]") -> None:
        if fetch.cancelled() or fetch.exception() is not None:
            return
        for tp, records in fetch.result().items():
            if records and self._is_ready(Partition(tp.topic, tp.partition)):
                consumer.seek(tp, records[0].offset)
