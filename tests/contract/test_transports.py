"""The transports of the base installation keep the contract; Kafka's runs it under ``tests/broker``."""

from collections.abc import AsyncIterator, Sequence

import pytest
from support.transport_contract import FoundLetter, Given, TransportContract, World

from deid_agent.agent.ports import Output, Partition, Transport
from deid_agent.errors import TransientError
from deid_agent.transport.memory import Cluster, MemoryTransport


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

    async def letters(self) -> Sequence[FoundLetter]:
        return [FoundLetter(dict(m.headers), m.payload) for m in self.cluster.letters(self.stream)]

    def fail_settle(self) -> None:
        self.cluster.fail("settle", TransientError("the broker is away"))


class TestMemory(TransportContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        yield MemoryWorld()
