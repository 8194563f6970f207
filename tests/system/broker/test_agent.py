"""``deid-agent run --config`` on a real broker: the whole path, as an operator starts it."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld, read
from support.keys import KEY
from support.schema_registry import Fault, serve_registry
from support.transport_contract import Given

from deid_agent.agent import Coordinates, OutputMarks, parse_coordinates
from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.audit.reading import read_entries as read_audit
from deid_agent.audit.reading import verify_trail

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "deid_agent" / "samples"
HL7 = [(SAMPLES / name).read_bytes() for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7", "03-mdm-t02.hl7")]
FHIR = [(SAMPLES / name).read_bytes() for name in ("04-document-reference.json", "05-bundle.json")]
CUT_OFF = (SAMPLES / "06-cut-off.json").read_bytes()
COUNT, PARTITIONS, PATIENCE_S = 1_000, 3, 240
MARKS = OutputMarks(KEY)
TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = b"00-" + TRACE + b"-00f067aa0ba902b7-01"
CANARIES = (b"Okafor", b"Adaeze", b"4471902", b"Lindqvist", b"5530177", b"Castellano")

pytestmark = pytest.mark.broker


def canaries_in(data: bytes) -> list[bytes]:
    """The canaries with the bytes before them. Seven digits inside a digest are no number of a patient."""
    whole = rb"(?<![0-9a-f])(?:" + b"|".join(CANARIES) + rb")(?![0-9a-f])"
    return [data[max(0, found.start() - 60) : found.end()] for found in re.finditer(whole, data)]


def message(number: int) -> bytes:
    """A sample message with its number in a field that no policy changes (the sending application, a code)."""
    if number % 100 == 99:
        return CUT_OFF
    samples = HL7 + FHIR
    raw = samples[number % len(samples)]
    if raw.startswith(b"MSH"):
        return re.sub(rb"^(MSH\|[^|]*\|)[^|]*", rb"\g<1>N%d" % number, raw)
    return raw.replace(b'"resourceType"', b'"language": "x-%d", "resourceType"' % number, 1)


def number_of(payload: bytes) -> int:
    found = re.search(rb'^MSH\|[^|]*\|N(\d+)|"language": "x-(\d+)"', payload)
    assert found
    return int(found[1] or found[2])


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    made = await KafkaWorld(cluster).create(PARTITIONS)
    yield made
    await made.close()


class Agent:
    """The command in a separate process."""

    def __init__(
        self, world: KafkaWorld, folder: Path, *, agent: str = "", audit: str = "", more: str = "", start_s: int = 5
    ) -> None:
        config = folder / "kafka.toml"
        if not (folder / "dead-letters.key").exists():
            generate_keys(folder / "dead-letters.key")
        dead_letters = f'public_key = "{folder / "dead-letters.key.pub"}"'
        config.write_text(
            'transport = "kafka"\nlog_level = "info"\n[http]\nport = 0\n'
            f"[agent]\nworkers = 2\nstart_s = {start_s}\n{agent}"
            f'[kafka]\nbootstrap_servers = "{world.cluster.bootstrap}"\ngroup_id = "g-{world.name}"\n'
            "session_timeout_ms = 6000\n"
            f'[kafka.routes]\n"{world.name}" = "{world.out}"\n[dead_letters]\n{dead_letters}\n'
            f'[audit]\npath = "{folder / "audit"}"\n{audit}{more}'
        )
        key = folder / "deid.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        environ = {k: v for k, v in os.environ.items() if not k.startswith("DEID_")}
        self.log = folder / "log"
        command = [sys.executable, "-m", "deid_agent", "run", "--config", str(config)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env={**environ, "DEID_KEY_FILE": str(key)}, stderr=log)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


async def finished(world: KafkaWorld, count: int) -> None:
    """Wait until this many records are in the output and the dead letters together."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            total = len(await read(world.cluster.bootstrap, world.out))
            total += len(await read(world.cluster.bootstrap, f"{world.name}.dlq"))
            if total >= count:
                return


