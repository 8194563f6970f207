"""A topic as a sink, with a silent broker."""

import asyncio

import pytest
from support.runner_bench import virtual

from deid_agent.agent.ports import Coordinates, Output, Record
from deid_agent.model.errors import TransientError
from deid_agent.transport.kafka import sink as kafka_sink
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.sink import KafkaSink

SETTINGS = KafkaOptions(bootstrap_servers="localhost:9", group_id="g", routes={"mllp": "out"})


class Mute:
    """A producer whose broker accepts connections and never answers."""

    def __init__(self, settings: KafkaOptions) -> None:
        pass

    async def start(self) -> None:
        await asyncio.Event().wait()


async def none(*_: object) -> list[str]:
    return []


@pytest.fixture(autouse=True)
def _mute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "make_producer", Mute)
    monkeypatch.setattr(kafka_sink, "check_output_topics", none)
    monkeypatch.setattr(kafka_sink, "discard_producer", none)


def test_a_message_waits_for_earlier_messages_at_most_one_timeout() -> None:
    """All senders wait for an answer, and a commit that takes too long stops the agent."""

    @virtual
    async def ask() -> None:
        sink = KafkaSink(SETTINGS)
        now = asyncio.get_running_loop().time
        begin = now()
        waiting = [sink.deliver(_record(number), Output(b"MSH|")) for number in range(12)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(type(error) is TransientError for error in outcomes), outcomes
        assert now() - begin <= SETTINGS.longest_s + SETTINGS.request_timeout_ms / 1000

    ask()


def _record(number: int) -> Record:
    return Record(Coordinates("mllp", number, 0), b"MSH|")
