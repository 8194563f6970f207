"""The only module that reads private attributes of aiokafka.

The public API of aiokafka 0.14 has no way to learn that a background task has died, to drop unsent bytes, or to
close a producer without flushing it. The functions of this module do that. ``pyproject.toml`` pins the minor
version; ``tests/unit/transport/test_kafka_client_internals.py`` checks every attribute that is used here, so that
an upgrade which removes or renames one fails in that test and not at a hospital.
"""

import asyncio
from collections.abc import Iterator

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient

_Task = asyncio.Future[object]

_COORDINATOR_TASKS = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")
"""The first three belong to ``GroupCoordinator``, the last one to ``NoGroupCoordinator`` (a consumer without group)."""


def find_dead_task(consumer: AIOKafkaConsumer) -> _Task | None:
    """The coordination or fetch task of an open consumer if it has ended; None while both are alive.

    When one of them ends, aiokafka keeps answering ``getmany`` with nothing, or repeats the same error for ever.
    """
    if consumer._closed:
        return None
    tasks = (getattr(consumer._coordinator, "_coordination_task", None), _fetch_task(consumer))
    return next((task for task in tasks if task is not None and task.done()), None)


def is_group_member(consumer: AIOKafkaConsumer) -> bool:
    """True if the consumer has a valid generation and member id in its group."""
    coordinator = consumer._coordinator
    return coordinator is not None and coordinator.generation >= 0 and bool(coordinator.member_id)


def cancel_consumer_tasks(consumer: AIOKafkaConsumer) -> None:
    """Cancel all background tasks of a consumer without talking to the broker."""
    tasks = [getattr(consumer._coordinator, name, None) for name in _COORDINATOR_TASKS]
    tasks += [_fetch_task(consumer), *(consumer._fetcher._pending_tasks if consumer._fetcher else ())]
    for task in tasks:
        if task is not None:
            task.cancel()


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """The client that owns the consumer's connections."""
    return consumer._client


def sender_task(producer: AIOKafkaProducer) -> _Task | None:
    """The task that sends the producer's batches; None before the producer was started."""
    task: _Task | None = producer._sender.sender_task
    return task


def mark_closed(producer: AIOKafkaProducer) -> None:
    """Make ``stop()`` and the finalizer of the producer do nothing: they would flush what is unsent."""
    producer._closed = True


async def close_sender(producer: AIOKafkaProducer) -> None:
    """Cancel the producer's sender task and wait until it has ended. It may wait for its requests first."""
    await producer._sender.close()


def abort_connections(client: AIOKafkaClient) -> None:
    """Drop the unsent bytes of all connections and reset them.

    Closing a connection sends those bytes first. With a broker that is gone this takes minutes.
    """
    for connection in client._conns.values():
        if connection._writer is not None:
            connection._writer.transport.abort()


def pending_futures(producer: AIOKafkaProducer) -> Iterator[_Task]:
    """The futures of a closed producer that nobody else awaits: the end of its transaction, and its unsent batches."""
    if producer._txn_manager is not None and (end := producer._txn_manager.wait_for_transaction_end()) is not None:
        yield end
    for queue in producer._message_accumulator._batches.values():
        yield from (batch._drain_waiter for batch in queue)


def _fetch_task(consumer: AIOKafkaConsumer) -> _Task | None:
    task: _Task | None = consumer._fetcher.error_future if consumer._fetcher else None
    return task