async def test_messages_inside_records(world: KafkaWorld, tmp_path: Path) -> None:
    """A sink connector's records: the message in a string, an identifier beside it, a field that nobody listed."""
    wrapped = {"schema": {"type": "struct"}, "payload": {"mrn": "4471902", "hl7": HL7[0].decode(), "trace": "t-1"}}
    unlisted = {**wrapped, "note": "Okafor"}
    await world.fill([Given(json.dumps(record).encode(), b"4471902", ()) for record in (wrapped, unlisted)], 0)
    fields = '"/schema" = "keep"\n"/payload/mrn" = "identifier"\n"/payload/trace" = "drop"\n'
    envelope = f'[envelopes."{world.name}"]\npayload = "/payload/hl7"\n[envelopes."{world.name}".fields]\n{fields}'

    agent = Agent(world, tmp_path, more=envelope)
    try:
        await finished(world, 2)
    finally:
        code = agent.stop()
    assert code == 0, agent.log.read_bytes()

    (out,) = await read(world.cluster.bootstrap, world.out)
    (refused,) = await read(world.cluster.bootstrap, f"{world.name}.dlq")
    record = json.loads(out.value)
    assert record["schema"] == {"type": "struct"} and set(record["payload"]) == {"mrn", "hl7"}
    assert f"|{record['payload']['mrn']}^" in record["payload"]["hl7"]
    assert not any(canary in out.value for canary in CANARIES)
    assert dict(refused.headers)["deid.error.code"] == b"UNSUPPORTED"


async def test_records_of_a_schema_registry(world: KafkaWorld, tmp_path: Path) -> None:
    """The registry is away when the first record comes: nothing is refused but the record with an unknown schema."""
    fields = [{"name": name, "type": "string"} for name in ("mrn", "hl7")]
    schema = {"type": "record", "name": "Inbound", "fields": fields}
    value = SerializationContext(world.name, MessageField.VALUE)
    with serve_registry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        good = AvroSerializer(client, json.dumps(schema))({"mrn": "4471902", "hl7": HL7[0].decode()}, value)
        unknown = good[:1] + (999).to_bytes(4, "big") + good[5:]
        await world.fill([Given(raw, b"4471902", ()) for raw in (good, unknown, good)], 0)
        registry.faults += [Fault(503)] * 4
        more = f'[registry]\nurl = "{registry.url}"\n[envelopes."{world.name}"]\npayload = "/hl7"\n'
        more += f'schema_registry = true\nfields = {{ "/mrn" = "identifier" }}\noutput_subject = "{world.out}-value"\n'

        agent = Agent(world, tmp_path, more=more)
        try:
            await finished(world, 3)
        finally:
            code = agent.stop()
        assert code == 0, agent.log.read_bytes()
        out = await read(world.cluster.bootstrap, world.out)
        records = [AvroDeserializer(client)(one.value, value) for one in out]
        assert registry.subjects[f"{world.out}-value"] == [1]

    assert len(records) == 2 and records[0] == records[1]
    assert f"|{records[0]['mrn']}^" in records[0]["hl7"]
    assert not any(canary in one.value for one in out for canary in CANARIES)
    (refused,) = await read(world.cluster.bootstrap, f"{world.name}.dlq")
    assert dict(refused.headers)["deid.error.code"] == b"SCHEMA"
    assert b"the schema registry answers 503" in agent.log.read_bytes()


async def test_a_thousand_messages_are_processed_in_order(world: KafkaWorld, tmp_path: Path) -> None:
    by_partition: list[list[Given]] = [[] for _ in range(PARTITIONS)]
    for number in range(COUNT):
        key = f"447190{number % 7}".encode()
        headers = (("traceparent", TRACEPARENT), ("patient", b"Okafor"))
        by_partition[number % 7 % PARTITIONS].append(Given(message(number), key, headers))
    for partition, given in enumerate(by_partition):
        await world.fill(given, partition)

    agent = Agent(world, tmp_path)
    try:
        await finished(world, COUNT)
    finally:
        code = agent.stop()
    log = agent.log.read_bytes()
    assert code == 0, log

    out = await read(world.cluster.bootstrap, world.out)
    dead_letters = await read(world.cluster.bootstrap, f"{world.name}.dlq")
    refused = COUNT // 100
    assert len(dead_letters) == refused
    assert {dict(dead_letter.headers)["deid.error.code"] for dead_letter in dead_letters} == {b"MALFORMED"}
    assert sorted(number_of(m.value) for m in out) == [n for n in range(COUNT) if n % 100 != 99]
    for partition in range(PARTITIONS):
        numbers = [number_of(m.value) for m in out if m.partition == partition]
        assert numbers == sorted(numbers)
    for record in (*out, *dead_letters):
        everything = b"".join((record.key or b"", *(value for _, value in record.headers)))
        assert not any(canary in everything for canary in CANARIES)
    assert not any(canary in m.value for m in (*out, *dead_letters) for canary in CANARIES)
    audited = b"".join(path.read_bytes() for path in (tmp_path / "audit").iterdir())
    assert canaries_in(log + audited) == []
    traces = [dict(m.headers)["traceparent"].split(b"-") for m in dead_letters]
    assert {(version, trace, flags) for version, trace, _, flags in traces} == {(b"00", TRACE, b"01")}
    assert len({span for _, _, span, _ in traces}) == refused, "each record has a separate span"
    assert {name for m in out for name, _ in m.headers} == {"deid-id"}
    assert all(m.timestamp % 86_400_000 == 0 for m in out), "an output has the day of its record"
    assert len(list(read_audit(tmp_path / "audit"))) == COUNT

    # The key of a patient's records is that patient's surrogate number in the messages.
    by_key = {m.key: m for m in out if b"|ADT^A01^" in m.value and number_of(m.value) % 7 == 2}
    assert [key == m.value.split(b"PID|1||")[1].split(b"^")[0] for key, m in by_key.items()] == [True]


