"""The limits of a hostile or faulty client of the listener."""

import asyncio
import logging
import socket

import pytest
from support.mllp_agent import until
from support.mllp_listener import ScriptedSink, Start, changed
from support.mllp_world import Peer, message

from deid_agent.telemetry.metrics import MLLP_FAULTS
from deid_agent.telemetry.transport_events import MllpFault
from deid_agent.transport.mllp.connection import ConnectionSlot
from deid_agent.transport.mllp.protocol import FramingFault, RefusalCode


async def test_a_block_that_is_not_hl7_is_rejected_and_the_connection_continues(
    start: Start, sink: ScriptedSink
) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(b"hello", "MSH|^~\\&|".encode("utf-16"), b"", message(b"m", b"x"))
    answers = [await peer.answer() for _ in range(4)]
    assert answers == [("AR", "", "NOT_HL7"), ("AR", "", "CHARSET"), ("AR", "", "NOT_HL7"), ("AA", "m", "")]


async def test_an_overlong_message_is_rejected_by_its_id_after_earlier_messages(
    start: Start, sink: ScriptedSink
) -> None:
    agent = await start(changed(max_message_bytes=2000))
    peer = await agent.peer()
    peer.send(message(b"m", b"x"))
    peer.writer.write(b"\x0b" + message(b"long", b"x" * 4_000_000))  # and it never ends
    assert await peer.answer() == ("AA", "m", "")
    assert await peer.answer() == ("AR", "long", "TOO_LARGE")
    async with asyncio.timeout(20):
        assert await peer.reader.read() == b""  # an end, not a reset, which takes the answer along on some systems
    assert sink.got == [b"clean x"]


async def test_two_messages_in_one_block_are_rejected_by_the_id_of_the_first(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(message(b"one", b"PID|1\r") + message(b"two", b"PID|2\r"), message(b"three", b"x"))
    assert [await peer.answer() for _ in range(2)] == [("AR", "one", "SEVERAL"), ("AA", "three", "")]
    assert sink.got == [b"clean x"]
    assert agent.telemetry.names(MllpFault, "code") == [RefusalCode.SEVERAL]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", FramingFault.JUNK),
        (b"\x16\x03\x01\x02\x00\x01", FramingFault.JUNK),
        (b"\x0bMSH|^~\\&|torn\x0bMSH|^~\\&|x\x1c\r", FramingFault.RESTARTED),
        (b"\x0bMSH|^~\\&|slow", FramingFault.SLOW),
    ],
)
async def test_invalid_mllp_ends_the_connection_without_an_answer(
    start: Start, sink: ScriptedSink, data: bytes, fault: FramingFault
) -> None:
    agent = await start(changed(read_timeout_s=0.1))
    peer = await agent.peer()
    peer.send(message(b"m", b"before"))
    peer.writer.write(data)
    assert await peer.answer() == ("AA", "m", "")
    assert await peer.ended() == b""
    assert agent.telemetry.names(MllpFault, "code") == [fault]
    assert sink.got == [b"clean before"]


async def test_a_message_sent_slowly_in_pieces_times_out(start: Start) -> None:
    """An occasional byte does not keep a slot."""
    agent = await start(changed(read_timeout_s=0.2))
    peer = await agent.peer()
    begin = asyncio.get_running_loop().time()
    peer.writer.write(b"\x0bMSH|")
    ended = asyncio.create_task(peer.ended())
    while not ended.done():
        peer.writer.write(b"x")
        await asyncio.wait({ended}, timeout=0.05)
    assert asyncio.get_running_loop().time() - begin < 5
    assert agent.telemetry.names(MllpFault, "code") == [FramingFault.SLOW]


async def highest(slot: ConnectionSlot) -> int:
    """The largest number of messages that a slot held until it no longer changed."""
    seen: list[int] = []

    def still() -> bool:
        seen.append(slot.lag)
        return len(seen) > 20 and len(set(seen[-20:])) == 1 and seen[-1] > 0

    await until(still)
    return max(seen)


async def test_many_messages_are_throttled_and_processed(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_pending=8))
    peer = await agent.peer()
    peer.send(message(b"first", b"hold"), *(message(b"m%d" % n, b"x" * 1000) for n in range(2000)))
    (slot, *_) = agent.transport._server.slots
    assert await highest(slot) == 8
    agent.executor.release()
    assert await peer.answer() == ("AA", "first", "")
    for number in range(2000):
        assert await peer.answer() == ("AA", f"m{number}", "")


async def test_large_messages_are_throttled_by_their_bytes(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_message_bytes=100_000))
    peer = await agent.peer()
    peer.send(*(message(b"m%d" % n, b"hold" + b"x" * 60_000) for n in range(10)))
    (slot, *_) = agent.transport._server.slots
    assert await highest(slot) == 2


async def test_a_client_that_reads_no_answer_is_disconnected(start: Start) -> None:
    agent = await start(changed(read_timeout_s=0.3))
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", agent.transport.port))
    peer = Peer(*await asyncio.open_connection(sock=small))
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def flood() -> None:
        while True:
            peer.send(*[b""] * 1000)
            await peer.writer.drain()

    with pytest.raises(ConnectionError):
        async with asyncio.timeout(20):
            await flood()
    await peer.close()


async def test_a_new_connection_replaces_the_one_idle_for_longest(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=2))
    old, young = await agent.peer(), await agent.peer()
    for number, peer in enumerate((old, young)):
        peer.send(message(b"%d" % number, b"x"))
        await peer.answer()
    third = await agent.peer()
    third.send(message(b"t", b"three"))
    assert await third.answer() == ("AA", "t", "")
    assert await old.ended() == b""
    young.send(message(b"y", b"young"))
    assert await young.answer() == ("AA", "y", "")


async def test_a_new_connection_waits_and_is_refused_if_all_stay_busy(start: Start) -> None:
    agent = await start(changed(max_connections=1, read_timeout_s=0.2))
    busy = await agent.peer()
    busy.send(message(b"b", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    late = await agent.peer()
    assert await late.ended() == b""
    assert agent.telemetry.names(MllpFault, "code") == ["FULL"]
    agent.executor.release()
    assert await busy.answer() == ("AA", "b", "")


async def test_a_silent_connection_is_closed(start: Start) -> None:
    agent = await start(changed(idle_timeout_s=0.1))
    peer = await agent.peer()
    assert await peer.ended() == b""


async def test_many_short_connections_leave_no_state(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    for number in range(100):
        peer = await agent.peer()
        peer.send(message(b"m%d" % number, b"x"))
        if number % 3 == 0:
            assert (await peer.answer())[0] == "AA"
            await peer.close()
        else:
            peer.reset()
    await until(lambda: all(slot.free for slot in agent.transport._server.slots))
    assert not agent.transport._server._open
    assert not agent.transport._server._tasks


async def test_a_scanner_is_counted_and_does_not_fill_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    agent = await start()
    for _ in range(20):
        peer = await agent.peer()
        peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        peer.writer.write_eof()
        assert await peer.ended() == b""
    assert agent.telemetry.registry.value(MLLP_FAULTS, "JUNK") == 20
    assert caplog.text.count("MllpFault") == 1
