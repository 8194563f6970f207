"""A running transport notices an outage, and a topic that is created again under it."""

import asyncio
import logging

import pytest
from support.kafka_broker import Cluster, KafkaBroker
from support.kafka_world import KafkaWorld, copied, produce, take, until
from support.transport_contract import Member, numbered

from deid_agent.model import DeidError
from deid_agent.telemetry import Telemetry, metrics
from deid_agent.transport.kafka import KafkaTransport, watch

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_INTERVAL_S", 0.1)
    monkeypatch.setattr(watch, "_RETRY_S", 0.1)


async def test_an_outage_is_one_event_and_ends(
    cluster: Cluster, world: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the agent was ready, and the client logged dozens of lines a second."""
    if not isinstance(cluster, KafkaBroker):
        pytest.skip("the broker runs elsewhere: it cannot be suspended")
    await world.create()
    telemetry = Telemetry()
    transport = KafkaTransport(world.changed(request_timeout_ms=4_000), telemetry=telemetry)
    world.transports.append(transport)
    await transport.start(Member())
    assert transport.outage == ""
    with caplog.at_level(logging.INFO, "deid_agent"):
        cluster.suspend()
        try:
            async with asyncio.timeout(20):
                while not transport.outage:
                    await transport.poll(1)
            assert telemetry.registry.value(metrics.BROKER_UNREACHABLE) == 1
            await asyncio.sleep(4.5)  # further attempts fail
        finally:
            cluster.resume()
        await until(lambda: not transport.outage)
    assert telemetry.registry.value(metrics.BROKER_UNREACHABLE) == 0
    assert [record.message for record in caplog.records if record.message.startswith("Broker")] == [
        "BrokerUnreachable",
        "BrokerReachable",
    ]


async def test_a_topic_that_is_created_again_stops_its_readers(cluster: Cluster, world: KafkaWorld) -> None:
    """The client would go on at the old offset and skip the records before it."""
    await world.create()
    await world.fill(numbered(2))
    transport = world.transport()
    await transport.start(Member())
    records = await take(transport, 2)
    await transport.commit(world.stream, [copied(r) for r in records], 2)
    await cluster.recreate_topic(world.name)
    await produce(world.cluster.bootstrap, world.name, 0, numbered(4))
    with pytest.raises(DeidError, match="created again"):
        async with asyncio.timeout(30):
            while True:
                await transport.poll(10)
