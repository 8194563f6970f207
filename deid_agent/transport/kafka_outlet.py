"""A topic as an outlet: what all replicas in sync have acknowledged is durable."""

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

from deid_agent.agent.letterhead import PLAIN
from deid_agent.agent.ports import Outcome, Output, Record, Settled
from deid_agent.errors import ConfigurationError, DoubtError, OversizeError, TransientError
from deid_agent.transport.kafka_calls import uncut
from deid_agent.transport.kafka_consumer import hush
from deid_agent.transport.kafka_errors import CLIENT_ERRORS, translate
from deid_agent.transport.kafka_messages import to_messages
from deid_agent.transport.kafka_probe import check_outputs
from deid_agent.transport.kafka_producer import death, discard, make_producer, send
from deid_agent.transport.kafka_settings import KafkaSettings
from deid_agent.transport.outlet import turn


class KafkaOutlet:
    """Implements ``Outlet``. One message at a time, all into partition 0: their order is that of their answers.

    A sender that connects again gets another lane, so the lane must not choose the partition.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"KafkaOutlet({', '.join(self._settings.routes.values())})"

    async def start(self) -> None:
        """Check the topics and connect. Raises ``ConfigurationError``, ``TransientError`` where the broker is away."""
        hush()
        if problems := await check_outputs(self._settings):
            raise ConfigurationError("Kafka: " + "; ".join(problems))
        await self._open()

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Outlet.deliver``."""
        (message,) = to_messages([Settled(record, Outcome.PUBLISHED, output)], self._settings, PLAIN)
        where = f"publish {record.coordinates} to {message.topic}"
        async with turn(self._turn, self._settings.longest_s, where):
            producer = await self._open()
            try:
                async with asyncio.timeout(self._settings.settle_timeout_ms / 1000):
                    await (await send(producer, message, 0))
            except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
                await self._drop()  # it has counted a number of the sequence that the broker never saw
                raise OversizeError(record.coordinates.offset, str(translate(error, where))) from None
            except CLIENT_ERRORS as error:
                ours = translate(death(producer) or error, where)
                await self._drop()
                raise (DoubtError(str(ours)) if isinstance(ours, TransientError) else ours) from None
            except asyncio.CancelledError:
                await self._drop()
                raise

    async def _open(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = make_producer(self._settings)
            try:
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await uncut(producer.start())
            except CLIENT_ERRORS as error:
                await discard(producer)
                raise translate(error, "connect") from None
            except asyncio.CancelledError:
                await discard(producer)
                raise
            self._producer = producer
        return self._producer

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard(producer)

    async def stop(self) -> None:
        """See ``Outlet.stop``. Nothing is unsent: each message was waited for."""
        await self._drop()
