"""One place for a connection: what it was sent, what is not answered, and the order in which it comes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from deid_agent.agent.ports import Coordinates, Partition, Record
from deid_agent.transport.mllp_ack import NOBODY, Head, Verdict, Why, Writer, code_for
from deid_agent.transport.mllp_frames import frame

TOPIC: Final = "mllp"


@dataclass(slots=True)
class Waiting:
    """A message that came and is not answered, or whose answer waits for those before it."""

    head: Head = field(repr=False)
    offset: int
    size: int
    since: float
    answer: bytes | None = field(default=None, repr=False)


class Line:
    """What one connection is owed: its answers, in the order of its messages.

    ``send`` takes bytes for the other end, ``answered`` is told every code that was sent ("" where none was due),
    ``ended`` is called once, when nothing more will be answered.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        answered: Callable[[str], None],
        ended: Callable[[], None],
        writer: Writer,
    ) -> None:
        self._send = send
        self._answered = answered
        self._ended = ended
        self._writer = writer
        self._waiting: deque[Waiting] = deque()
        self.changed = asyncio.Event()
        self.bytes = 0
        self.leaving = False
        """The other end has said that it sends nothing more."""
        self.over = False
        """Nothing is answered any more: it is gone, or was told so."""

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, head: Head, offset: int, size: int) -> None:
        """A message came."""
        self._waiting.append(Waiting(head, offset, size, time.monotonic()))
        self.bytes += size

    def since(self, offset: int) -> float | None:
        """When a message came that is not answered."""
        return next((item.since for item in self._waiting if item.offset == offset), None)

    def answer(self, offset: int, verdict: Verdict, why: str = "") -> None:
        """Answer a message, as soon as those before it are."""
        for item in self._waiting:
            if item.offset == offset and item.answer is None:
                item.answer = self._writer.answer(item.head, verdict, why)
                self._answered(code_for(item.head, verdict))
                break
        self._flush()

    def refuse(self, head: Head | None, why: Why) -> None:
        """Answer something that is no message, behind those before it."""
        known = head or NOBODY
        answer = self._writer.answer(known, Verdict.REJECT, why)
        self._answered(code_for(known, Verdict.REJECT))
        self._waiting.append(Waiting(known, -1, 0, time.monotonic(), answer))
        self._flush()

    def fail(self, why: Why) -> None:
        """Answer everything with an error: none of it was taken. Nothing is answered after that."""
        if not self.over:
            for item in list(self._waiting):
                if item.answer is None:
                    self.answer(item.offset, Verdict.ERROR, why)
            self.end()

    def end(self) -> None:
        """Answer nothing any more."""
        if not self.over:
            self.over = True
            self._waiting.clear()
            self.bytes = 0
            self.changed.set()
            self._ended()

    def _flush(self) -> None:
        while self._waiting and (answer := self._waiting[0].answer) is not None:
            self.bytes -= self._waiting.popleft().size
            if answer:
                self._send(frame(answer))
        self.changed.set()


class Lane:
    """A partition of the listener; one connection has it at a time.

    Offsets are the microsecond at which a message was whole, since 1970, or one more than the last: so they rise, over
    restarts too, without a file that remembers them.
    """

    def __init__(self, number: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.stream = Partition(TOPIC, number)
        self.line: Line | None = None
        self.paused = False
        self.taken: set[int] = set()
        """Handed to the agent and not settled."""
        self.doubtful = -1
        """The offset of an output that may stand at the outlet although it is not settled."""
        self.dealing = False
        """It is given up and taken anew; no connection may have it."""
        self._queue: deque[Record] = deque()
        self._clock_ns = clock_ns
        self._last = -1

    @property
    def free(self) -> bool:
        """True where a connection may have it."""
        return self.line is None and not self.dealing

    @property
    def lag(self) -> int:
        """Messages that came and are not settled."""
        return len(self._queue) + len(self.taken)

    def put(self, line: Line, head: Head, message: bytes) -> None:
        """A message came."""
        now = self._clock_ns() // 1000
        self._last = max(self._last + 1, now)
        at = Coordinates(self.stream.topic, self.stream.number, self._last)
        self._queue.append(Record(at, message, timestamp_ms=now // 1000))
        line.expect(head, self._last, len(message))

    def get(self, limit: int) -> list[Record]:
        """The next messages, in order."""
        if self.paused or self.line is None or self.line.over:
            return []
        found = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        self.taken.update(record.coordinates.offset for record in found)
        return found

    def clear(self) -> None:
        """Forget what was never handed out; its sender has it."""
        self._queue.clear()
