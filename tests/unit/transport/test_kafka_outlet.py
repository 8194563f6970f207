"""A topic as an outlet, with a broker that says nothing."""

import asyncio

import pytest
from support.runner_bench import virtual

from deid_agent.agent.ports import Coordinates, Output, Record
from deid_agent.errors import TransientError
from deid_agent.transport import kafka_outlet
from deid_agent.transport.kafka_outlet import KafkaOutlet
from deid_agent.transport.kafka_settings import KafkaSettings

SETTINGS = KafkaSettings(bootstrap_servers="localhost:9", group_id="g", routes={"mllp": "out"})


class Mute:
    """A producer whose broker takes connections and says nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        pass

    async def start(self) -> None:
        await asyncio.Event().wait()


async def none(*_: object) -> list[str]:
    return []


@pytest.fixture(autouse=True)
def _mute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_outlet, "make_producer", Mute)
    monkeypatch.setattr(kafka_outlet, "check_outputs", none)
    monkeypatch.setattr(kafka_outlet, "discard", none)


def test_a_message_waits_no_longer_for_those_before_it_than_one_takes() -> None:
    """The senders of all of them wait for an answer, and a settle that takes too long stops the agent."""

    @virtual
    async def ask() -> None:
        outlet = KafkaOutlet(SETTINGS)
        now = asyncio.get_running_loop().time
        begin = now()
        waiting = [outlet.deliver(_record(number), Output(b"MSH|")) for number in range(12)]
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(type(error) is TransientError for error in told), told
        assert now() - begin <= SETTINGS.longest_s + SETTINGS.request_timeout_ms / 1000

    ask()


def _record(number: int) -> Record:
    return Record(Coordinates("mllp", number, 0), b"MSH|")
