"""All processes are killed repeatedly under load: every message is published once, in order, without PHI."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from support.agent_process import AgentProcess
from support.audits import verify
from support.chaos import PARTITIONS, Chaos, Fault, is_torn, name_of, patient_of
from support.kafka_broker import KafkaBroker
from support.kafka_world import KafkaWorld
from support.marks import MARKS

from deid_agent.agent import Coordinates
from deid_agent.audit.reading import read_entries as read_audit
from deid_agent.config import Delivery

pytestmark = pytest.mark.broker

LIMIT_S = 420  # many times the duration on an idle machine
STORM: dict[StrEnum, int] = {
    Fault.AGENT: 10,
    Fault.BOTH: 6,
    Fault.FRESH: 3,
    Fault.AWAY: 2,
    Fault.ZOMBIE: 2,
    Fault.WORKER: 4,
    Fault.BROKER: 2,
}
SQUALL: dict[StrEnum, int] = {**dict.fromkeys(Fault, 1), Fault.AGENT: 2}


async def survived(chaos: Chaos) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
    """The outputs and dead letters of a run. Its actions are shown if a test fails."""
    begin = time.monotonic()
    async with asyncio.timeout(LIMIT_S):
        await chaos.run()
    summary = f"{time.monotonic() - begin:.0f} s, {dict(chaos.done)}, ended by themselves: {chaos.unforced}"
    print(summary)  # noqa: T201
    return await chaos.found()


def assert_right(chaos: Chaos, out: Sequence[ConsumerRecord], dead_letters: Sequence[ConsumerRecord]) -> None:
    """Every record is at its position and has its number."""
    for record in out:
        assert record.value.startswith(b"MSH|^~\\&|N%d|" % chaos.numbers[name_of(record)])
        assert record.key is not None
    for dead_letter in dead_letters:
        name, headers = name_of(dead_letter), dict(dead_letter.headers)
        topic, partition, offset = (
            headers[f"__connect.errors.{part}"].decode() for part in ("topic", "partition", "offset")
        )
        assert MARKS.id_of(Coordinates(topic, int(partition), int(offset)), chaos.world.topic_id) == name
        assert headers["deid.error.code"] == (b"MALFORMED" if is_torn(chaos.numbers[name]) else b"POISON")
        assert dead_letter.key is None


def orders(chaos: Chaos, records: Sequence[ConsumerRecord]) -> dict[bytes, list[int]]:
    """The numbers of each patient's messages in the order of first publication."""
    by_patient: dict[bytes, dict[int, None]] = defaultdict(dict)
    for record in records:
        number = chaos.numbers[name_of(record)]
        by_patient[patient_of(number)].setdefault(number)
    return {patient: list(numbers) for patient, numbers in by_patient.items()}


def assert_audited(chaos: Chaos, out: Sequence[ConsumerRecord], dead_letters: Sequence[ConsumerRecord]) -> None:
    """The last audit entry of each record equals its outcome, and the audit trails are valid."""
    last: dict[str, tuple[float, str]] = {}
    for agent in chaos.agents:
        verify(agent.audit)
        for entry in read_audit(agent.audit):
            name = str(entry["deid_id"])
            last[name] = max(last.get(name, (0.0, "")), (float(str(entry["time"])), str(entry["outcome"])))
    became = {name_of(r): "published" for r in out} | {name_of(r): "dead_lettered" for r in dead_letters}
    assert {name: outcome for name, (_, outcome) in last.items()} == became


async def test_twenty_thousand_messages_through_thirty_kills(
    own_broker: KafkaBroker, tmp_path: Path, seed: int
) -> None:
    world = await KafkaWorld(own_broker).create(PARTITIONS)
    agents = [AgentProcess(tmp_path / name, world, kafka={"instance_id": name}) for name in ("a", "b")]
    chaos = Chaos(world, own_broker, agents, faults=STORM, count=20_000, seed=seed)
    out, dead_letters = await survived(chaos)
    assert chaos.done["agents"] >= 30
    assert Counter(map(name_of, (*out, *dead_letters))) == Counter(chaos.numbers.keys())
    assert_right(chaos, out, dead_letters)
    for records in (out, dead_letters):
        assert all(numbers == sorted(numbers) for numbers in orders(chaos, records).values())
    assert_audited(chaos, out, dead_letters)
    assert chaos.leaks((*out, *dead_letters)) == []
    await chaos.orphans_end()


async def test_at_least_once_loses_nothing_and_reports_its_duplicates(
    own_broker: KafkaBroker, tmp_path: Path, seed: int
) -> None:
    world = await KafkaWorld(own_broker, Delivery.AT_LEAST_ONCE).create(PARTITIONS)
    agents = [AgentProcess(tmp_path / name, world) for name in ("a", "b")]
    chaos = Chaos(world, own_broker, agents, faults=SQUALL, count=5_000, seed=seed)
    out, dead_letters = await survived(chaos)
    assert {name_of(r) for r in (*out, *dead_letters)} == chaos.numbers.keys()
    assert_right(chaos, out, dead_letters)
    doubled = {name_of(r): r.value for r in out}  # each dead letter is sealed with a new key
    assert all(doubled[name_of(r)] == r.value for r in out)
    for records in (out, dead_letters):
        assert all(numbers == sorted(numbers) for numbers in orders(chaos, records).values())
    assert chaos.leaks((*out, *dead_letters)) == []
    await chaos.orphans_end()
