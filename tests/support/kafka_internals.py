"""The only module of the tests' support that touches private attributes of aiokafka.

``deid_agent/transport/kafka/client_internals.py`` is its counterpart in the package.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import ConnectionGroup
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.group import LeaveGroupRequest

from deid_agent.transport.kafka.client_internals import client_of


async def partition_numbers(consumer: AIOKafkaConsumer, topic: str) -> list[int]:
    """The partitions of a topic that the consumer need not be subscribed to, in order."""
    return sorted(await client_of(consumer)._wait_on_metadata(topic))


@asynccontextmanager
async def out_of_group(consumer: AIOKafkaConsumer, group_id: str) -> AsyncIterator[None]:
    """Leave the group as the broker sees it; inside, the consumer has no generation and no member id either."""
    coordinator = consumer._coordinator
    membership = coordinator.generation, coordinator.member_id
    await coordinator._send_req(LeaveGroupRequest(group_id, coordinator.member_id))
    coordinator.generation, coordinator.member_id = -1, ""
    try:
        yield
    finally:
        coordinator.generation, coordinator.member_id = membership


def fill_socket(producer: AIOKafkaProducer, connection: AIOKafkaConnection, data: bytes) -> asyncio.WriteTransport:
    """Give the producer a connection with ``data`` to send, and return the transport that holds the unsent bytes."""
    client = producer.client
    client._conns[(1, ConnectionGroup.DEFAULT)] = connection
    connection._writer.write(data)
    transport: asyncio.WriteTransport = connection._writer.transport
    return transport
