"""Messages whose connection is lost, or whose agent stops."""

import asyncio
from pathlib import Path

import pytest
from support.mllp_agent import make_settings, until
from support.mllp_listener import ScriptedSink, Start, changed
from support.mllp_world import Peer, block, message
from support.transport_contract import Member

from deid_agent.agent.ports import FinishedRecord, Outcome, Output, Record
from deid_agent.model.errors import AssignmentLostError, TransientError
from deid_agent.telemetry.events import PartitionsRevoked
from deid_agent.telemetry.transport_events import MllpFault
from deid_agent.transport.mllp.protocol import FramingFault, RefusalCode
from deid_agent.transport.mllp.source import MllpTransport


async def test_a_client_that_closed_its_sending_side_is_answered(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(message(b"m", b"hold"))
    peer.writer.write_eof()
    await until(lambda: len(agent.executor.pending) == 1)
    agent.executor.release()
    assert await peer.answer() == ("AA", "m", "")
    assert await peer.ended() == b""


async def test_a_sender_that_closed_is_not_waited_for(start: Start, sink: ScriptedSink) -> None:
    """Most clients that close their sending side are gone, and send again over another connection."""
    agent = await start()
    sink.error = TransientError("away")
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"))
    peer.writer.write_eof()
    assert await peer.answer() == ("AE", "m1", "SINK")
    tries = sink.tries
    assert await peer.ended() == b""
    assert sink.tries == tries
    assert sink.got == []


async def test_a_partial_message_is_never_delivered(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.writer.write(block(message(b"m", b"half"))[:-1])
    peer.writer.write_eof()
    assert await peer.ended() == b""
    assert sink.tries == 0
    assert agent.telemetry.names(MllpFault, "code") == [FramingFault.TORN]


async def test_messages_of_a_lost_connection_are_not_delivered_after_newer_ones(
    start: Start, sink: ScriptedSink
) -> None:
    """The sender sends it again. Delivered late, the first copy would undo messages after the second."""
    agent = await start(changed(max_connections=1))
    sink.error = TransientError("away")
    first = await agent.peer()
    first.send(message(b"a", b"admit"))
    await until(lambda: sink.tries > 1)
    first.reset()
    await until(lambda: bool(agent.telemetry.names(PartitionsRevoked, "streams")))
    sink.error = None
    second = await agent.peer()
    second.send(message(b"a", b"admit"), message(b"d", b"discharge"))
    assert [await second.answer() for _ in range(2)] == [("AA", "a", ""), ("AA", "d", "")]
    assert sink.got == [b"clean admit", b"clean discharge"]


async def test_a_lost_connection_frees_its_slot_while_its_message_is_processed(
    start: Start, sink: ScriptedSink
) -> None:
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
    assert sink.got == [b"clean two"]


async def test_unstarted_messages_of_a_lost_connection_are_forgotten(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(max_connections=1), poll_limit=1, max_in_flight=2, drain_s=0.2)
    first = await agent.peer()
    first.send(message(b"a", b"hold"), *(message(b"b%d" % n, b"old") for n in range(5)))
    slot = agent.transport._server.slots[0]
    await until(lambda: slot.paused and slot.lag == 6)
    first.reset()
    await until(lambda: bool(agent.telemetry.names(PartitionsRevoked, "streams")))
    second = await agent.peer()
    second.send(message(b"c", b"new"))
    assert await second.answer() == ("AA", "c", "")
    assert sink.got == [b"clean new"]


async def test_no_message_of_a_closed_connection_is_delivered(tmp_path: Path, sink: ScriptedSink) -> None:
    """The sender may have received an error, and its end may not be noticed yet."""
    transport = MllpTransport(make_settings(tmp_path / "letters"), sink)
    await transport.start(Member())
    peer = await Peer.to(transport.port)
    peer.send(message(b"m", b"x"))
    records: list[Record] = []
    while not records:
        records += await transport.poll(1)
    (record,) = records
    line = transport._server.slots[0].replies
    assert line is not None
    line.fail(RefusalCode.SINK)
    batch = [FinishedRecord(record, Outcome.PUBLISHED, Output(record.payload))]
    with pytest.raises(AssignmentLostError, match=r"mllp/0/\d+: its connection is closed"):
        await transport.commit(record.coordinates.stream, batch, record.coordinates.offset + 1)
    assert sink.tries == 0
    assert await peer.answer() == ("AE", "m", "SINK")
    await transport.stop()
    await peer.close()


async def test_a_stop_answers_finished_and_unfinished_messages(start: Start, sink: ScriptedSink) -> None:
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
    assert sink.got == [b"clean done"]


async def test_a_stop_finishes_messages_in_time(start: Start, sink: ScriptedSink) -> None:
    agent = await start(drain_s=5.0)
    peer = await agent.peer()
    peer.send(message(b"m", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    stopping = asyncio.create_task(agent.stop())
    await asyncio.sleep(0)
    agent.executor.release()
    assert await peer.answer() == ("AA", "m", "")
    await stopping


async def test_a_stop_does_not_answer_a_message_with_an_unknown_outcome(start: Start, sink: ScriptedSink) -> None:
    agent = await start(drain_s=0.3)
    sink.open.clear()
    peer = await agent.peer()
    peer.send(message(b"m", b"one"), message(b"n", b"two"))
    await until(lambda: sink.tries == 1)
    await agent.stop()
    assert await peer.ended() == b""
