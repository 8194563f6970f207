"""Outputs that go to another place than the one records come from."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from deid_agent.agent import (
    AssignmentListener,
    FinishedRecord,
    KnowsLag,
    KnowsOutage,
    Outcome,
    Output,
    Partition,
    Record,
    Transport,
)
from deid_agent.model import TransientError


class Sink(Protocol):
    """Receives outputs one by one: concurrently for different partitions, one after another for the same partition."""

    async def start(self) -> None:
        """Prepare for delivery. Raises ``ConfigurationError``, or ``TransientError`` if another attempt may succeed."""

    async def deliver(self, record: Record, output: Output) -> None:
        """Make the output of ``record`` durable.

        Raises ``TransientError`` if it was not delivered, ``UncertainCommitError`` if that is unknown,
        ``UndeliverableError`` if it will never be accepted, and ``UnsafeError`` if the agent must stop.
        """

    async def stop(self) -> None:
        """Close. Safe to call twice and before ``start``."""


@asynccontextmanager
async def hold_lock(lock: asyncio.Lock, limit_s: float, doing: str) -> AsyncIterator[None]:
    """Hold the lock.

    Raises ``TransientError`` if it is not free within ``limit_s``. Nothing was sent then, and the caller can try again.
    """
    try:
        async with asyncio.timeout(limit_s):
            await lock.acquire()
    except TimeoutError:
        raise TransientError(f"{doing}: other messages are still waiting before it") from None
    try:
        yield
    finally:
        lock.release()


class SinkTransport:
    """A ``Transport`` whose records come from ``source`` and whose outputs go to ``sink``.

    An output is durable in the sink before the source commits its record, with dead letters, audit lines and position.
    A crash between the two duplicates the output (at least once). When a commit is repeated, outputs that were already
    delivered are not delivered again; after a new assignment they are.
    """

    def __init__(self, source: Transport, sink: Sink) -> None:
        self._source = source
        self._sink = sink
        self._delivered: dict[Partition, int] = {}
        self._listener: AssignmentListener | None = None

    def __repr__(self) -> str:
        return f"SinkTransport({self._source!r} -> {self._sink!r})"

    async def start(self, listener: AssignmentListener) -> None:
        """See ``Transport.start``."""
        self._listener = listener
        await self._sink.start()
        await self._source.start(self)

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """See ``AssignmentListener.assigned``. Forgets old offsets: a topic that was created anew counts from 0."""
        for stream in streams:
            self._delivered.pop(stream, None)
        if self._listener is not None:
            await self._listener.assigned(streams)

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """See ``AssignmentListener.revoked``."""
        if self._listener is not None:
            await self._listener.revoked(streams)

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``."""
        return await self._source.poll(limit)

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._source.pause(stream)

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._source.resume(stream)

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """See ``Transport.commit``."""
        for item in batch:
            at = item.record.coordinates.offset
            if item.output is not None and at > self._delivered.get(stream, -1):
                await self._sink.deliver(item.record, item.output)
                self._delivered[stream] = at
        rest = [
            replace(item, outcome=Outcome.SUPPRESSED, output=None) if item.output is not None else item
            for item in batch
        ]
        await self._source.commit(stream, rest, position)

    @property
    def outage(self) -> str:
        """See ``KnowsOutage.outage``: that of the source."""
        return self._source.outage if isinstance(self._source, KnowsOutage) else ""

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        return self._source.lag(stream) if isinstance(self._source, KnowsLag) else None

    @property
    def exhausted(self) -> bool:
        """See ``Transport.exhausted``."""
        return self._source.exhausted

    async def stop(self) -> None:
        """Stop both, the source first, so that nothing more is delivered."""
        try:
            await self._source.stop()
        finally:
            async with asyncio.timeout(5.0):
                await self._sink.stop()
