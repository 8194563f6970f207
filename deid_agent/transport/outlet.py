"""Where outputs go when that is another place than where records come from."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from deid_agent.agent.ports import KnowsLag, Listener, Outcome, Output, Partition, Record, Settled, Transport
from deid_agent.errors import TransientError


class Outlet(Protocol):
    """Takes outputs one by one. Called for different partitions at once, for one partition one after another."""

    async def start(self) -> None:
        """Make ready. Raises ``ConfigurationError``, or ``TransientError`` where it is worth another try."""

    async def deliver(self, record: Record, output: Output) -> None:
        """Make the output of ``record`` durable.

        Raises ``TransientError`` where it does not stand there, ``DoubtError`` where nobody knows, ``UnwantedError``
        where it will never be taken, ``UnsafeError`` where going on is unsafe.
        """

    async def stop(self) -> None:
        """Close; safe to call twice and before ``start``."""


@asynccontextmanager
async def turn(lock: asyncio.Lock, limit_s: float, where: str) -> AsyncIterator[None]:
    """Holds the lock. ``TransientError`` where others have it for so long: nothing was sent, and its sender waits."""
    try:
        async with asyncio.timeout(limit_s):
            await lock.acquire()
    except TimeoutError:
        raise TransientError(f"{where}: others before it still wait") from None
    try:
        yield
    finally:
        lock.release()


class OutletTransport:
    """Implements ``Transport``: records come from ``source``, outputs go through ``outlet``.

    An output stands at the outlet before the source settles its record, which keeps dead letters, audit lines
    and position. Between the two a crash doubles: at least once. What was delivered is not delivered again
    when a settle is repeated, but after a new assignment it is.
    """

    def __init__(self, source: Transport, outlet: Outlet) -> None:
        self._source = source
        self._outlet = outlet
        self._delivered: dict[Partition, int] = {}
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        return f"OutletTransport({self._source!r} -> {self._outlet!r})"

    async def start(self, listener: Listener) -> None:
        """See ``Transport.start``."""
        self._listener = listener
        await self._outlet.start()
        await self._source.start(self)

    async def assigned(self, streams: Sequence[Partition]) -> None:
        """See ``Listener.assigned``. A topic that was made anew counts from 0: old offsets say nothing."""
        for stream in streams:
            self._delivered.pop(stream, None)
        if self._listener is not None:
            await self._listener.assigned(streams)

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """See ``Listener.revoked``."""
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

    async def settle(self, stream: Partition, batch: Sequence[Settled], position: int) -> None:
        """See ``Transport.settle``."""
        for item in batch:
            at = item.record.coordinates.offset
            if item.output is not None and at > self._delivered.get(stream, -1):
                await self._outlet.deliver(item.record, item.output)
                self._delivered[stream] = at
        rest = [
            replace(item, outcome=Outcome.SUPPRESSED, output=None) if item.output is not None else item
            for item in batch
        ]
        await self._source.settle(stream, rest, position)

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        return self._source.lag(stream) if isinstance(self._source, KnowsLag) else None

    @property
    def exhausted(self) -> bool:
        """See ``Transport.exhausted``."""
        return self._source.exhausted

    async def stop(self) -> None:
        """Both; the source first, so that nothing more is delivered."""
        try:
            await self._source.stop()
        finally:
            async with asyncio.timeout(5.0):
                await self._outlet.stop()
