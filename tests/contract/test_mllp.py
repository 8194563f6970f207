"""MLLP keeps the contract of transports: from our listener to a receiver or a folder, and from elsewhere to one."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.memory_transport import Cluster, MemoryTransport
from support.mllp_agent import make_settings
from support.mllp_contract import FromListener, IntoReceiver
from support.mllp_world import HeaderlessTransport, Hl7OnlySink, MllpWorld, split_header
from support.transport_contract import Given, StoredDeadLetter, World

from deid_agent.agent.ports import Output, Partition, Transport
from deid_agent.config import MllpOutSettings
from deid_agent.transport.folder.files import FolderSink
from deid_agent.transport.mllp.sender import MllpSink
from deid_agent.transport.mllp.source import MllpTransport
from deid_agent.transport.sinks import Sink, SinkTransport


class ToReceiver(MllpWorld):
    def transport(self) -> Transport:
        inner = MllpTransport(make_settings(self.root / "letters", max_connections=1), self.sink())
        self.opened.append(HeaderlessTransport(inner, self.feed))
        return self.opened[-1]

    def sink(self) -> Sink:
        return MllpSink(MllpOutSettings(host="127.0.0.1", port=self.receiver.port, ack_timeout_s=5))


class ToFolder(ToReceiver):
    def sink(self) -> Sink:
        if (self.root / "out").is_file():
            (self.root / "out").unlink()
        return FolderSink(self.root / "out")

    async def outputs(self) -> Sequence[Output]:
        if not (self.root / "out").is_dir():
            return []
        return [Output(*split_header(path.read_bytes())) for path in sorted((self.root / "out").iterdir())]

    def fail_commit(self) -> None:
        (self.root / "out").rmdir()
        (self.root / "out").touch()


class TestMllpToReceiver(FromListener, IntoReceiver):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        world = ToReceiver(tmp_path)
        await world.receiver.start()
        yield world
        await world.stop()


class TestMllpToFolder(FromListener):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        world = ToFolder(tmp_path)
        yield world
        await world.stop()


class FromMemory(MllpWorld):
    stream = Partition("adt", 0)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cluster = Cluster(self.stream)

    async def fill(self, given: Sequence[Given]) -> None:
        for item in given:
            self.cluster.produce(self.stream, item.payload, key=item.key, headers=item.headers)

    def transport(self) -> Transport:
        sink = MllpSink(MllpOutSettings(host="127.0.0.1", port=self.receiver.port, ack_timeout_s=5))
        self.opened.append(SinkTransport(MemoryTransport(self.cluster), Hl7OnlySink(sink)))
        return self.opened[-1]

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        return [StoredDeadLetter(dict(m.headers), m.payload) for m in self.cluster.dead_letters(self.stream)]


class TestMemoryToReceiver(IntoReceiver):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        world = FromMemory(tmp_path)
        await world.receiver.start()
        yield world
        await world.stop()

    async def test_a_repeated_commit_delivers_nothing_twice(self, world: MllpWorld) -> None:
        await super().test_a_repeated_commit_delivers_nothing_twice(world)
        assert isinstance(world, FromMemory)
        assert world.cluster.positions[world.stream] == 3
