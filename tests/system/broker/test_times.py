"""The time of an output on a real broker: coarse, none at all, and the effect of topic settings."""

import time as clock

import pytest
from support.kafka_world import KafkaWorld, copied, read, started_with_records
from support.transport_contract import refused

from deid_agent.agent import FinishedRecord
from deid_agent.agent.ports import Output
from deid_agent.config import Delivery
from deid_agent.model import NO_TIME, RecordTime
from deid_agent.model.errors import TransientError
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


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("hours", [5, -400_000])
async def test_a_clock_that_is_wrong_stops_nothing_and_dates_no_dead_letter_before_its_record(
    world: KafkaWorld, hours: int, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses times that are an hour ahead; retention would delete a dead letter of 1980 at once."""
    world.settings = world.changed(delivery=delivery)
    transport, records = await started_with_records(world, 2)
    right = clock.time
    monkeypatch.setattr(clock, "time", lambda: right() + hours * 3_600)
    batch = [copied(records[0]), refused(records[1])]
    if hours > 0:
        with pytest.raises(TransientError, match="clock"):
            await transport.commit(world.stream, batch, 2)
    await transport.commit(world.stream, batch, 2)
    monkeypatch.undo()
    (dead_letter,) = await read(world.cluster.bootstrap, world.settings.dead_letter_topic(world.name))
    assert dead_letter.timestamp == records[1].timestamp_ms
    outputs = [output.payload for output in await world.outputs()]
    assert set(outputs) == {records[0].payload}
    assert len(outputs) == 1 or delivery is Delivery.AT_LEAST_ONCE