async def test_a_missing_topic_stops_the_start_in_one_line(world: KafkaWorld, tmp_path: Path) -> None:
    world.out = "nowhere"
    agent = Agent(world, tmp_path)
    assert agent.process.wait(60) == 2
    lines = agent.log.read_text().splitlines()
    assert "nowhere" in lines[-1]
    assert lines[-1].startswith("deid-agent: ")
    assert "Traceback" not in agent.log.read_text()


async def test_an_unreachable_broker_is_reported_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    world = KafkaWorld(Cluster("127.0.0.1:1"))
    agent = Agent(world, tmp_path)
    assert agent.process.wait(60) == 2
    assert "127.0.0.1:1" in agent.log.read_text().splitlines()[-1]


async def test_the_topic_of_the_audit_holds_each_record_once_as_the_folder_does(
    world: KafkaWorld, tmp_path: Path
) -> None:
    """Killed between audit and commit: the folder may hold a record twice, the topic holds committed records only."""
    topic, count = f"{world.name}.audit", 300
    await world.cluster.create_topic(topic, 2)
    for partition in range(PARTITIONS):
        given = [Given(message(number), b"k") for number in range(count) if number % PARTITIONS == partition]
        await world.fill(given, partition)
    for enough in (20, count):
        # The one that was killed leaves the group when its session ends.
        agent = Agent(world, tmp_path, audit=f'topic = "{topic}"\nsegment_bytes = 65536\n', start_s=60)
        try:
            await finished(world, enough)
        finally:
            agent.process.kill() if enough < count else agent.stop()
            agent.process.wait(60)
    everything = await read(world.cluster.bootstrap, topic)
    heads = [json.loads(m.value) for m in everything if m.value.startswith(b'{"kind":"head",')]
    assert heads and all(set(head) >= {"trail", "agent", "size", "root", "signature"} for head in heads)
    (tmp_path / "heads.jsonl").write_bytes(
        b"".join(m.value + b"\n" for m in everything if m.value.startswith(b'{"kind":"head",'))
    )
    assert verify_trail(tmp_path / "audit", kept=tmp_path / "heads.jsonl").faults == []
    published = [m for m in everything if not m.value.startswith(b'{"kind":"head",')]
    assert len(published) == count
    assert {dict(m.headers)["deid-id"].decode() for m in published} == {
        MARKS.id_of(Coordinates(world.name, partition, offset), world.topic_id)
        for partition in range(PARTITIONS)
        for offset in range(count // PARTITIONS)
    }
    assert all(f'"deid_id":"{dict(m.headers)["deid-id"].decode()}"'.encode() in m.value for m in published)
    segments = sorted((tmp_path / "audit").glob("*.jsonl"))
    assert len(segments) > 1
    kept = [line for path in segments for line in path.read_bytes().splitlines()]
    assert {m.value for m in published} <= set(kept)
    assert len({m.value for m in published}) == count
    for partition in range(2):
        places = [kept.index(m.value) for m in published if m.partition == partition]
        by_input = [[p for p in places if f'"partition":{number},'.encode() in kept[p]] for number in range(PARTITIONS)]
        assert all(rising == sorted(rising) for rising in by_input)
    report = verify_trail(tmp_path / "audit")
    assert (report.faults, report.warnings) == ([], [])


async def test_a_missing_topic_of_the_audit_stops_the_start(world: KafkaWorld, tmp_path: Path) -> None:
    agent = Agent(world, tmp_path, audit='topic = "nowhere.audit"\n')
    assert agent.process.wait(60) == 2
    assert "topic 'nowhere.audit' does not exist" in agent.log.read_text().splitlines()[-1]
    assert not (tmp_path / "audit").exists()


def command(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """A command that ends by itself, with the settings of the agent in this folder."""
    call = [sys.executable, "-m", "deid_agent", *arguments, "--config", str(folder / "kafka.toml")]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DEID_")}
    return subprocess.run(call, env=environ, capture_output=True, timeout=60, check=False)


async def test_dead_letters_are_replayed_once_after_a_fix(world: KafkaWorld, tmp_path: Path) -> None:
    """Refused for their size, listed, one opened, replayed after the limit was raised: each is published once."""
    small = b"MSH|^~\\&|N3|B|C|D|20240318143012||ADT^A01|1|P|2.5.1\rPID|1||4471902||Okafor^Adaeze\r"
    big = [message(number) for number in (1, 3, 4)]
    key = str(tmp_path / "dead-letters.key")
    await world.fill(
        [Given(raw, b"4471902", (("traceparent", b"00-" + TRACE + b"-00f067aa0ba902b7-01"),)) for raw in (*big, small)]
    )
    agent = Agent(world, tmp_path, agent="max_message_bytes = 1024\n")
    try:
        await finished(world, 4)
    finally:
        assert agent.stop() == 0
    assert [m.value.count(b"N3") for m in await read(world.cluster.bootstrap, world.out)] == [1]

    listed = command(tmp_path, "dead-letters", "list", "--json", "--code", "RESOURCE")
    assert listed.returncode == 0, listed.stderr
    lines = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [line["record"] for line in lines] == [f"{world.name}/0/{n}" for n in range(3)]
    assert {(line["code"], line["stage"], line["replayed"], line["form"]) for line in lines} == {
        ("RESOURCE", "size", 0, "sealed-1")
    }
    assert set(lines[0]["build"]) == {"rules", "models", "policy", "key", "configuration"}

    out = tmp_path / "looked-at"
    looked = command(
        tmp_path, "dead-letters", "open", lines[1]["record"], "--private-key", key, "--out", str(out), "--head"
    )
    assert looked.returncode == 0, looked.stderr
    assert out.read_bytes() == big[1]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert json.loads(looked.stdout)["key"] == "4471902"
    assert b"in the clear" in looked.stderr

    agent = Agent(world, tmp_path)
    try:
        back = command(tmp_path, "replay", "--offset", "0-1", "--private-key", key)
        assert (back.returncode, back.stdout.split()) == (0, [lines[0]["record"].encode(), lines[1]["record"].encode()])
        assert b"in the clear" in back.stderr
        again = command(tmp_path, "replay", "--all", "--private-key", key)
        assert again.stdout.split() == [lines[2]["record"].encode()]
        assert b"1 put back, 2 were put back before, 0 failed" in again.stderr
        await finished(world, 4 + 3 + 3)  # three more outputs, and a mark for each of their dead letters
        third = command(tmp_path, "replay", "--all", "--private-key", key)
        assert (third.returncode, third.stdout) == (0, b"")
    finally:
        assert agent.stop() == 0
    found = (await read(world.cluster.bootstrap, world.out))[1:]
    assert sorted(number_of(m.value) for m in found) == [1, 3, 4]
    originals = [parse_coordinates(line["record"]) for line in lines]
    replayed = [dict(m.headers)["deid-replay-of"].decode() for m in found]
    assert replayed == [MARKS.id_of(at, world.topic_id) for at in originals]
    assert len({dict(m.headers)["deid-id"] for m in found}) == 3
    assert not any("deid-replay-attempts" in dict(m.headers) for m in found)
    assert {m.key for m in found} == {m.key for m in await read(world.cluster.bootstrap, world.out)}
    log = agent.log.read_bytes() + back.stdout + back.stderr + again.stderr + listed.stdout
    assert not any(canary in m.value for m in found for canary in CANARIES)
    assert not any(canary in log for canary in CANARIES)
