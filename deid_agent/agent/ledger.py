"""Tracks which offsets of one partition are finished, and how far its position may move."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice

from deid_agent.agent.ports import FinishedRecord, Partition
from deid_agent.model import UnsafeError


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Finished records in offset order, and the position after the last of them."""

    records: tuple[FinishedRecord, ...]
    position: int


class PartitionLedger:
    """The offsets of one partition during one assignment. After ``revoke()`` all calls do nothing.

    Offsets start in increasing order, with gaps left by compaction and transaction markers, and finish in any order.
    The position never passes an unfinished record. An offset that finishes twice, or was never started, raises
    ``UnsafeError``.
    """

    def __init__(self, stream: Partition) -> None:
        self.stream = stream
        self._open: OrderedDict[int, FinishedRecord | None] = OrderedDict()  # after the finished prefix, by offset
        self._ready: deque[FinishedRecord] = deque()  # the finished prefix
        self._taken: CommitBatch | None = None
        self._last = -1
        self._end: int | None = None
        self._revoked = False

    def __repr__(self) -> str:
        state = "revoked" if self._revoked else f"{len(self._open)} open, {len(self._ready)} ready"
        return f"PartitionLedger({self.stream}: {state})"

    def __len__(self) -> int:
        """The number of records that were started and are not yet confirmed."""
        return len(self._open) + len(self._ready) + (len(self._taken.records) if self._taken else 0)

    @property
    def ready(self) -> int:
        """The length of the finished prefix that can be taken."""
        return len(self._ready)

    def start(self, offset: int) -> None:
        """Note that a record was delivered. Raises ``UnsafeError`` unless its offset is above all earlier ones."""
        if self._revoked:
            return
        if offset <= self._last:
            raise UnsafeError(
                f"{self._at(offset)} came after offset {self._last}: offsets of a partition must increase"
            )
        self._last = offset
        self._open[offset] = None

    def abandon_from(self, offset: int) -> int:
        """Give up this unfinished record and all records after it; return how many were given up."""
        if self._revoked or (self._end is not None and offset >= self._end):
            return 0
        self._end = offset
        given_up = [other for other in self._open if other >= offset]
        for other in given_up:
            del self._open[other]
        return len(given_up)

    def finish(self, offset: int, finished: FinishedRecord) -> None:
        """Note the result of a record. Does nothing after ``revoke()`` or for an abandoned offset: the next owner
        handles it.
        """
        if self._revoked or (self._end is not None and offset >= self._end):
            return
        if self._open.get(offset, finished) is not None or finished.record.coordinates.offset != offset:
            raise UnsafeError(f"{self._at(offset)} was finished twice, or finished but never started")
        self._open[offset] = finished
        while self._open:
            first, head = next(iter(self._open.items()))
            if head is None:
                break
            self._ready.append(head)
            del self._open[first]

    def take_batch(self, limit: int) -> CommitBatch | None:
        """Return up to ``limit`` records of the finished prefix, in order; None if there are none, or after
        ``revoke()``.

        Only one batch can be taken at a time. It counts as open until ``confirm()``.
        """
        if self._taken is not None:
            raise UnsafeError(f"{self._at(self._taken.position)}: the previous batch is not confirmed yet")
        if self._revoked or not self._ready:
            return None
        records = tuple(islice(self._ready, limit))
        for _ in records:
            self._ready.popleft()
        self._taken = CommitBatch(records, records[-1].record.coordinates.offset + 1)
        return self._taken

    def confirm(self) -> None:
        """The batch that was taken is durable."""
        self._taken = None

    def revoke(self) -> None:
        """The partition was taken away: forget all records and ignore all later calls."""
        self._revoked = True
        self._open.clear()
        self._ready.clear()
        self._taken = None

    def _at(self, offset: int) -> str:
        return f"{self.stream}/{offset}"
