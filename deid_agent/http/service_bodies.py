"""The bodies of requests within limits: as a whole, or line by line.

Each line of a stream is a record of one slot, and its result the line of the answer at the same place.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from deid_agent.agent import FinishedRecord, Request
from deid_agent.http.service_access import Bucket
from deid_agent.http.service_errors import ErrorBody, ServiceError
from deid_agent.model import TransientError
from deid_agent.transport import RequestSlot

_AHEAD = 256
_AHEAD_BYTES = 8 << 20
"""A stream is not read further while so many lines, or bytes of lines, have no answer."""
_WRITE_BYTES = 1 << 16


@dataclass(slots=True)
class Budget:
    """The bytes of all requests in process. They count as they arrive: announced bytes cost nothing."""

    most: int
    held: int = 0

    def take(self, size: int) -> None:
        """Count bytes that arrived. Raises ``ServiceError`` if there are too many."""
        if self.held + size > self.most:
            raise ServiceError("BUSY", headers={"Retry-After": "1"})
        self.held += size

    def give(self, size: int) -> None:
        """The bytes are no longer held."""
        self.held -= size


@dataclass(slots=True)
class LineSplitter:
    """Splits chunks into lines. None is a line of more than ``most`` bytes, which are dropped as they arrive.

    ``drop`` gets the number of dropped bytes, with that of the line feed.
    """

    most: int
    drop: Callable[[int], None] = lambda _: None
    _parts: list[bytes] = field(default_factory=list, repr=False)
    _size: int = 0
    _too_long: bool = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that are complete now, without their line feeds."""
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._keep(end)
            yield self._take(1)
        self._keep(rest)

    def end(self) -> Iterator[bytes | None]:
        """The last line, if it has no line feed."""
        if self._size or self._too_long:
            yield self._take(0)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        self._too_long = self._too_long or self._size > self.most
        if self._too_long:
            self._parts.clear()
            self.drop(self._size)
            self._size = 0
        elif part:
            self._parts.append(part)

    def _take(self, feeds: int) -> bytes | None:
        line = None if self._too_long else b"".join(self._parts)
        if line is None:
            self.drop(feeds)
        self._parts.clear()
        self._size, self._too_long = 0, False
        return line


@dataclass(slots=True)
class BodyReader:
    """The body of one request. ``close`` gives back what it counted in the budget."""

    request: web.Request
    budget: Budget
    most: int
    idle_s: float
    counted: int = 0

    def check_length(self) -> None:
        """Raise ``ServiceError`` if the header announces a body that is too large, or none."""
        length = self.request.content_length
        if length is None and "Transfer-Encoding" not in self.request.headers:
            raise ServiceError("LENGTH")
        if length is not None and length > self.most:
            raise ServiceError("TOO_LARGE")

    async def whole(self) -> bytes:
        """The whole body. Raises ``ServiceError``."""
        self.check_length()
        parts, size = list[bytes](), 0
        while chunk := await self._next():
            size += len(chunk)
            if size > self.most:
                raise ServiceError("TOO_LARGE")
            parts.append(chunk)
        return b"".join(parts)

    async def lines(self) -> AsyncIterator[bytes | None]:
        """The lines of the body without their line feeds; None in place of one that is too long."""
        splitter = LineSplitter(self.most, self.release)
        while chunk := await self._next():
            for line in splitter.feed(chunk):
                yield line
        for line in splitter.end():
            yield line

    async def _next(self) -> bytes:
        """The next bytes; none at the end. Raises ``ServiceError``."""
        try:
            async with asyncio.timeout(self.idle_s):
                chunk = await self.request.content.readany()
        except TimeoutError:
            raise ServiceError("SLOW") from None
        except (web.RequestPayloadError, ConnectionError, RuntimeError):
            # A RuntimeError if the connection was closed before the first read.
            raise ServiceError("BAD_REQUEST") from None
        self.budget.take(len(chunk))
        self.counted += len(chunk)
        return chunk

    def release(self, size: int) -> None:
        """Some of the bytes are no longer held."""
        size = min(size, self.counted)
        self.budget.give(size)
        self.counted -= size

    def hold(self) -> Callable[[], None]:
        """Leave the bytes counted beyond ``close``. The result ends that."""
        size, self.counted = self.counted, 0
        return lambda: self.budget.give(size)

    def close(self) -> None:
        """All of them are no longer held."""
        self.release(self.counted)


def result_of(done: FinishedRecord) -> bytes:
    """The output of a record. Raises ``ServiceError`` if it was refused."""
    if done.dead_letter is not None:
        raise ServiceError(done.dead_letter.reason.value, done.dead_letter.where, done.id)
    if done.output is None:
        raise ServiceError("REJECTED", "policy", done.id)
    return done.output.payload


