"""A start that is cancelled at any moment ends and leaves no connection open."""

import asyncio
import gc
from collections.abc import AsyncIterator
from itertools import count

import pytest
from aiokafka.conn import AIOKafkaConnection
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld
from support.transport_contract import Member

pytestmark = pytest.mark.broker

STEP_S = 0.001


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(cluster).create(1)
    yield world
    await world.close()


async def test_a_cancelled_start_leaves_no_connection_open(world: KafkaWorld) -> None:
    """Cancelled a millisecond later each time, until a start completes: this covers every step of a start."""
    for number in count():
        transport = world.transport()
        start = asyncio.create_task(transport.start(Member()))
        done, _ = await asyncio.wait({start}, timeout=number * STEP_S)
        start.cancel()
        ended, _ = await asyncio.wait({start}, timeout=5)
        assert ended, number
        await transport.stop()
        assert not connections(), number
        if done:
            await start
            break


def connections() -> list[AIOKafkaConnection]:
    """All open connections."""
    return [found for found in gc.get_objects() if isinstance(found, AIOKafkaConnection) and found.connected()]
