"""Input topics by regular expression: new ones are read without a restart, and only if they can be written."""

import asyncio

import pytest
from support.kafka_broker import Cluster
from support.kafka_world import copied, produce, read, take
from support.transport_contract import Member, numbered

from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry, TopicSkipped
from deid_agent.telemetry.events import Event
from deid_agent.transport.kafka import KafkaOptions, KafkaTransport, matched_options, watch

pytestmark = pytest.mark.broker


class Skipped(Telemetry):
    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[str] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, TopicSkipped) and event.topic not in self.skipped:
            self.skipped.append(event.topic)


async def create(cluster: Cluster, topic: str) -> None:
    for name in (f"deid.{topic}", f"{topic}.dlq", topic):
        await cluster.create_topic(name)


async def test_topics_that_match_are_read_when_they_come(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_INTERVAL_S", 0.1)
    monkeypatch.setattr(watch, "_DISCOVER_S", 0.2)
    options = KafkaOptions(
        bootstrap_servers=cluster.bootstrap, group_id="many", topics_pattern=r"many\..*", output="deid.{topic}"
    )
    telemetry = Skipped()
    transport = KafkaTransport(options, telemetry=telemetry)
    with pytest.raises(ConfigurationError, match="no topic matches"):
        await transport.start(Member())
    await create(cluster, "many.adt")
    await cluster.create_topic("many.lost")  # has no output topic
    await produce(cluster.bootstrap, "many.adt", 0, numbered(1))
    member = Member()
    await transport.start(member)
    try:
        (first,) = await take(transport, 1)
        assert (first.coordinates.topic, telemetry.skipped) == ("many.adt", ["many.lost"])
        await create(cluster, "many.oru")
        await produce(cluster.bootstrap, "many.oru", 0, numbered(1))
        async with asyncio.timeout(30):
            records = {record.coordinates.topic: record for record in await take(transport, 2)}
        for topic, record in records.items():
            await transport.commit(record.coordinates.stream, [copied(record)], 1)
            assert len(await read(cluster.bootstrap, f"deid.{topic}")) == 1
        assert sorted(records) == ["many.adt", "many.oru"], "the outputs are never inputs"
        assert set((await matched_options(options)).routes) == {"many.adt", "many.lost", "many.oru"}
    finally:
        await transport.stop()
