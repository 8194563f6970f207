"""``deid-agent audit reconcile`` on a real broker: gaps of transactions, a lost record, a record that came twice."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, produce
from support.keys import KEY
from support.trails import trail
from support.transport_contract import Given, Member

from deid_agent.agent import DEID_ID, OutputMarks, Record
from deid_agent.agent.job import Completed, Processed, Refused, Suppressed
from deid_agent.agent.outcomes import attach_audit_lines, finish_record, make_audit_entry
from deid_agent.cli import main
from deid_agent.model.errors import Reason

pytestmark = pytest.mark.broker
MARKS = OutputMarks(KEY)


async def produce_in_transactions(world: KafkaWorld) -> None:
    """Two records, a marker, an aborted record with its marker, and two records with a marker: offsets 0 to 7."""
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap, transactional_id=f"fill-{world.name}")
    await producer.start()
    try:
        for payloads, kept in ((b"12", True), (b"3", False), (b"45", True)):
            await producer.begin_transaction()
            for payload in payloads:
                await producer.send_and_wait(world.name, bytes([payload]), partition=0)
            await (producer.commit_transaction() if kept else producer.abort_transaction())
    finally:
        await producer.stop()


async def processed(world: KafkaWorld, folder: Path, count: int) -> Sequence[Record]:
    """An agent that publishes, refuses and drops in turn, with its trail."""
    transport, log = world.transport(), trail(folder / "audit")
    await transport.start(Member())
    records = list[Record]()
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await transport.poll(10)
    results = (Processed(b"out", None), Refused(Reason.MALFORMED, "PID-3", "parse"), Suppressed())
    for stream in {record.coordinates.stream for record in records}:
        own = [record for record in records if record.coordinates.stream == stream]
        done = [Completed(results[number % 3]) for number in range(len(own))]
        finished = [finish_record(record, each, MARKS) for record, each in zip(own, done, strict=True)]
        lines = await log.append([make_audit_entry(item, each) for item, each in zip(finished, done, strict=True)])
        await transport.commit(stream, attach_audit_lines(finished, lines), own[-1].coordinates.offset + 1)
    await log.close()
    await transport.stop()
    return records


async def call(folder: Path, *words: str) -> Result:
    arguments = ["audit", "reconcile", "--config", str(folder / "kafka.toml"), *words]
    return await asyncio.to_thread(CliRunner().invoke, main, arguments)


async def test_each_record_of_the_feed_is_accounted_for_or_named(
    world: KafkaWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(2)
    (tmp_path / "kafka.toml").write_text(
        f'transport = "kafka"\n[kafka]\nbootstrap_servers = "{world.cluster.bootstrap}"\n'
        f'group_id = "{world.settings.group_id}"\n[kafka.routes]\n"{world.name}" = "{world.out}"\n'
        f'[dead_letters]\nplain = true\n[audit]\npath = "{tmp_path}/audit"\n'
    )
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    await produce_in_transactions(world)
    await world.fill([Given(b"%d" % number, b"k") for number in range(3)], 1)
    await processed(world, tmp_path, 7)
    await world.fill([Given(b"later", b"k")], 1)

    done = await call(tmp_path)
    assert done.exit_code == 0, done.output
    first, second = (json.loads(line) for line in (await call(tmp_path, "--json")).stdout.splitlines())
    assert (first["records"], first["absent"], first["outcomes"]) == (
        4,
        first["committed"] - 4,
        {"published": 2, "dead_lettered": 1, "suppressed": 1},
    )
    assert first["absent"] >= 3, "markers and the aborted record hold no record"
    assert (second["records"], second["committed"], second["end"]) == (3, 3, 4)

    # An output that came twice, and a record that no trail has.
    id_ = json.loads((tmp_path / "audit" / "00000001.jsonl").read_bytes().splitlines()[2])["deid_id"]
    await produce(world.cluster.bootstrap, world.out, 0, [Given(b"out", None, ((DEID_ID, id_.encode()),))])
    done = await call(tmp_path)
    assert done.exit_code == 1
    assert "published in the audit, but it has 2 outputs" in done.stdout
    (tmp_path / "empty").mkdir()
    done = await call(tmp_path, "--trail", str(tmp_path / "empty"), "--json")
    problems = [fault["problem"] for line in done.stdout.splitlines() for fault in json.loads(line)["faults"]]
    assert (done.exit_code, len(problems)) == (1, 7)
    assert problems.count("no audit entry, but an output") == 3
    assert problems.count("no audit entry, but a dead letter") == 2


async def test_topics_of_a_pattern_and_a_topic_that_was_created_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a pattern had no topics here, and everything was accounted for."""
    world = await KafkaWorld(cluster).create()
    world.out = f"deid.{world.name}"
    await cluster.create_topic(world.out, 1)
    unread = f"{world.name}-unread"
    await cluster.create_topic(unread, 1)
    world.settings = world.changed(routes={world.name: world.out})

    def configure(group: str) -> None:
        (tmp_path / "kafka.toml").write_text(
            f'transport = "kafka"\n[kafka]\nbootstrap_servers = "{cluster.bootstrap}"\ngroup_id = "{group}"\n'
            f'topics_pattern = "{world.name}(-unread)?"\noutput = "deid.{{topic}}"\n'
            f'[dead_letters]\nplain = true\n[audit]\npath = "{tmp_path}/audit"\n'
        )

    configure(world.settings.group_id)
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    await world.fill([Given(b"%d" % number, b"k") for number in range(3)])
    await processed(world, tmp_path, 3)
    done = await call(tmp_path, "--json")
    assert done.exit_code == 0, done.output
    found = {line["topic"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert found[world.name]["outcomes"] == {"published": 1, "dead_lettered": 1, "suppressed": 1}
    assert found[unread]["records"] == 0, "a topic without an output is not read yet"

    configure("somebody-else")
    done = await call(tmp_path)
    assert (done.exit_code, "has no position, but a trail has entries" in done.stderr) == (2, True), done.output

    # The records of the new topic have the coordinates of the old ones. One of them vanishes.
    configure(world.settings.group_id)
    await cluster.recreate_topic(world.name)
    await world.fill([Given(b"%d" % number, b"k") for number in range(4)])
    (tmp_path / "again").mkdir()
    await processed(world, tmp_path / "again", 4)
    trails = [word for name in ("audit", "again/audit") for word in ("--trail", str(tmp_path / name))]
    done = await call(tmp_path, *trails)
    assert done.exit_code == 0, done.output
    done = await call(tmp_path)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "NOT ACCOUNTED FOR: 4 offsets"), done.output
    assert "/0: no audit entry, but an output" in done.stdout
    await world.close()
