"""MLLP and a real broker: a message that was acknowledged is in the topic."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from support.kafka_broker import Cluster, KafkaBroker
from support.kafka_world import KafkaWorld, produce, read
from support.marks import id_header
from support.mllp_agent import Agent, make_settings
from support.mllp_contract import FromListener
from support.mllp_process import MllpProcess
from support.mllp_world import HeaderlessTransport, MllpWorld, Receiver, message, split_header
from support.transport_contract import Given, World, after, numbered, published

from deid_agent.agent.ports import Output, Record, Transport
from deid_agent.model.errors import ConfigurationError, TransientError
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.sink import KafkaSink
from deid_agent.transport.mllp.source import MllpTransport

pytestmark = pytest.mark.broker
LISTEN = make_settings(max_connections=1)


async def to_topic(cluster: Cluster) -> KafkaOptions:
    """Settings of a sink with its own topic."""
    world = KafkaWorld(cluster)
    await cluster.create_topic(world.out, 3)
    return world.settings.model_copy(update={"routes": {"mllp": world.out}})


class ToTopic(MllpWorld):
    def __init__(self, root: Path, settings: KafkaOptions) -> None:
        super().__init__(root)
        self.settings = settings
        self.sink = FailingSink(settings)

    def transport(self) -> Transport:
        self.sink = FailingSink(self.settings)
        inner = MllpTransport(make_settings(self.root / "letters", max_connections=1), self.sink)
        self.opened.append(HeaderlessTransport(inner, self.feed))
        return self.opened[-1]

    async def outputs(self) -> Sequence[Output]:
        found = await read(self.settings.bootstrap_servers, self.settings.routes["mllp"])
        assert {item.partition for item in found} <= {0}
        return [Output(*split_header(item.value)) for item in found]

    def fail_commit(self) -> None:
        self.sink.failing = True


class FailingSink(KafkaSink):
    failing = False

    async def deliver(self, record: Record, output: Output) -> None:
        if self.failing:
            self.failing = False
            raise TransientError("the broker is away")
        await super().deliver(record, output)


class TestMllpToTopic(FromListener):
    waived: ClassVar[Mapping[str, str]] = {}

    async def test_headers_are_passed_through_unchanged(self, world: World) -> None:
        """MLLP messages have no headers; on the topic an output names its record."""
        await world.fill(numbered(1))
        transport = await self.started(world)
        (record,) = await self.take(transport, 1)
        await transport.commit(world.stream, [published(record)], after([record]))
        assert isinstance(world, ToTopic)
        (found,) = await read(world.settings.bootstrap_servers, world.settings.routes["mllp"])
        assert found.headers == (id_header(record.coordinates),)
        await transport.stop()

    @pytest.fixture
    async def world(self, cluster: Cluster, tmp_path: Path) -> AsyncIterator[World]:
        world = ToTopic(tmp_path, await to_topic(cluster))
        yield world
        await world.stop()


async def test_an_mllp_message_is_acknowledged_after_the_topic_has_it(cluster: Cluster, tmp_path: Path) -> None:
    settings = await to_topic(cluster)
    agent = await Agent(KafkaSink(settings), tmp_path / "letters", make_settings()).start()
    peers = [await agent.peer() for _ in range(2)]
    for number, peer in enumerate(peers):
        peer.send(*(message(b"m%d-%d" % (number, n), b"%d" % n) for n in range(50)))
    for peer in peers:
        assert {(await peer.answer())[0] for _ in range(50)} == {"AA"}
    found = await read(settings.bootstrap_servers, settings.routes["mllp"])
    await agent.end()
    assert {item.partition for item in found} == {0}
    for number in range(2):
        mine = [item.value for item in found if b"|m%d-" % number in item.value]
        assert [value.partition(b"\r")[2] for value in mine] == [b"clean %d" % n for n in range(50)]


async def test_a_missing_topic_is_reported(cluster: Cluster) -> None:
    settings = (await to_topic(cluster)).model_copy(update={"routes": {"mllp": "no-such-topic"}})
    with pytest.raises(ConfigurationError, match="topic 'no-such-topic' does not exist"):
        await KafkaSink(settings).start()


async def test_no_message_is_acknowledged_while_the_broker_is_unavailable(
    own_broker: KafkaBroker, tmp_path: Path
) -> None:
    settings = (await to_topic(own_broker)).model_copy(update={"request_timeout_ms": 1_000, "commit_timeout_ms": 2_000})
    listening = LISTEN.model_copy(update={"answer_s": 1.0})
    agent = await Agent(KafkaSink(settings), tmp_path / "letters", listening, commit_timeout_s=60).start()
    own_broker.kill()
    peer = await agent.peer()
    peer.send(message(b"m", b"x"))
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        assert (await peer.answer())[0] == "AE"
    own_broker.start()
    again = await agent.peer()
    again.send(message(b"m", b"x"))
    async with asyncio.timeout(60):
        while True:  # only another attempt finds out that the broker is back
            try:
                assert (await again.answer())[0] == "AA"
                break
            except (asyncio.IncompleteReadError, ConnectionError, AssertionError):
                again = await agent.peer()
                again.send(message(b"m", b"x"))
    found = await read(settings.bootstrap_servers, settings.routes["mllp"])
    await agent.end()
    assert {item.value for item in found} == {message(b"m", b"clean x")}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


async def test_records_of_a_topic_are_sent_over_mllp_until_accepted_or_dead_lettered(
    cluster: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    world = await KafkaWorld(cluster).create()
    receiver.verdicts.extend(["AA", "AE", "AA", "AR"])
    given = [Given(message(b"m%d" % n, b"PID|1||%d\r" % n)) for n in range(20)]
    given.insert(7, Given(b'{"resourceType": "Patient", "id": "x"}'))
    await produce(cluster.bootstrap, world.name, 0, given)
    agent = MllpProcess(
        tmp_path,
        top={"transport": "kafka", "output": "mllp", "policy": "keep"},
        sections={
            "kafka": {
                "bootstrap_servers": cluster.bootstrap,
                "group_id": f"g-{world.name}",
                "session_timeout_ms": 6000,
            },
            "kafka.routes": {world.name: ""},
            "mllp_out": {"host": "127.0.0.1", "port": receiver.port},
        },
    )
    checked = await asyncio.to_thread(agent.command, "check")
    assert checked.returncode == 0, checked.stdout
    assert f"{world.name} to MLLP" in checked.stdout
    agent.start()
    try:
        async with asyncio.timeout(60):
            while len(receiver.got) < 19:  # noqa: ASYNC110  the receiver sends no notification
                await asyncio.sleep(0.05)
        assert agent.stop() == 0
    finally:
        agent.end()
    assert [data.split(b"|")[9] for data in receiver.got] == [b"m%d" % n for n in range(20) if n != 2]
    dead_letters = await read(cluster.bootstrap, world.settings.dead_letter_topic(world.name))
    assert [(dict(m.headers)["deid.error.code"], dict(m.headers)["__connect.errors.offset"]) for m in dead_letters] == [
        (b"REJECTED", b"2"),
        (b"REJECTED", b"7"),
    ]
    assert not await read(cluster.bootstrap, world.out)
