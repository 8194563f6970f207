"""What is done and said of messages when their connection is lost or the agent stops."""

import asyncio
from pathlib import Path

import pytest
from support.mllp_agent import until
from support.mllp_listener import LISTEN, Outlet, Start, changed
from support.mllp_world import Peer, block, message
from support.transport_contract import Member

from deid_agent.agent.ports import Outcome, Output, Record, Settled
from deid_agent.errors import LostError, TransientError
from deid_agent.telemetry.events import MllpFault, PartitionsRevoked
from deid_agent.transport.mllp import MllpTransport
from deid_agent.transport.mllp_ack import Why
from deid_agent.transport.mllp_frames import Fault


async def test_a_client_that_sends_nothing_more_is_answered_still(start: Start, outlet: Outlet) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(message(b"m", b"hold"))
    peer.writer.write_eof()
    await until(lambda: len(agent.executor.pending) == 1)
    agent.executor.release()
    assert await peer.answer() == ("AA", "m", "")
    assert await peer.ended() == b""


async def test_a_sender_that_says_goodbye_is_waited_for_no_longer(start: Start, outlet: Outlet) -> None:
    """Most that end their half have gone altogether, and send again over another connection."""
    agent = await start()
    outlet.error = TransientError("away")
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"))
    peer.writer.write_eof()
    assert await peer.answer() == ("AE", "m1", "OUTLET")
    tries = outlet.tries
    assert await peer.ended() == b""
    assert outlet.tries == tries
    assert outlet.got == []


async def test_half_a_message_is_never_a_message(start: Start, outlet: Outlet) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.writer.write(block(message(b"m", b"half"))[:-1])
    peer.writer.write_eof()
    assert await peer.ended() == b""
    assert outlet.tries == 0
    assert agent.telemetry.names(MllpFault, "code") == [Fault.TORN]


async def test_what_a_lost_connection_left_is_not_delivered_behind_what_comes_after(
    start: Start, outlet: Outlet
) -> None:
    """The sender sends it again: late, the first copy would undo what came after the second."""
    agent = await start(changed(max_connections=1))
    outlet.error = TransientError("away")
    first = await agent.peer()
    first.send(message(b"a", b"admit"))
    await until(lambda: outlet.tries > 1)
    first.reset()
    await until(lambda: bool(agent.telemetry.names(PartitionsRevoked, "streams")))
    outlet.error = None
    second = await agent.peer()
    second.send(message(b"a", b"admit"), message(b"d", b"discharge"))
    assert [await second.answer() for _ in range(2)] == [("AA", "a", ""), ("AA", "d", "")]
    assert outlet.got == [b"clean admit", b"clean discharge"]


async def test_a_lost_connection_frees_its_place_while_its_message_is_at_work(start: Start, outlet: Outlet) -> None:
    agent = await start(changed(max_connections=1), drain_s=0.2)
    first = await agent.peer()
    first.send(message(b"a", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    first.reset()
    await until(lambda: bool(agent.telemetry.names(PartitionsRevoked, "streams")))
    agent.executor.release()
    second = await agent.peer()
    second.send(message(b"b", b"two"))
    assert await second.answer() == ("AA", "b", "")
    assert outlet.got == [b"clean two"]


async def test_what_was_read_of_a_lost_connection_and_not_begun_is_forgotten(start: Start, outlet: Outlet) -> None:
    agent = await start(changed(max_connections=1), poll_limit=1, max_in_flight=2, drain_s=0.2)
    first = await agent.peer()
    first.send(message(b"a", b"hold"), *(message(b"b%d" % n, b"old") for n in range(5)))
    lane = agent.transport._server.lanes[0]
    await until(lambda: lane.paused and lane.lag == 6)
    first.reset()
    await until(lambda: bool(agent.telemetry.names(PartitionsRevoked, "streams")))
    second = await agent.peer()
    second.send(message(b"c", b"new"))
    assert await second.answer() == ("AA", "c", "")
    assert outlet.got == [b"clean new"]


async def test_nothing_is_delivered_for_a_connection_that_is_over(tmp_path: Path, outlet: Outlet) -> None:
    """It may have been told that nothing was done, and its end not be seen yet."""
    transport = MllpTransport(LISTEN, outlet, tmp_path / "letters")
    await transport.start(Member())
    peer = await Peer.to(transport.port)
    peer.send(message(b"m", b"x"))
    records: list[Record] = []
    while not records:
        records += await transport.poll(1)
    (record,) = records
    line = transport._server.lanes[0].line
    assert line is not None
    line.fail(Why.OUTLET)
    batch = [Settled(record, Outcome.PUBLISHED, Output(record.payload))]
    with pytest.raises(LostError, match=r"mllp/0/\d+: its connection has gone"):
        await transport.settle(record.coordinates.stream, batch, record.coordinates.offset + 1)
    assert outlet.tries == 0
    assert await peer.answer() == ("AE", "m", "OUTLET")
    await transport.stop()
    await peer.close()


async def test_a_stop_answers_for_what_was_done_and_for_what_was_not(start: Start, outlet: Outlet) -> None:
    agent = await start(drain_s=0.3)
    done, waits = await agent.peer(), await agent.peer()
    done.send(message(b"d", b"done"))
    assert await done.answer() == ("AA", "d", "")
    waits.send(message(b"w1", b"hold"), message(b"w2", b"x"))
    await until(lambda: len(agent.executor.pending) == 1)
    stopping = asyncio.create_task(agent.stop())
    assert [await waits.answer() for _ in range(2)] == [("AE", "w1", "STOPPING"), ("AE", "w2", "STOPPING")]
    assert (await waits.ended(), await done.ended()) == (b"", b"")
    await stopping
    assert outlet.got == [b"clean done"]


async def test_a_stop_finishes_what_it_can(start: Start, outlet: Outlet) -> None:
    agent = await start(drain_s=5.0)
    peer = await agent.peer()
    peer.send(message(b"m", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    stopping = asyncio.create_task(agent.stop())
    await asyncio.sleep(0)
    agent.executor.release()
    assert await peer.answer() == ("AA", "m", "")
    await stopping


async def test_a_stop_says_nothing_of_a_message_that_may_have_been_taken(start: Start, outlet: Outlet) -> None:
    agent = await start(drain_s=0.3)
    outlet.open.clear()
    peer = await agent.peer()
    peer.send(message(b"m", b"one"), message(b"n", b"two"))
    await until(lambda: outlet.tries == 1)
    await agent.stop()
    assert await peer.ended() == b""
