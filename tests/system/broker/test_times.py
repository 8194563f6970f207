"""The time of an output on a real broker: coarse, none at all, and the effect of topic settings."""

import pytest
from support.kafka_world import KafkaWorld, copied, read, started_with_records

from deid_agent.agent import FinishedRecord
from deid_agent.agent.ports import Output
from deid_agent.config import Delivery
from deid_agent.model import NO_TIME, RecordTime
from deid_agent.transport.kafka import probe_output_times

pytestmark = pytest.mark.broker


def timed(item: FinishedRecord, time: RecordTime) -> FinishedRecord:
    assert item.output is not None
    output = Output(item.output.payload, item.output.key, item.output.headers, time.coarsen(item.record.timestamp_ms))
    return FinishedRecord(item.record, item.outcome, output, id=item.id)


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("time", RecordTime)
async def test_an_output_has_the_time_of_the_policy_and_no_other(
    world: KafkaWorld, time: RecordTime, delivery: Delivery
) -> None:
    world.settings = world.changed(delivery=delivery)
    transport, records = await started_with_records(world, 5)
    await transport.commit(world.stream, [timed(copied(record), time) for record in records], 5)
    found = await read(world.cluster.bootstrap, world.out)
    assert [m.timestamp for m in found] == [time.coarsen(record.timestamp_ms) for record in records]
    assert {m.timestamp_type for m in found} == {0}, "CreateTime: the broker stamps nothing"
    assert (NO_TIME in {m.timestamp for m in found}) == (time is RecordTime.NONE)


async def test_a_topic_that_stamps_its_own_time_is_a_warning(world: KafkaWorld) -> None:
    await world.create()
    assert await probe_output_times(world.settings, RecordTime.DAY) == []
    strict = {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"}
    await world.cluster.configure_topic(world.out, strict)
    stamped, deleted = await probe_output_times(world.settings, RecordTime.DAY)
    assert "LogAppendTime" in stamped
    assert "retention.ms is 3600000" in deleted
    assert len(await probe_output_times(world.settings, RecordTime.KEEP)) == 0
    assert len(await probe_output_times(world.settings, RecordTime.NONE)) == 1


async def test_a_topic_that_does_not_exist_is_a_warning(world: KafkaWorld) -> None:
    (line,) = await probe_output_times(world.settings, RecordTime.DAY)
    assert "may not be read" in line
