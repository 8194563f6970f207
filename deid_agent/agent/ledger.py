"""Which offsets of one partition are finished, and how far its position may move."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice

from deid_agent.agent.ports import Partition, Settled
from deid_agent.errors import UnsafeError


@dataclass(frozen=True, slots=True)
class Batch:
    """Finished records in offset order, and the position behind the last of them."""

    records: tuple[Settled, ...]
    position: int


class PartitionLedger:
    """Offsets of one partition during one assignment; silent after ``revoke()``.

    Offsets start in increasing order, with gaps where compaction or transaction markers left them, and
    finish in any order. The position never passes an unfinished record. A book that does not add up (an
    offset finished twice, or never started) is an ``UnsafeError``.
    """

    def __init__(self, stream: Partition) -> None:
        self.stream = stream
        self._open: OrderedDict[int, Settled | None] = OrderedDict()  # behind the finished prefix, by offset
        self._ready: deque[Settled] = deque()  # the finished prefix
        self._taken: Batch | None = None
        self._last = -1
        self._end: int | None = None
        self._revoked = False

    def __repr__(self) -> str:
        state = "revoked" if self._revoked else f"{len(self._open)} open, {len(self._ready)} ready"
        return f"PartitionLedger({self.stream.topic}/{self.stream.number}: {state})"

    def __len__(self) -> int:
        """Records started and not yet confirmed."""
        return len(self._open) + len(self._ready) + (len(self._taken.records) if self._taken else 0)

    @property
    def ready(self) -> int:
        """Length of the finished prefix that can be taken."""
        return len(self._ready)

    def start(self, offset: int) -> None:
        """A record came. Offsets only ever rise within one assignment."""
        if self._revoked:
            return
        if offset <= self._last:
            raise UnsafeError(f"{self._at(offset)} came after offset {self._last}: the source goes backwards")
        self._last = offset
        self._open[offset] = None

    def cut(self, offset: int) -> int:
        """Give up this unfinished record and all behind it, whatever became of them; how many that are."""
        if self._revoked or (self._end is not None and offset >= self._end):
            return 0
        self._end = offset
        given_up = [other for other in self._open if other >= offset]
        for other in given_up:
            del self._open[other]
        return len(given_up)

    def settle(self, offset: int, settled: Settled) -> None:
        """A record is finished. After ``revoke()`` and behind a ``cut()`` nothing happens: the new owner answers."""
        if self._revoked or (self._end is not None and offset >= self._end):
            return
        if self._open.get(offset, settled) is not None or settled.record.coordinates.offset != offset:
            raise UnsafeError(f"{self._at(offset)} was finished twice, or finished but never started")
        self._open[offset] = settled
        while self._open:
            first, head = next(iter(self._open.items()))
            if head is None:
                break
            self._ready.append(head)
            del self._open[first]

    def take(self, limit: int) -> Batch | None:
        """Up to ``limit`` records of the finished prefix, in order; None where there are none, or after ``revoke()``.

        One batch is out at a time: it counts as open until ``confirm()``.
        """
        if self._taken is not None:
            raise UnsafeError(f"{self._at(self._taken.position)}: a batch is still being settled")
        if self._revoked or not self._ready:
            return None
        records = tuple(islice(self._ready, limit))
        for _ in records:
            self._ready.popleft()
        self._taken = Batch(records, records[-1].record.coordinates.offset + 1)
        return self._taken

    def confirm(self) -> None:
        """The batch that was taken is durable."""
        self._taken = None

    def revoke(self) -> None:
        """The partition is no longer ours: forget everything and stay silent."""
        self._revoked = True
        self._open.clear()
        self._ready.clear()
        self._taken = None

    def _at(self, offset: int) -> str:
        return f"{self.stream.topic}/{self.stream.number}/{offset}"
