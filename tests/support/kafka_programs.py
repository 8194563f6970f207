"""Substitutes for three programs of a Kafka distribution, with the options that the documentation uses.

The jars of the tests hold a broker but none of these programs. ``python kafka_programs.py NAME OPTION...``
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from support.kafka_broker import Cluster

PATIENCE_S = 60


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "program", choices=["kafka-topics.sh", "kafka-console-producer.sh", "kafka-console-consumer.sh"]
    )
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--create", action="store_true")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--isolation-level", default="read_uncommitted")
    parser.add_argument("--max-messages", type=int, default=1)
    return parser.parse_args()


async def main() -> None:
    given = options()
    match given.program:
        case "kafka-topics.sh":
            await Cluster(given.bootstrap_server).create_topic(given.topic, given.partitions)
        case "kafka-console-producer.sh":
            producer = AIOKafkaProducer(bootstrap_servers=given.bootstrap_server, acks="all")
            await producer.start()
            for line in sys.stdin.buffer.read().split(b"\n"):
                if line:
                    await producer.send_and_wait(given.topic, line)
            await producer.stop()
        case _:
            start = "earliest" if given.from_beginning else "latest"
            consumer = AIOKafkaConsumer(
                given.topic,
                bootstrap_servers=given.bootstrap_server,
                auto_offset_reset=start,
                isolation_level=given.isolation_level,
            )
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(given.max_messages):
                    message = await consumer.getone()
                    sys.stdout.buffer.write(message.value + b"\n")
            await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
