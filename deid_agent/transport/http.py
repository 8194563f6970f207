"""The requests of HTTP clients as records: one slot for each request in flight, and the result as its answer.

A slot is a partition of the topic of its project, so that key, policy, audit entries and metrics are those of the
project. The agent commits its records in order, after their audit entries are durable, and the commit
answers the client. So no client has a result that the audit lacks. Nothing is stored: a request that was not answered
belongs to its client, who sends it again. The HTTP server itself is in ``deid_agent.http``.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence

from deid_agent.agent import (
    DEFAULT_PROJECT,
    AssignmentListener,
    Coordinates,
    FinishedRecord,
    Partition,
    Record,
    Request,
)
from deid_agent.config import http_topic
from deid_agent.model import TransientError, UnsafeError
from deid_agent.transport.waiting import take_or_wait


class RequestSlot:
    """A partition for one request, or for the lines of one stream. Used by one request at a time."""

    def __init__(self, stream: Partition, epoch: str, wake: Callable[[], None]) -> None:
        self.stream = stream
        self.held = False
        """A request uses it."""
        self.queue: deque[Record] = deque()
        self.waiting: dict[int, asyncio.Future[FinishedRecord]] = {}
        """Records without an answer, by offset."""
        self.running = asyncio.Event()
        """Clear while the agent takes nothing more of this slot."""
        self.running.set()
        self._epoch = epoch
        self._wake = wake
        self._next = 0
        self._ended = False

    @property
    def free(self) -> bool:
        """True if another request may use it: none holds it, and no record of an earlier one is in progress."""
        return not self.held and not self.waiting

    def submit(self, payload: bytes, request: Request) -> "asyncio.Future[FinishedRecord]":
        """Add a record. The future has its result once that is audited, or ``TransientError`` if the agent leaves."""
        at = Coordinates(self.stream.topic, self.stream.number, self._next)
        self._next += 1
        now_ms = time.time_ns() // 1_000_000
        self.queue.append(Record(at, payload, timestamp_ms=now_ms, topic_id=self._epoch, request=request))
        answer: asyncio.Future[FinishedRecord] = asyncio.get_running_loop().create_future()
        if self._ended:
            self.queue.clear()
            _leave(answer)
            return answer
        self.waiting[at.offset] = answer
        self._wake()
        return answer

    def release(self) -> None:
        """The request has ended. What the agent has not taken yet is dropped."""
        self.held = False
        while self.queue:
            self._fail(self.queue.pop())

    def take(self, limit: int) -> list[Record]:
        """The next records for the agent, in order."""
        if not self.running.is_set():
            return []
        return [self.queue.popleft() for _ in range(min(limit, len(self.queue)))]

    def answer(self, item: FinishedRecord) -> None:
        """Give a result to the request that waits for it, if it still does."""
        answer = self.waiting.pop(item.record.coordinates.offset, None)
        if answer is not None and not answer.done():
            answer.set_result(item)

    def end(self) -> None:
        """Nothing more is processed: fail every request that waits, and those to come."""
        self._ended = True
        self.running.set()
        self.queue.clear()
        for answer in self.waiting.values():
            _leave(answer)
        self.waiting.clear()

    def _fail(self, record: Record) -> None:
        answer = self.waiting.pop(record.coordinates.offset, None)
        if answer is not None:
            _leave(answer)


def _leave(answer: "asyncio.Future[FinishedRecord]") -> None:
    if not answer.done():
        answer.set_exception(TransientError("the agent stops: the request was not processed; send it again"))
        answer.exception()  # its request may have ended, and the loop would report it


class HttpTransport:
    """Implements ``Transport`` and ``KnowsLag``. All projects share ``slots`` requests in flight.

    A project has one slot from the start, and gets another one when a request finds all of its slots in use: most
    projects never use as many as they may. An assigned slot stays.

    Offsets count from 0 in each start, under another ``topic_id``: ids and audit entries of two starts differ without
    a file of numbers.
    """

    def __init__(
        self,
        slots: int,
        projects: Sequence[str] = (DEFAULT_PROJECT,),
        *,
        make_epoch: Callable[[], str] | None = None,
    ) -> None:
        self._most = slots
        self._epoch = (make_epoch or (lambda: secrets.token_urlsafe(16)))()
        self._wakeup = asyncio.Event()
        self._listener: AssignmentListener | None = None
        self._of_project: dict[str, list[RequestSlot]] = {project: [] for project in projects}
        self._of_stream: dict[Partition, RequestSlot] = {}
        self._new: list[RequestSlot] = []
        """Slots that the agent does not have yet."""
        self._assigned: list[RequestSlot] = []
        for project in projects:
            self._add_slot(project)
        self._turn = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"HttpTransport({self._most} slots, {len(self._of_project)} projects)"

    @property
    def slots(self) -> Sequence[RequestSlot]:
        """The slots of all projects that were needed so far."""
        return tuple(self._of_stream.values())

    def claim(self, project: str = DEFAULT_PROJECT) -> RequestSlot | None:
        """A free slot of a project, to be given back by ``RequestSlot.release``.

        None if all are in use or the agent leaves.
        """
        if self._stopped or sum(not slot.free for slot in self._of_stream.values()) >= self._most:
            return None
        slot = next((slot for slot in self._of_project[project] if slot.free), None) or self._add_slot(project)
        slot.held = True
        return slot

    def _add_slot(self, project: str) -> RequestSlot:
        ours = self._of_project[project]
        stream = Partition(http_topic(project), len(ours))
        slot = self._of_stream[stream] = RequestSlot(stream, self._epoch, self._wakeup.set)
        ours.append(slot)
        self._new.append(slot)
        self._wakeup.set()
        return slot

    async def start(self, listener: AssignmentListener) -> None:
        """See ``Transport.start``."""
        self._listener = listener
        await self._assign()

    async def _assign(self) -> None:
        """Hand new slots to the agent. Their records wait until it has them."""
        if self._new and self._listener is not None:
            new, self._new = self._new, []
            await self._listener.assigned([slot.stream for slot in new])
            self._assigned += new

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``."""
        await self._assign()
        return await take_or_wait(lambda: self._take(limit), self._wakeup, lambda: self._stopped)

    def _take(self, limit: int) -> list[Record]:
        """Records of all slots. Each call begins with another slot."""
        found = list[Record]()
        self._turn = (self._turn + 1) % max(1, len(self._assigned))
        for slot in (*self._assigned[self._turn :], *self._assigned[: self._turn]):
            if slot.queue and len(found) < limit:
                found += slot.take(limit - len(found))
        return found

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``."""
        self._of_stream[stream].running.clear()

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._of_stream[stream].running.set()
        self._wakeup.set()

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """See ``Transport.commit``. The answer is the output: the client is the one who keeps it."""
        if any(item.record.coordinates.stream != stream for item in batch):
            raise UnsafeError(f"{stream}: a batch up to {position} holds another's records")
        for item in batch:
            self._of_stream[stream].answer(item)

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        return len(self._of_stream[stream].waiting)

    @property
    def exhausted(self) -> bool:
        """Never: a client may connect at any time."""
        return False

    async def stop(self) -> None:
        """See ``Transport.stop``. Requests that wait are informed that nothing was done."""
        self._stopped = True
        self._wakeup.set()
        for slot in self._of_stream.values():
            slot.end()
