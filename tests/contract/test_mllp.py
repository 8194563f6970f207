"""MLLP keeps the contract of transports: from our listener to a receiver or a folder, and from elsewhere to one."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.mllp_contract import FromListener, IntoReceiver
from support.mllp_world import DressedOutlet, MllpWorld, Shorn, shorn
from support.transport_contract import FoundLetter, Given, World

from deid_agent.agent.ports import Output, Partition, Transport
from deid_agent.transport.folder_outlet import FolderOutlet
from deid_agent.transport.memory import Cluster, MemoryTransport
from deid_agent.transport.mllp import MllpTransport
from deid_agent.transport.mllp_sender import MllpOutlet
from deid_agent.transport.mllp_settings import ListenSettings, SendSettings
from deid_agent.transport.outlet import Outlet, OutletTransport

LISTEN = ListenSettings(port=0, max_connections=1)


class ToReceiver(MllpWorld):
    def transport(self) -> Transport:
        inner = MllpTransport(LISTEN, self.outlet(), self.root / "letters")
        self.opened.append(Shorn(inner, self.feed))
        return self.opened[-1]

    def outlet(self) -> Outlet:
        return MllpOutlet(SendSettings(host="127.0.0.1", port=self.receiver.port, ack_timeout_s=5))


class ToFolder(ToReceiver):
    def outlet(self) -> Outlet:
        if (self.root / "out").is_file():
            (self.root / "out").unlink()
        return FolderOutlet(self.root / "out")

    async def outputs(self) -> Sequence[Output]:
        if not (self.root / "out").is_dir():
            return []
        return [Output(*shorn(path.read_bytes())) for path in sorted((self.root / "out").iterdir())]

    def fail_settle(self) -> None:
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
        outlet = MllpOutlet(SendSettings(host="127.0.0.1", port=self.receiver.port, ack_timeout_s=5))
        self.opened.append(OutletTransport(MemoryTransport(self.cluster), DressedOutlet(outlet)))
        return self.opened[-1]

    async def letters(self) -> Sequence[FoundLetter]:
        return [FoundLetter(dict(m.headers), m.payload) for m in self.cluster.letters(self.stream)]


class TestMemoryToReceiver(IntoReceiver):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        world = FromMemory(tmp_path)
        await world.receiver.start()
        yield world
        await world.stop()

    async def test_a_repeated_settle_delivers_nothing_twice(self, world: MllpWorld) -> None:
        await super().test_a_repeated_settle_delivers_nothing_twice(world)
        assert isinstance(world, FromMemory)
        assert world.cluster.positions[world.stream] == 3
