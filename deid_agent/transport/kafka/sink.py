"""A topic as a sink: an output is durable once all in-sync replicas have acknowledged it."""

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

from deid_agent.agent import UNSEALED, FinishedRecord, Outcome, Output, Record
from deid_agent.model import ConfigurationError, KeylessError, OversizeError, TransientError, UncertainCommitError
from deid_agent.transport.kafka.admin import check_output_topics
from deid_agent.transport.kafka.client import CLIENT_ERRORS, run_to_completion, translate_error
from deid_agent.transport.kafka.consumer import limit_client_logging
from deid_agent.transport.kafka.error_codes import INVALID_RECORD
from deid_agent.transport.kafka.messages import COMPACTED, to_messages
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.producer import discard_producer, make_producer, sender_error
from deid_agent.transport.kafka.queueing import queue_message
from deid_agent.transport.sinks import hold_lock


class KafkaSink:
    """A ``Sink`` that sends one message at a time to partition 0, so that messages have the order of their
    acknowledgments.

    A sender that reconnects gets another connection slot, so the slot must not choose the partition.
    """

    def __init__(self, settings: KafkaOptions) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"KafkaSink({', '.join(self._settings.routes.values())})"

    async def start(self) -> None:
        """Check the topics and connect. Raises ``ConfigurationError``, or ``TransientError`` if the broker is
        unavailable.
        """
        limit_client_logging()
        if problems := await check_output_topics(self._settings):
            raise ConfigurationError("Kafka: " + "; ".join(problems))
        await self._open()

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Sink.deliver``."""
        (message,) = to_messages([FinishedRecord(record, Outcome.PUBLISHED, output)], self._settings, UNSEALED)
        doing = f"publish {record.coordinates} to {message.topic}"
        async with hold_lock(self._turn, self._settings.longest_s, doing):
            producer = await self._open()
            try:
                async with asyncio.timeout(self._settings.commit_timeout_ms / 1000):
                    await (await queue_message(producer, message, 0))
            except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
                await self._drop()  # it has used a sequence number that the broker never received
                raise OversizeError(record.coordinates.offset, str(translate_error(error, doing))) from None
            except INVALID_RECORD as error:
                await self._drop()
                if message.key is not None:
                    raise translate_error(error, doing) from None
                raise KeylessError(record.coordinates.offset, f"Kafka: {doing}: {COMPACTED}") from None
            except CLIENT_ERRORS as error:
                ours = translate_error(sender_error(producer) or error, doing)
                await self._drop()
                raise (UncertainCommitError(str(ours)) if isinstance(ours, TransientError) else ours) from None
            except asyncio.CancelledError:
                await self._drop()
                raise

    async def _open(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = make_producer(self._settings)
            try:
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await run_to_completion(producer.start())
            except CLIENT_ERRORS as error:
                await discard_producer(producer)
                raise translate_error(error, "connect") from None
            except asyncio.CancelledError:
                await discard_producer(producer)
                raise
            self._producer = producer
        return self._producer

    async def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard_producer(producer)

    async def stop(self) -> None:
        """See ``Sink.stop``. Nothing is unsent: ``deliver`` waits for each message."""
        await self._drop()
