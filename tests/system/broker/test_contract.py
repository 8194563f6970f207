"""The contract of every transport, on Apache Kafka, in both modes of delivery."""

from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld
from support.transport_contract import TransportContract, World

from deid_agent.config import Delivery

pytestmark = pytest.mark.broker


class ContractWorld(KafkaWorld):
    """Fails a commit at the worst moment: in exactly-once mode after the messages were sent."""

    def __init__(self, cluster: Cluster, delivery: Delivery, patch: Callable[[str, object], None]) -> None:
        super().__init__(cluster, delivery)
        self._patch = patch

    def fail_commit(self) -> None:
        exactly_once = self.settings.delivery is Delivery.EXACTLY_ONCE
        name = "send_offsets_to_transaction" if exactly_once else "send_batch"
        real = getattr(AIOKafkaProducer, name)

        async def fail(*_arguments: object, **_options: object) -> None:
            self._patch(name, real)
            raise KafkaConnectionError

        self._patch(name, fail)


class _OnKafka(TransportContract):
    delivery: Delivery

    @pytest.fixture
    async def world(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
        def patch(name: str, value: object) -> None:
            monkeypatch.setattr(AIOKafkaProducer, name, value)

        world = ContractWorld(cluster, self.delivery, patch)
        await world.create()
        yield world
        await world.close()


class TestExactlyOnce(_OnKafka):
    delivery = Delivery.EXACTLY_ONCE


class TestAtLeastOnce(_OnKafka):
    delivery = Delivery.AT_LEAST_ONCE
