"""A route of its own on the shared broker for each test."""

from collections.abc import AsyncIterator

import pytest
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    world = KafkaWorld(cluster)
    yield world
    await world.close()
