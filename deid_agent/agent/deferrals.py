"""Records of one partition that wait because an external system, such as a schema registry, does not answer."""

import asyncio
from collections.abc import Callable

from deid_agent.agent.ports import Partition, Record
from deid_agent.telemetry import Retrying, Telemetry


class Deferrals:
    """Submits deferred records again, all at once and in order of offset, after a pause that grows.

    They never become dead letters: the partition waits, and its throttle stops the source.
    """

    def __init__(
        self,
        stream: Partition,
        submit: Callable[[Record], None],
        delay_s: Callable[[int], float],
        telemetry: Telemetry,
    ) -> None:
        """``delay_s`` is the pause after a number of failures in a row."""
        self._stream = stream
        self._submit = submit
        self._delay_s = delay_s
        self._telemetry = telemetry
        self._waiting: dict[int, Record] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._attempt = 0

    def __len__(self) -> int:
        """The number of records that wait."""
        return len(self._waiting)

    def add(self, record: Record, why: str) -> None:
        """Submit a record again later. ``why`` names the system and the remedy."""
        self._waiting[record.coordinates.offset] = record
        if self._timer is not None:
            return
        self._attempt += 1
        delay = self._delay_s(self._attempt)
        self._telemetry.emit(Retrying("process", str(self._stream), self._attempt, delay, "TransientError", why))
        self._timer = asyncio.get_running_loop().call_later(delay, self._retry)

    def reset(self) -> None:
        """A record was processed: the next pause is short again."""
        self._attempt = 0

    def recall(self) -> int | None:
        """Drop the records that wait; return the lowest offset dropped, or None."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lowest = min(self._waiting, default=None)
        self._waiting.clear()
        return lowest

    def _retry(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for _, record in sorted(waiting.items()):
            self._submit(record)
