"""The two ends of MLLP for tests: a sender that keeps unacknowledged messages, and a scripted receiver.

They share no code with the package: bytes are split and joined by hand here.
"""

import asyncio
import contextlib
import json
import re
import socket
import struct
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from ssl import SSLContext

from support.transport_contract import Given, StoredDeadLetter

from deid_agent.agent.ports import AssignmentListener, FinishedRecord, Output, Partition, Record, Transport
from deid_agent.transport.mllp.source import MllpTransport
from deid_agent.transport.sinks import Sink

PATIENCE_S = 20.0


def message(control_id: bytes, body: bytes, more: bytes = b"") -> bytes:
    """An HL7 message with this control id; ``more`` are the fields from MSH-13 on."""
    return rb"MSH|^~\&|LAB|MERCY|EHR|DEID|20240318||ORU^R01^ORU_R01|" + control_id + b"|P|2.5.1" + more + b"\r" + body


def block(data: bytes) -> bytes:
    return b"\x0b" + data + b"\x1c\r"


def control_id(data: bytes) -> bytes:
    return data.split(b"\r")[0].split(b"|")[9]


def read_answer(answer: bytes) -> tuple[str, str, str]:
    """MSA-1, MSA-2 and MSA-3 of an answer."""
    found = re.search(rb"\rMSA\|(\w\w)\|([^|\r]*)(?:\|([^|\r]*))?", answer)
    assert found is not None, answer
    return found[1].decode(), found[2].decode(), (found[3] or b"").decode()


class Peer:
    """One connection to a listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int, **options: object) -> "Peer":
        async with asyncio.timeout(PATIENCE_S):
            return cls(*await asyncio.open_connection("127.0.0.1", port, **options))  # type: ignore[arg-type]

    def send(self, *messages: bytes) -> None:
        self.writer.write(b"".join(block(item) for item in messages))

    async def answer(self) -> tuple[str, str, str]:
        """The code of the next acknowledgment. ``IncompleteReadError`` if none arrives."""
        async with asyncio.timeout(PATIENCE_S):
            data = await self.reader.readuntil(b"\x1c\r")
        assert data.startswith(b"\x0bMSH"), data
        return read_answer(data)

    async def ended(self) -> bytes:
        """The bytes received before the other end closed; then close this end too."""
        data = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                data = await self.reader.read()
        await self.close()
        return data

    def reset(self) -> None:
        """Reset the connection without closing it properly."""
        own = self.writer.get_extra_info("socket")
        if own is not None and own.fileno() >= 0:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Receiver:
    """Receives messages and answers AA, unless ``verdicts`` holds another answer.

    A verdict is a code, "" for no answer, "cut" to close the connection, or the bytes of an answer.
    """

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.verdicts: deque[str | bytes] = deque()
        self.connections = 0
        self.most_at_once = 0
        self._at_once = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, port: int = 0, ssl: SSLContext | None = None) -> "Receiver":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, ssl=ssl, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.create_task(self._serve(reader, writer)))
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while data := (await reader.readuntil(b"\x1c\r"))[1:-2]:
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                verdict = self.verdicts.popleft() if self.verdicts else "AA"
                if isinstance(verdict, bytes):
                    writer.write(verdict)
                    verdict = ""
                if verdict in {"AA", "CA"}:
                    self.got.append(data)
                if verdict == "cut":
                    break
                if verdict:
                    own = b"MSH|^~\\&|R|R|S|S|20240318||ACK|r1|P|2.5\rMSA|" + verdict.encode()
                    writer.write(block(own + b"|" + control_id(data) + b"\r"))
                self._at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class Feed:
    """A sender that keeps messages until they are acknowledged, and resends them over a new connection."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self._peer: Peer | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, port: int) -> None:
        await self.close()
        self._peer = await Peer.to(port)
        self._peer.send(*self.kept)
        self._reading = asyncio.create_task(self._read(self._peer))

    async def _read(self, peer: Peer) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while True:
                code, known, _ = await peer.answer()
                if code in {"AA", "CA"}:
                    self.kept = [item for item in self.kept if control_id(item).decode() != known]

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._peer is not None:
            await self._peer.close()


class HeaderlessTransport:
    """A transport over one that accepts only HL7: records and outputs without their MSH, with the control id as key.

    The payloads of the suite are any bytes. Everything else is that of the transport below.
    """

    def __init__(self, inner: MllpTransport, feed: Feed) -> None:
        self.inner, self.feed = inner, feed
        self._whole: dict[int, Record] = {}

    def __repr__(self) -> str:
        return repr(self.inner)

    async def start(self, listener: AssignmentListener) -> None:
        await self.inner.start(listener)
        await self.feed.connect(self.inner.port)

    async def poll(self, limit: int) -> Sequence[Record]:
        found = []
        for record in await self.inner.poll(limit):
            self._whole[record.coordinates.offset] = record
            found.append(Record(record.coordinates, *split_header(record.payload), timestamp_ms=record.timestamp_ms))
        return found

    def pause(self, stream: Partition) -> None:
        self.inner.pause(stream)

    def resume(self, stream: Partition) -> None:
        self.inner.resume(stream)

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        whole = [
            FinishedRecord(
                self._whole[item.record.coordinates.offset], item.outcome, with_header(item.output), item.dead_letter
            )
            for item in batch
        ]
        await self.inner.commit(stream, whole, position)

    def lag(self, stream: Partition) -> int | None:
        return self.inner.lag(stream)

    @property
    def exhausted(self) -> bool:
        return self.inner.exhausted

    async def stop(self) -> None:
        await self.inner.stop()


class Hl7OnlySink:
    """A sink that accepts HL7 only, for the payloads of the contract suite."""

    def __init__(self, inner: Sink) -> None:
        self.inner = inner

    async def start(self) -> None:
        await self.inner.start()

    async def deliver(self, record: Record, output: Output) -> None:
        whole = with_header(output)
        assert whole is not None
        await self.inner.deliver(record, whole)

    async def stop(self) -> None:
        await self.inner.stop()


def with_header(output: Output | None) -> Output | None:
    return None if output is None else Output(message(output.key or b"", output.payload), None, output.headers)


def split_header(data: bytes) -> tuple[bytes, bytes | None]:
    """Payload and key."""
    return data.partition(b"\r")[2], control_id(data) or None


class MllpWorld:
    """A feed, our listener, and a receiver or a folder behind it."""

    stream = Partition("mllp", 0)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.feed = Feed()
        self.receiver = Receiver()
        self.opened: list[Transport] = []

    async def fill(self, given: Sequence[Given]) -> None:
        self.feed.kept += [message(item.key or b"", item.payload) for item in given]

    def transport(self) -> Transport:
        """Override this: each direction of MLLP has its own transport."""
        raise NotImplementedError  # abstract: pytest collects only the classes that override it

    async def outputs(self) -> Sequence[Output]:
        return [Output(*split_header(data)) for data in self.receiver.got]

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        return stored_dead_letters(self.root / "letters")

    def fail_commit(self) -> None:
        self.receiver.verdicts.append("AE")

    async def stop(self) -> None:
        for transport in self.opened:
            await transport.stop()
        await self.feed.close()
        await self.receiver.stop()


def stored_dead_letters(folder: Path) -> list[StoredDeadLetter]:
    """The unsealed dead letters of a folder."""
    return [
        StoredDeadLetter(
            {name: value.encode() for name, value in json.loads(path.read_text()).items()},
            path.with_suffix(".payload").read_bytes().partition(b"\r")[2],
        )
        for path in sorted(folder.glob("*.json"))
    ]