@dataclass(slots=True)
class _Line:
    """A line that was read: a record in process, an empty line (neither), or an error. ``size`` is in the budget."""

    number: int
    size: int = 0
    answer: "asyncio.Future[FinishedRecord] | None" = None
    error: ServiceError | None = None


@dataclass(slots=True)
class LineStream:
    """Reads and answers at the same time, with a bounded number of lines between both.

    The answer begins with the first result. It has no valid end if a line gets no result, or the body ends early: a
    client must not take it for the whole.
    """

    body: BodyReader
    slot: RequestSlot
    bucket: Bucket
    request: Request
    media: str
    _lines: "deque[_Line | ServiceError | None]" = field(default_factory=deque)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    _ahead: int = 0
    _unsent: int = 0
    """Bytes of lines whose answers are not written. They count in the budget: a client may read nothing."""

    async def run(
        self,
        write_error: Callable[[ServiceError, int], ErrorBody],
        answer_s: float,
    ) -> web.StreamResponse:
        """Answer all lines. Raises ``ServiceError`` for a fault before the first of them."""
        response: web.StreamResponse | None = None
        reading = asyncio.create_task(self._read())
        try:
            ended, data = False, bytearray()
            while not ended:
                fault: ServiceError | None = None
                try:
                    ended = await self._collect(data, write_error, answer_s)
                except ServiceError as error:
                    if response is None and not data:
                        raise
                    fault = error
                if response is None:
                    response = web.StreamResponse(headers={"Content-Type": self.media})
                    await response.prepare(self.body.request)
                if fault is not None:
                    data += write_error(fault, 0).data + b"\n"
                await self._write(response, bytes(data))
                data.clear()
                self.body.release(self._unsent)
                self._unsent = 0
                if fault is not None:
                    _cut(response, self.body.request)
                    raise ConnectionResetError("the stream was cut")
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        assert response is not None  # noqa: S101 - for the type checker: the loop ran once
        return response

    async def _collect(
        self,
        data: bytearray,
        write_error: Callable[[ServiceError, int], ErrorBody],
        answer_s: float,
    ) -> bool:
        """Add answers to ``data``: the next, and those after it that are ready. True at the end of the stream.

        Raises ``ServiceError`` if the stream cannot go on.
        """
        while True:
            while not self._lines:
                self._arrived.clear()
                await self._arrived.wait()
            item = self._lines.popleft()
            if item is None:
                return True
            if isinstance(item, ServiceError):
                raise item
            try:
                if item.error is not None:
                    raise item.error
                if item.answer is not None:
                    async with asyncio.timeout(answer_s):
                        line = result_of(await item.answer)
                    if b"\n" in line:
                        raise ServiceError("INTERNAL")
                    data += line
            except ServiceError as error:
                data += write_error(error, item.number).data
            except TimeoutError:
                raise ServiceError("LATE") from None
            except TransientError:
                raise ServiceError("UNAVAILABLE") from None
            data += b"\n"
            self._ahead -= item.size
            self._unsent += item.size
            self._answered.set()
            if len(data) > _WRITE_BYTES or not self._is_next_ready():
                return False

    def _is_next_ready(self) -> bool:
        first = self._lines[0] if self._lines else None
        return isinstance(first, _Line) and (first.answer is None or first.answer.done())

    async def _read(self) -> None:
        """Read lines and hand them to the agent, as fast as they are answered and the client's rate allows."""
        number = 0
        try:
            async for line in self.body.lines():
                number += 1
                size = 0 if line is None else len(line) + 1
                if line is None:
                    self._put(_Line(number, 0, error=ServiceError("TOO_LARGE")))
                    continue
                if not line.strip():
                    self._put(_Line(number, size))
                else:
                    await self.bucket.wait()
                    await self.slot.running.wait()
                    self._put(_Line(number, size, self.slot.submit(line, self.request)))
                self._ahead += size
                while len(self._lines) >= _AHEAD or self._ahead >= _AHEAD_BYTES:
                    self._answered.clear()
                    await self._answered.wait()
            self._put(None)
        except ServiceError as error:
            self._put(error)

    def _put(self, item: "_Line | ServiceError | None") -> None:
        self._lines.append(item)
        self._arrived.set()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Write, as long as the client reads. Raises ``ConnectionError`` if it does not."""
        try:
            async with asyncio.timeout(self.body.idle_s):
                await response.write(data)
        except TimeoutError:
            _cut(response, self.body.request)
            raise ConnectionResetError("the client does not read") from None


def _cut(response: web.StreamResponse, request: web.Request) -> None:
    """Close the connection after what was written, without the last chunk."""
    response.force_close()
    if request.transport is not None:
        request.transport.close()
