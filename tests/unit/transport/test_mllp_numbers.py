"""The numbers of MLLP messages: without gaps over connections, errors and restarts, and never given twice."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.transport_contract import after, published

from deid_agent.agent.ports import Output, Partition, Record
from deid_agent.config import MllpSettings
from deid_agent.model.errors import ConfigurationError, TransientError, UnsafeError
from deid_agent.transport.mllp.connection import ConnectionSlot, ReplyQueue
from deid_agent.transport.mllp.numbers import SequenceNumbers, UsedNumbers, random_start, read_numbers
from deid_agent.transport.mllp.protocol import UNKNOWN_HEAD, AckWriter
from deid_agent.transport.mllp.source import MllpTransport

STREAM = Partition("mllp", 0)
DAMAGES = [bytes(34), b"x" * 34, b"%016d %016d\n" % (0, 0), b"%016d %016d\n" % (900, 700)]


def numbers(path: Path, slots: int = 2, start: int = 700) -> SequenceNumbers:
    return SequenceNumbers(path, slots, lambda: start)


async def test_numbers_go_on_after_a_restart_and_each_slot_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    first = numbers(path)
    assert (first.next(0), first.next(1)) == (700, 700)
    await first.use(1, 703)
    await first.use(1, 701)
    first.close()
    first.close()
    second = numbers(path, 3, 9000)
    assert [second.next(slot) for slot in range(3)] == [700, 704, 9000]
    second.close()
    assert read_numbers(path) == {0: UsedNumbers(700, 700), 1: UsedNumbers(700, 704), 2: UsedNumbers(9000, 9000)}
    assert path.stat().st_mode & 0o777 == 0o600


async def test_two_agents_never_share_the_file(tmp_path: Path) -> None:
    held = numbers(tmp_path / "numbers")
    with pytest.raises(ConfigurationError, match=r"mllp\.state: .*used by another agent"):
        numbers(tmp_path / "numbers")
    with pytest.raises(ConfigurationError, match=r"mllp\.state: .*No such file"):
        numbers(tmp_path / "nowhere" / "numbers")
    held.close()
    numbers(tmp_path / "numbers").close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_begins_another_sequence(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "numbers"
    numbers(path).close()
    path.write_bytes(damage + path.read_bytes()[34:])
    again = numbers(path, 2, 12_345)
    assert again.next(0) == 12_345
    again.close()


def test_starts_differ_and_are_exact_numbers_in_every_reader() -> None:
    starts = {random_start() for _ in range(100)}
    assert len(starts) == 100
    assert all(2_000_000_000_000_000 < start < 1 << 53 for start in starts)


async def test_a_full_disk_delivers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = numbers(tmp_path / "numbers")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(UnsafeError, match="nothing was delivered"):
            await held.use(0, 700)
    held.close()


class Sink:
    """A sink that fails while ``down``."""

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.down = False

    async def start(self) -> None:
        """Nothing to prepare."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def deliver(self, record: Record, output: Output) -> None:
        if self.down:
            raise TransientError("down")
        self.delivered.append(record.coordinates.offset)


class Listener:
    async def assigned(self, streams: Sequence[Partition]) -> None:
        """The test takes records itself."""

    async def revoked(self, streams: Sequence[Partition]) -> None:
        """Nothing is in progress."""


def connect(slot: ConnectionSlot, count: int) -> None:
    """A sender that sends ``count`` messages."""
    slot.replies = ReplyQueue(lambda _: None, lambda _: None, lambda: None, AckWriter())
    for _ in range(count):
        slot.put(slot.replies, UNKNOWN_HEAD, b"MSH|")


async def test_only_a_committed_message_uses_its_number(tmp_path: Path) -> None:
    sink = Sink()
    settings = MllpSettings(
        port=0, host="127.0.0.1", dead_letters=tmp_path, state=tmp_path / "state", max_connections=1
    )
    transport = MllpTransport(settings, sink)
    await transport.start(Listener())
    slot = transport._server.slots[0]
    first = slot._next
    connect(slot, 4)
    taken = slot.get(3)
    await transport.commit(STREAM, [published(taken[0])], after(taken[:1]))
    sink.down = True
    with pytest.raises(TransientError):
        await transport.commit(STREAM, [published(taken[1])], after(taken[:2]))
    await transport._connection_closed(slot)
    connect(slot, 2)
    (again,) = slot.get(1)
    assert again.coordinates.offset == first + 2, (
        "the second may have been delivered; the third was not, nor the fourth"
    )
    sink.down = False
    await transport.commit(STREAM, [published(taken[2])], after(taken))
    assert sink.delivered == [first], "the record that had the number before is not delivered in its stead"
    await transport.commit(STREAM, [published(again)], after([again]))
    assert sink.delivered == [first, first + 2]
    await transport._connection_closed(slot)
    connect(slot, 1)
    assert slot._next == first + 4, "the message that waited gave its number back"
    await transport.stop()
    assert read_numbers(tmp_path / "state")[0] == UsedNumbers(first, first + 3)
