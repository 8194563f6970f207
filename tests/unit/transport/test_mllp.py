"""The listener with an agent behind it: which acknowledgment is sent, and when."""

import asyncio
import logging
from pathlib import Path

import pytest
from support.mllp_agent import Agent, until
from support.mllp_listener import CANARY, LISTEN, ScriptedSink, Start, changed, dead_letters
from support.mllp_world import Peer, Receiver, message

from deid_agent.config import FailureReply, MllpOutSettings
from deid_agent.model.errors import ConfigurationError, TransientError, UncertainCommitError
from deid_agent.telemetry.events import Event
from deid_agent.telemetry.metrics import MLLP_ANSWER_CODES, MLLP_FAULT_CODES
from deid_agent.transport.mllp.protocol import AckResult, FramingFault, RefusalCode
from deid_agent.transport.mllp.sender import MllpSink


async def test_a_message_is_acknowledged_only_after_its_commit(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    sink.open.clear()
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"))
    answer = asyncio.create_task(peer.answer())
    await until(lambda: sink.tries == 1)
    assert not answer.done()
    sink.open.set()
    assert await answer == ("AA", "m1", "")
    assert sink.got == [b"clean one"]


async def test_many_concurrent_messages_are_committed_and_answered_in_order(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(*(message(b"m%d" % n, b"%d" % n) for n in range(500)))
    assert [await peer.answer() for _ in range(500)] == [("AA", f"m{n}", "") for n in range(500)]
    assert sink.got == [b"clean %d" % n for n in range(500)]


async def test_connections_do_not_wait_for_each_other(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    slow, quick = await agent.peer(), await agent.peer()
    slow.send(message(b"s", b"hold"))
    await until(lambda: len(agent.executor.pending) == 1)
    quick.send(message(b"q", b"quick"))
    assert await quick.answer() == ("AA", "q", "")
    agent.executor.release()
    assert await slow.answer() == ("AA", "s", "")


async def test_a_refused_message_is_acknowledged_after_its_dead_letter_is_stored(start: Start, tmp_path: Path) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(message(b"b", b"bad " + CANARY), message(b"l", b"leave"))
    assert [await peer.answer() for _ in range(2)] == [("AA", "b", ""), ("AA", "l", "")]
    assert dead_letters(tmp_path) == ["MALFORMED"]


async def test_a_refused_message_may_be_answered_with_its_reason(start: Start, tmp_path: Path) -> None:
    agent = await start(changed(refused="AR"))
    peer = await agent.peer()
    peer.send(message(b"b", b"bad"))
    assert await peer.answer() == ("AR", "b", "MALFORMED")
    assert dead_letters(tmp_path) == ["MALFORMED"]


async def test_a_message_that_requests_no_answer_gets_no_answer(start: Start, sink: ScriptedSink) -> None:
    agent = await start()
    peer = await agent.peer()
    peer.send(message(b"m1", b"one", b"|||NE|NE"), message(b"m2", b"two", b"|||AL|NE"))
    assert await peer.answer() == ("CA", "m2", "")
    assert sink.got == [b"clean one", b"clean two"]


async def test_a_sender_gets_an_error_if_messages_cannot_be_committed(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(answer_s=0.1))
    sink.error = TransientError("away")
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"), message(b"m2", b"two"))
    assert [await peer.answer() for _ in range(2)] == [("AE", "m1", "SINK"), ("AE", "m2", "SINK")]
    assert await peer.ended() == b""
    sink.error = None
    again = await agent.peer()
    again.send(message(b"m1", b"one"))
    assert await again.answer() == ("AA", "m1", "")
    assert sink.got == [b"clean one"]


async def test_a_message_with_an_unknown_outcome_gets_no_answer(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(answer_s=0.1))
    sink.error = UncertainCommitError("no answer")
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"), message(b"m2", b"two"))
    assert await peer.ended() == b""


async def test_no_answer_is_sent_if_errors_are_suppressed(start: Start, sink: ScriptedSink) -> None:
    agent = await start(changed(answer_s=0.1, trouble=FailureReply.CLOSE))
    sink.error = TransientError("away")
    peer = await agent.peer()
    peer.send(message(b"m1", b"one"))
    assert await peer.ended() == b""


async def test_a_port_in_use_is_reported_with_its_setting(start: Start) -> None:
    agent = await start()
    with pytest.raises(ConfigurationError, match=r"mllp\.port: \d+ is in use on 127\.0\.0\.1: set mllp\.port"):
        await start(changed(port=agent.transport.port))


async def test_no_content_of_a_message_is_logged_or_answered(
    start: Start, sink: ScriptedSink, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    agent = await start(changed(answer_s=0.2, max_message_bytes=5000))
    peer = await agent.peer()
    peer.send(message(b"m1", CANARY), message(b"m2", b"bad " + CANARY), CANARY, b"MSH|^~\\&|" + CANARY + b"\x00|\r")
    raw = b"".join([await peer.reader.readuntil(b"\x1c\r") for _ in range(4)])
    sink.error = TransientError("away")
    peer.send(message(b"m3", CANARY))
    peer.writer.write(b"\x0b" + message(b"m4", CANARY * 1000))
    raw += await peer.ended()
    await agent.stop()
    events: list[Event] = agent.telemetry.events
    assert CANARY not in raw
    assert CANARY.decode() not in caplog.text + repr(events) + repr(agent.transport)
    assert len(dead_letters(tmp_path)) == 1


def test_every_fault_and_answer_is_counted_in_the_metrics() -> None:
    assert {*FramingFault, RefusalCode.NOT_HL7, RefusalCode.SEVERAL, RefusalCode.CHARSET, "FULL"} == set(
        MLLP_FAULT_CODES
    )
    assert {a + v for a in "AC" for v in AckResult} | {"none"} == set(MLLP_ANSWER_CODES)


async def test_messages_go_from_a_sender_to_a_receiver(tmp_path: Path) -> None:
    receiver = await Receiver().start()
    sink = MllpSink(MllpOutSettings(host="127.0.0.1", port=receiver.port, ack_timeout_s=5, error_attempts=2))
    agent = await Agent(sink, tmp_path / "letters", LISTEN).start()
    receiver.verdicts.extend(["AE", "AA", "AE", "AE", "AR"])
    peer: Peer = await agent.peer()
    peer.send(*(message(b"m%d" % n, b"%d" % n) for n in range(4)))
    assert [await peer.answer() for _ in range(4)] == [("AA", f"m{n}", "") for n in range(4)]
    assert [data.partition(b"\r")[2] for data in receiver.got] == [b"clean 0", b"clean 3"]
    assert dead_letters(tmp_path) == ["REJECTED", "REJECTED"]
    await agent.end()
    await receiver.stop()
