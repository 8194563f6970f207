"""A producer is discarded while its broker accepts no more bytes."""

import asyncio
import struct

from aiokafka.conn import create_conn
from support.kafka_internals import fill_socket

from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.producer import discard_producer, make_producer

SETTINGS = KafkaOptions(bootstrap_servers="localhost:9", group_id="g", routes={"adt": "out"})


async def test_unsent_bytes_for_a_dead_broker_are_dropped() -> None:
    """Closing the connection would first send the buffer until TCP gives up; no deadline would end that."""

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        asked = await reader.readexactly(length)
        response = asked[4:8] + struct.pack(">hi", 0, 0)  # knows no API, by its correlation id
        writer.write(struct.pack(">i", len(response)) + response)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        connected.append(writer)

    connected: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        connection = await create_conn("127.0.0.1", server.sockets[0].getsockname()[1])
        producer = make_producer(SETTINGS)
        transport = fill_socket(producer, connection, b"x" * (16 << 20))
        assert transport.get_write_buffer_size() > 0, "the kernel accepted all bytes"
        async with asyncio.timeout(10):
            await discard_producer(producer)
        assert transport.get_write_buffer_size() == 0
        for writer in connected:
            writer.transport.abort()
