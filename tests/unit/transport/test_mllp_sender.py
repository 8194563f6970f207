"""The sender: answers that are late, wrong or missing."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.mllp_agent import until
from support.mllp_world import Receiver, block, message

from deid_agent.agent.ports import Coordinates, Output, Record
from deid_agent.config import MllpOutSettings
from deid_agent.model.errors import RejectedError, TransientError, UncertainCommitError
from deid_agent.transport.mllp.protocol import AckResult
from deid_agent.transport.mllp.sender import MllpSink, Sender

CANARY = "Okonkwo"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def sender(receiver: Receiver) -> AsyncIterator[Sender]:
    sender = Sender(settings(receiver), None)
    yield sender
    await sender.close()


def settings(receiver: Receiver, **more: float) -> MllpOutSettings:
    wanted = {"connect_timeout_s": 2.0, "ack_timeout_s": 0.3, **more}
    return MllpOutSettings(host="127.0.0.1", port=receiver.port, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["A", "C"])
async def test_the_answer_of_the_receiver_decides_the_outcome(receiver: Receiver, sender: Sender, mode: str) -> None:
    receiver.verdicts.extend(mode + verdict.value for verdict in AckResult)
    assert [await sender.send(message(b"m%d" % n, b"")) for n in range(3)] == list(AckResult)
    assert receiver.connections == 1


async def test_one_message_at_a_time_is_sent(receiver: Receiver, sender: Sender) -> None:
    sent = await asyncio.gather(*(sender.send(message(b"m%d" % n, b"")) for n in range(50)))
    assert set(sent) == {AckResult.ACCEPT}
    assert receiver.most_at_once == 1
    assert [data.split(b"|")[9] for data in receiver.got] == [b"m%d" % n for n in range(50)]


@pytest.mark.parametrize("how", ["", "cut"])
async def test_without_an_answer_the_outcome_is_unknown_and_the_next_attempt_reconnects(
    receiver: Receiver, sender: Sender, how: str
) -> None:
    receiver.verdicts.append(how)
    with pytest.raises(
        UncertainCommitError, match=r"127\.0\.0\.1:\d+: no answer \((TimeoutError|EOFError)\): sent again"
    ):
        await sender.send(message(b"m1", b""))
    assert await sender.send(message(b"m1", b"")) is AckResult.ACCEPT
    assert receiver.connections == 2


async def test_nothing_is_sent_to_an_unreachable_receiver(receiver: Receiver, sender: Sender) -> None:
    await receiver.stop()
    with pytest.raises(
        TransientError, match=r"cannot be reached .*: check mllp_out\.host and mllp_out\.port"
    ) as caught:
        await sender.send(message(b"m1", b""))
    assert not isinstance(caught.value, UncertainCommitError)
    await receiver.start(receiver.port)
    assert await sender.send(message(b"m1", b"")) is AckResult.ACCEPT


async def test_a_connection_closed_by_the_receiver_before_sending_leaves_no_unknown_outcome(
    receiver: Receiver, sender: Sender
) -> None:
    assert await sender.send(message(b"m1", b"")) is AckResult.ACCEPT
    for writer in list(receiver._writers):
        writer.close()
        await writer.wait_closed()
    await until(lambda: sender._connection is not None and not sender._connection.usable)
    assert await sender.send(message(b"m2", b"")) is AckResult.ACCEPT
    assert receiver.connections == 2


def ack(code: str, known: str) -> bytes:
    return block(f"MSH|^~\\&|R|R|S|S|20240318||ACK|r1|P|2.5\rMSA|{code}|{known}|{CANARY}\r".encode())


@pytest.mark.parametrize(
    "answer",
    [ack("AA", "other"), block(b"MSH|^~\\&|\rPID|1\r"), b"HTTP/1.1 400\r\n", b"\x0b" + b"x" * (1 << 21), block(b"")],
)
async def test_an_answer_to_another_message_is_ignored(receiver: Receiver, sender: Sender, answer: bytes) -> None:
    receiver.verdicts.append(answer)
    with pytest.raises(UncertainCommitError) as caught:
        await sender.send(message(b"m1", b""))
    assert CANARY not in str(caught.value)


async def test_a_second_answer_of_the_application_is_ignored(receiver: Receiver, sender: Sender) -> None:
    """In enhanced mode CA means that the message is stored; AA may follow much later."""
    receiver.verdicts.extend([ack("CA", "m1"), ack("AA", "m1") + ack("CA", "m2")])
    assert [await sender.send(message(name, b"")) for name in (b"m1", b"m2")] == [AckResult.ACCEPT] * 2
    assert receiver.connections == 1


async def test_a_late_answer_is_not_taken_for_that_of_the_next_message(receiver: Receiver, sender: Sender) -> None:
    receiver.verdicts.extend(["", "AR"])
    with pytest.raises(UncertainCommitError):
        await sender.send(message(b"m1", b""))
    assert await sender.send(message(b"m2", b"")) is AckResult.REJECT


async def test_no_answer_is_an_acceptance_if_the_message_requests_none(receiver: Receiver, sender: Sender) -> None:
    receiver.verdicts.extend(["", "AE"])
    quiet = message(b"m1", b"", b"|||NE|NE")
    other = message(b"m2", b"", b"|||NE|NE")
    assert [await sender.send(quiet), await sender.send(other)] == [AckResult.ACCEPT, AckResult.ERROR]
    assert receiver.connections == 1


async def test_no_answer_is_not_an_acceptance_if_nothing_was_sent() -> None:
    """The receiver accepts the connection and reads nothing: most of the message is still in this process."""
    connected: list[asyncio.StreamWriter] = []

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = Sender(MllpOutSettings(host="127.0.0.1", port=port, ack_timeout_s=0.3), None)
        with pytest.raises(UncertainCommitError):
            await sender.send(message(b"m1", b"x" * (16 << 20), b"|||NE|NE"))
        for writer in connected:
            writer.transport.abort()


@pytest.mark.parametrize("name", [b"1", b""])
async def test_a_late_answer_is_not_taken_for_that_of_another_message_of_the_same_id(
    receiver: Receiver, sender: Sender, name: bytes
) -> None:
    """Senders that count 1, 2, 3 share a connection to the receiver; others give no id at all."""
    receiver.verdicts.extend([ack("CA", name.decode()) + ack("AA", name.decode()), "CR"])
    enhanced = message(name, b"", b"|||AL|AL")
    assert [await sender.send(enhanced) for _ in range(2)] == [AckResult.ACCEPT, AckResult.REJECT]
    assert receiver.connections == 2


async def test_a_message_waits_for_earlier_messages_at_most_one_timeout(receiver: Receiver) -> None:
    """Its sender waits for an answer; many earlier messages would add up to minutes."""
    receiver.verdicts.extend([""] * 9)
    sender = Sender(settings(receiver, connect_timeout_s=0.1, ack_timeout_s=0.2), None)
    async with asyncio.timeout(5):
        sent = await asyncio.gather(*(sender.send(message(b"m%d" % n, b"")) for n in range(9)), return_exceptions=True)
    kinds = [type(error).__name__ for error in sent]
    assert kinds.count("UncertainCommitError") in (1, 2), "the senders that were served"
    assert all("other messages are still waiting" in str(error) for error in sent if type(error) is TransientError)
    await sender.close()


@pytest.mark.parametrize(
    "data", [b'{"resourceType": "Patient"}', b"", message(b"m", b"two\x1c\rmessages"), message(b"m", b"") * 2]
)
async def test_an_unreadable_message_is_rejected_before_sending(
    receiver: Receiver, sender: Sender, data: bytes
) -> None:
    assert await sender.send(data) is AckResult.REJECT
    assert receiver.connections == 0


async def test_a_send_that_is_cancelled_leaves_no_answer_behind(receiver: Receiver) -> None:
    receiver.verdicts.append("")
    sender = Sender(settings(receiver, ack_timeout_s=30), None)
    sending = asyncio.create_task(sender.send(message(b"m1", b"")))
    await until(lambda: not receiver.verdicts)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await sender.send(message(b"m2", b"")) is AckResult.ACCEPT
    assert receiver.connections == 2
    await sender.close()


def record(offset: int, worker: int = 0) -> Record:
    return Record(Coordinates("adt", worker, offset), b"")


async def test_errors_are_retried_without_limit_by_default(receiver: Receiver) -> None:
    sink = MllpSink(settings(receiver))
    await sink.start()
    receiver.verdicts.extend(["AE"] * 20)
    for _ in range(20):
        with pytest.raises(TransientError, match=r"adt/0/5 at 127\.0\.0\.1:\d+: answered with an error"):
            await sink.deliver(record(5), Output(message(b"m", CANARY.encode())))
    await sink.deliver(record(5), Output(message(b"m", b"")))
    assert CANARY not in repr(sink)
    await sink.stop()


async def test_errors_count_for_one_message_of_one_partition(receiver: Receiver) -> None:
    sink = MllpSink(settings(receiver, error_attempts=2, connections=2))
    await sink.start()
    receiver.verdicts.extend(["AE"] * 5)
    for at in (record(5), record(5, worker=1), record(6)):
        with pytest.raises(TransientError):
            await sink.deliver(at, Output(message(b"m", b"")))
    for at in (record(6), record(5, worker=1)):
        with pytest.raises(RejectedError, match="an error 2 times; look at the receiver's log") as caught:
            await sink.deliver(at, Output(message(b"m", b"")))
        assert caught.value.offset == at.coordinates.offset
    await sink.stop()
    assert receiver.connections == 2


async def test_a_framed_record_is_sent_in_one_block(receiver: Receiver) -> None:
    sink = MllpSink(settings(receiver))
    await sink.start()
    await sink.deliver(record(1), Output(block(message(b"m", b"x"))))
    assert receiver.got == [message(b"m", b"x")]
    await sink.stop()
