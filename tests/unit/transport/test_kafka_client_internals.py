"""The private attributes of aiokafka that ``client_internals`` uses exist in the installed version and mean the same.

A failure after an upgrade of aiokafka names the attribute. Adapt ``deid_agent/transport/kafka/client_internals.py``.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator, NoGroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.message_accumulator import MessageBatch
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager

from deid_agent.transport.kafka import client_internals
from deid_agent.transport.kafka.consumer import Consumer

SERVERS = "127.0.0.1:9"
USED = [
    (AIOKafkaConsumer, "_closed"),
    (AIOKafkaConsumer, "_client"),
    (AIOKafkaConsumer, "_coordinator"),
    (AIOKafkaConsumer, "_fetcher"),
    (GroupCoordinator, "_coordination_task"),
    (GroupCoordinator, "_heartbeat_task"),
    (GroupCoordinator, "_commit_refresh_task"),
    (GroupCoordinator, "generation"),
    (GroupCoordinator, "member_id"),
    (NoGroupCoordinator, "_reset_committed_task"),
    (Fetcher, "_pending_tasks"),
    (Fetcher, "error_future"),
    (AIOKafkaProducer, "_closed"),
    (AIOKafkaProducer, "_sender"),
    (AIOKafkaProducer, "_txn_manager"),
    (AIOKafkaProducer, "_message_accumulator"),
    (Sender, "sender_task"),
    (Sender, "close"),
    (TransactionManager, "wait_for_transaction_end"),
    (MessageBatch, "_drain_waiter"),
    (AIOKafkaClient, "_conns"),
    (AIOKafkaConnection, "_writer"),
]


@pytest.mark.parametrize(("owner", "name"), USED, ids=[f"{owner.__name__}.{name}" for owner, name in USED])
def test_aiokafka_has_the_attribute(owner: type, name: str) -> None:
    """The class defines the attribute, or assigns it in one of its methods."""
    advice = f"aiokafka's {owner.__name__} has no {name} any more: adapt transport/kafka/client_internals.py"
    assert hasattr(owner, name) or f"self.{name} = " in inspect.getsource(owner), advice


def test_every_private_attribute_in_use_is_listed() -> None:
    source = inspect.getsource(client_internals)
    listed = {name for _, name in USED if name.startswith("_")} | {"_batches"}
    found = {word.strip("._") for word in _attributes(source)}
    assert found == {name.strip("_") for name in listed}


def _attributes(source: str) -> Iterator[str]:
    yield from re.findall(r"(?<=[\w)\]])\._[a-z_]+", source)
    yield from re.findall(r'"(_[a-z_]+)"', source)


@pytest.fixture
async def producer() -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=SERVERS)
    yield made
    made._closed = True  # else its finalizer warns


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    made = Consumer(bootstrap_servers=SERVERS, group_id="g")
    yield made
    made._closed = True


async def test_an_unstarted_producer_has_no_sender_task(producer: AIOKafkaProducer) -> None:
    assert client_internals.sender_task(producer) is None
    await client_internals.close_sender(producer)


async def test_the_sender_task_is_that_of_the_sender(producer: AIOKafkaProducer) -> None:
    await producer._sender.start()
    task = client_internals.sender_task(producer)
    assert task is not None and not task.done()
    await asyncio.sleep(0)  # a task that is cancelled before its first step does not catch the cancellation
    await client_internals.close_sender(producer)
    assert task.done()


async def test_a_producer_marked_closed_does_not_flush(producer: AIOKafkaProducer) -> None:
    client_internals.mark_closed(producer)
    async with asyncio.timeout(1):
        await producer.stop()


async def test_pending_futures_are_those_of_unsent_batches(producer: AIOKafkaProducer) -> None:
    partition = TopicPartition("adt", 0)
    batch = producer._message_accumulator.create_builder()
    batch.append(timestamp=None, key=None, value=b"x")
    await producer._message_accumulator.add_batch(batch, partition, 1)
    (drained,) = client_internals.pending_futures(producer)
    assert isinstance(drained, asyncio.Future) and not drained.done()


async def test_an_unstarted_consumer_is_not_a_member_and_has_no_dead_task(consumer: Consumer) -> None:
    assert not client_internals.is_group_member(consumer)
    assert client_internals.find_dead_task(consumer) is None
    assert isinstance(client_internals.client_of(consumer), AIOKafkaClient)
    await consumer.abandon()


async def test_a_consumer_without_a_group_can_be_abandoned() -> None:
    """Such a consumer has another coordinator, with other tasks. It reads dead letters."""
    consumer = Consumer(bootstrap_servers=SERVERS)
    client = client_internals.client_of(consumer)
    consumer._coordinator = NoGroupCoordinator(client, SubscriptionState())
    task = consumer._coordinator._reset_committed_task
    await consumer.abandon()
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled()
    consumer._closed = True
