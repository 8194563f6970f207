"""The transports of the base installation keep the contract; Kafka's runs it under ``tests/system/broker``."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from support.memory_transport import Cluster, MemoryTransport
from support.transport_contract import Given, StoredDeadLetter, TransportContract, World, folder_settings

from deid_agent.agent.ports import Output, Partition, Transport
from deid_agent.model.errors import TransientError
from deid_agent.transport.folder.source import STREAM, FolderTransport


class MemoryWorld:
    def __init__(self) -> None:
        self.stream = Partition("adt", 0)
        self.cluster = Cluster(self.stream)

    async def fill(self, given: Sequence[Given]) -> None:
        for item in given:
            self.cluster.produce(self.stream, item.payload, key=item.key, headers=item.headers)

    def transport(self) -> Transport:
        return MemoryTransport(self.cluster)

    async def outputs(self) -> Sequence[Output]:
        return self.cluster.outputs(self.stream)

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        return [StoredDeadLetter(dict(m.headers), m.payload) for m in self.cluster.dead_letters(self.stream)]

    def fail_commit(self) -> None:
        self.cluster.fail("commit", TransientError("the broker is away"))


class TestMemory(TransportContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        yield MemoryWorld()


class FilesWorld:
    def __init__(self, root: Path) -> None:
        self.stream = STREAM
        self.root = root
        self.opened: list[FolderTransport] = []
        (root / "in").mkdir()

    async def fill(self, given: Sequence[Given]) -> None:
        for item in given:
            (self.root / "in" / (item.key or b"").decode()).write_bytes(item.payload)

    def transport(self) -> Transport:
        self.repair()
        at = self.root
        self.opened.append(FolderTransport(folder_settings(at)))
        return self.opened[-1]

    def repair(self) -> None:
        if (self.root / "out").is_file():
            (self.root / "out").unlink()

    async def outputs(self) -> Sequence[Output]:
        if not (self.root / "out").is_dir():
            return []
        return [Output(path.read_bytes(), path.name.encode()) for path in sorted((self.root / "out").iterdir())]

    async def dead_letters(self) -> Sequence[StoredDeadLetter]:
        found = sorted((self.root / "letters").glob("*.json"))
        return [
            StoredDeadLetter(
                # The name, by which an operator finds the file: tests/unit/transport/test_files.py looks at it.
                {k: v.encode() for k, v in json.loads(path.read_text()).items() if k != "deid.file"},
                path.with_suffix(".payload").read_bytes(),
            )
            for path in found
        ]

    def fail_commit(self) -> None:
        (self.root / "out").rmdir()
        (self.root / "out").touch()


class TestFiles(TransportContract):
    waived: ClassVar[Mapping[str, str]] = {
        "test_a_record_without_a_key": "every file has a name",
        "test_headers_are_passed_through_unchanged": "files have no headers",
    }

    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        world = FilesWorld(tmp_path)
        yield world
        for transport in world.opened:
            await transport.stop()
