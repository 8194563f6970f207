"""A bus in memory: the reference implementation of the transport contract, and a test double.

A ``Cluster`` outlives its transports, as a broker outlives its clients. It commits strictly: a batch that skips,
repeats or reorders a record raises ``UnsafeError``, and so does a batch from a transport that no longer owns the
partition.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.agent.outcomes import dead_letter_headers, read_lineage
from deid_agent.agent.ports import (
    AssignmentListener,
    Coordinates,
    FinishedRecord,
    Headers,
    Outcome,
    Output,
    Partition,
    Record,
)
from deid_agent.model.errors import DeidError, TransientError, UnsafeError

_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class MemoryDeadLetter:
    """A stored dead letter: headers without a value, and the unchanged payload."""

    headers: Headers
    payload: bytes = field(repr=False)


class Cluster:
    """The state that outlives a transport: partitions, positions, outputs, dead letters.

    ``fail`` makes the next calls of an operation (``start``, ``poll``, ``commit``) raise; ``hold`` blocks them until
    ``release``. For one event loop only.
    """

    def __init__(self, *streams: Partition) -> None:
        self.logs: dict[Partition, list[Record]] = {stream: [] for stream in streams}
        self.positions: dict[Partition, int] = dict.fromkeys(streams, 0)
        self.finished: dict[Partition, list[FinishedRecord]] = {stream: [] for stream in streams}
        self.owners: dict[Partition, MemoryTransport] = {}
        self.members: list[MemoryTransport] = []
        self._faults: dict[str, deque[DeidError]] = defaultdict(deque)
        self._held: dict[str, asyncio.Event] = {}
        self._turn = asyncio.Lock()

    def produce(
        self,
        stream: Partition,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        skip: int = 0,
    ) -> Coordinates:
        """Append a record, ``skip`` offsets after the last, as compaction and transaction markers leave gaps."""
        log = self.logs[stream]
        offset = (log[-1].coordinates.offset + 1 if log else 0) + skip
        record = Record(Coordinates(stream.topic, stream.number, offset), payload, key, headers)
        log.append(record)
        for member in self.members:
            member.wake()
        return record.coordinates

    def outputs(self, stream: Partition) -> list[Output]:
        """The outputs in the order in which a consumer reads them."""
        return [item.output for item in self.finished[stream] if item.output is not None]

    def dead_letters(self, stream: Partition) -> list[MemoryDeadLetter]:
        """The dead letters of a partition, in order."""
        return [
            MemoryDeadLetter(
                dead_letter_headers(item.record.coordinates, item.dead_letter, read_lineage(item.record)),
                item.record.payload,
            )
            for item in self.finished[stream]
            if item.dead_letter is not None
        ]

    def fail(self, operation: str, *errors: DeidError) -> None:
        """The next calls of ``operation`` raise these, one each, before anything happens."""
        self._faults[operation].extend(errors)

    def hold(self, operation: str) -> None:
        """Calls of ``operation`` wait from now on."""
        self._held[operation] = asyncio.Event()

    def release(self, operation: str) -> None:
        """Let held calls of ``operation`` go on."""
        self._held.pop(operation).set()

    async def gate(self, operation: str) -> None:
        """Apply the faults that a test has planned for this operation."""
        if (held := self._held.get(operation)) is not None:
            await held.wait()
        if self._faults[operation]:
            raise self._faults[operation].popleft()

    async def share(self) -> None:
        """Assign all partitions again: an eager rebalance, in which every member first gives up all partitions."""
        async with self._turn:
            await self._collect()
            streams, count = sorted(self.logs), len(self.members)
            for number, member in enumerate(list(self.members)):
                await self._hand(member, streams[number::count])

    async def assign(self, plan: Mapping["MemoryTransport", Sequence[Partition]]) -> None:
        """Rebalance to ``plan``: every owner is notified and awaited, then the partitions change hands."""
        async with self._turn:
            await self._collect()
            for member, streams in plan.items():
                await self._hand(member, streams)

    async def _collect(self) -> None:
        for member in list(self.members):
            if lost := [stream for stream in sorted(self.logs) if self.owners.get(stream) is member]:
                await member.lose(lost)

    async def _hand(self, member: "MemoryTransport", streams: Sequence[Partition]) -> None:
        # A member that died while others were waited for gets nothing.
        if streams and member in self.members:
            await member.gain(streams)

    def kill(self, member: "MemoryTransport") -> None:
        """The member leaves without notice, as after SIGKILL; its later calls are fenced."""
        if member in self.members:
            self.members.remove(member)
        for stream in [s for s, owner in self.owners.items() if owner is member]:
            del self.owners[stream]

    def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """Apply a batch whole, or raise ``UnsafeError`` and apply nothing."""
        begin = self.positions[stream]
        due = [r.coordinates.offset for r in self.logs[stream] if begin <= r.coordinates.offset < position]
        got = [item.record.coordinates.offset for item in batch]
        if not got or got != due or any(item.record.coordinates.stream != stream for item in batch):
            raise UnsafeError(
                f"{stream.topic}/{stream.number}: a batch skips, repeats or reorders a record; "
                f"position {begin} -> {position}, {len(due)} due, {len(got)} given"
            )
        for item in batch:
            shape = (item.output is not None, item.dead_letter is not None)
            if shape != (item.outcome is Outcome.PUBLISHED, item.outcome is Outcome.DEAD_LETTERED):
                raise UnsafeError(f"{item.record.coordinates}: {item.outcome} does not fit what was given")
        self.finished[stream].extend(batch)
        self.positions[stream] = position


class MemoryTransport:
    """One client of a ``Cluster``. With ``finite``, it is exhausted once its partitions are read to the end."""

    def __init__(self, cluster: Cluster, *, finite: bool = True, join: bool = True) -> None:
        self._cluster = cluster
        self._finite = finite
        self._join = join
        self._listener: AssignmentListener | None = None
        self._cursors: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._woken = asyncio.Event()
        self._stopped = False

    async def start(self, listener: AssignmentListener) -> None:
        """Join the cluster; with ``join`` the partitions are assigned again."""
        await self._cluster.gate("start")
        self._listener = listener
        self._cluster.members.append(self)
        if self._join:
            await self._cluster.share()

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``."""
        await self._cluster.gate("poll")
        records = self._next(limit)
        if not records and not self._stopped:
            self._woken.clear()
            try:
                async with asyncio.timeout(0 if self.exhausted else _WAIT_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            records = self._next(limit)
        return records

    def _next(self, limit: int) -> list[Record]:
        found: list[Record] = []
        for stream, cursor in self._cursors.items():
            if stream not in self._paused:
                waiting = (r for r in self._cluster.logs[stream] if r.coordinates.offset >= cursor)
                found += [r for r, _ in zip(waiting, range(limit - len(found)), strict=False)]
        for record in found:
            self._cursors[record.coordinates.stream] = record.coordinates.offset + 1
        return found

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._paused.add(stream)

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._paused.discard(stream)
        self.wake()

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """See ``Transport.commit``; an unassigned partition is an ``UnsafeError``."""
        await self._cluster.gate("commit")
        if self._cluster.owners.get(stream) is not self:
            raise UnsafeError(f"{stream.topic}/{stream.number} belongs to another member: stop and start again")
        self._cluster.commit(stream, batch, position)

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        begin = self._cluster.positions[stream]
        return sum(1 for r in self._cluster.logs[stream] if r.coordinates.offset >= begin)

    @property
    def exhausted(self) -> bool:
        """True if the transport is finite and all assigned records have been read."""
        return self._finite and all(
            not log or log[-1].coordinates.offset < self._cursors.get(stream, 0)
            for stream, log in self._cluster.logs.items()
            if self._cluster.owners.get(stream) is self or stream not in self._cluster.owners
        )

    async def stop(self) -> None:
        """Leave; the partitions stay without an owner until the next rebalance."""
        if not self._stopped:
            self._stopped = True
            self._cluster.kill(self)
            self._cursors.clear()
            self.wake()

    def wake(self) -> None:
        """There may be something to read."""
        self._woken.set()

    async def lose(self, streams: Sequence[Partition]) -> None:
        """Give up partitions after the listener has committed finished records."""
        if self._listener is None:
            raise TransientError("not started")
        await self._listener.revoked(streams)
        for stream in streams:
            self._cursors.pop(stream, None)
            self._paused.discard(stream)
            self._cluster.owners.pop(stream, None)

    async def gain(self, streams: Iterable[Partition]) -> None:
        """Take over partitions at their committed position."""
        if self._listener is None:
            raise TransientError("not started")
        taken = list(streams)
        for stream in taken:
            self._cluster.owners[stream] = self
        await self._listener.assigned(taken)
        # The cursor comes last: nothing may be polled before the listener knows the partition.
        for stream in taken:
            self._cursors[stream] = self._cluster.positions[stream]
        self.wake()
