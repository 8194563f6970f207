"""Names planted in every message are found in no output, header, key, log, metric, trace or audit, whatever happens.

The paths: success, dead letter, a worker that dies, one that hangs, an exception inside of a recognizer whose text
quotes the message, an agent that is killed; all at the most talkative log level. The payloads of dead letters are the
messages as they came and the one place where a name may stand.
"""

import asyncio
import io
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from support.agent_process import AgentProcess
from support.chaos import holds_canary, is_torn, message, patient_of
from support.follow import Follower
from support.kafka_broker import Cluster
from support.kafka_world import KafkaWorld
from support.transport_contract import Given

from deid_agent import policy as policies
from deid_agent import resources
from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.job import Job, Process, Result
from deid_agent.agent.lane import LaneSettings
from deid_agent.agent.runner import Runner
from deid_agent.agent.workers import WorkerPool
from deid_agent.audit.lines import Signer
from deid_agent.audit.trail import AuditTrail
from deid_agent.key import Key
from deid_agent.spans import Span
from deid_agent.tagger import Tagger
from deid_agent.telemetry.emit import Telemetry, stream_handler
from deid_agent.text import Document
from deid_agent.wiring import Workshop

pytestmark = pytest.mark.broker

PATIENCE_S = 120.0
COUNT = 120
DIES, HANGS, BREAKS = 20, 41, 62


@dataclass(frozen=True)
class Troubled:
    """The real callable, except for three messages: one kills its worker, one hangs, one breaks a recognizer."""

    workshop: Workshop

    def __call__(self) -> Process:
        process, real = self.workshop(), Tagger._once

        def broken(self: Tagger, docs: Sequence[Document]) -> list[list[Span]]:
            raise ValueError(f"no rule for {[doc.text for doc in docs]}")

        def run(job: Job) -> Result:
            Tagger._once = real  # type: ignore[method-assign]
            if b"|N%d|" % DIES in job.payload:
                os.write(2, job.payload)
                os.kill(os.getpid(), signal.SIGKILL)
            elif b"|N%d|" % HANGS in job.payload:
                while True:
                    signal.pause()
            elif b"|N%d|" % BREAKS in job.payload:
                Tagger._once = broken  # type: ignore[method-assign]
            return process(job)

        return run


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(cluster).create(2)
    for number in range(2):
        mine = [n for n in range(COUNT) if n % 2 == number]
        headers = (("patient", patient_of(1)), (patient_of(2).decode(), b"x"))
        await world.fill([Given(message(n), patient_of(n), headers) for n in mine], number)
    yield world
    await world.close()


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Everything that anybody logs, at DEBUG, as the command line writes it."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = stream_handler(), root.level
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(text)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def leaks(world: KafkaWorld, records: Sequence[ConsumerRecord]) -> list[str]:
    """Records that tell a name beside the payloads of dead letters."""
    found = []
    for record in records:
        parts = [record.key or b"", *(name.encode() + b" " + value for name, value in record.headers)]
        parts += [record.value] if record.topic == world.out else []
        if any(map(holds_canary, parts)):
            found.append(f"{record.topic}/{record.partition}/{record.offset}")
    return found


async def test_no_canary_leaves_when_workers_die_hang_and_break(
    world: KafkaWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = resources.folder("rules")
    workshop = Workshop(
        rules=rules, key=Key(bytes(range(32))), policy=policies.load("pseudonymised", rules), system="rules"
    )
    telemetry = Telemetry()
    topics = [world.out, world.settings.letters_of(world.name)]
    with logged() as log:
        audit = AuditTrail(tmp_path / "audit", {"version": "test"}, Signer(bytes(32)), telemetry)
        pool = WorkerPool(Troubled(workshop), 2, telemetry, LaneSettings(deadline_s=2.0, attempts=2))
        runner = Runner(world.transport(), pool, audit, RunnerSettings(), telemetry=telemetry)
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, topics) as seen:
            await seen.reach(lambda: len(seen.seen) >= COUNT)
            runner.request_stop()
            await running
        await audit.close()
    letters = [dict(record.headers) for record in seen.records if record.topic != world.out]
    assert Counter(letter["deid.error.code"] for letter in letters) == {
        b"MALFORMED": sum(map(is_torn, range(COUNT))),
        b"POISON": 2,
        b"INTERNAL": 1,
    }
    assert b"ValueError" in {letter["__connect.errors.exception.class.name"] for letter in letters}
    assert leaks(world, seen.records) == []
    assert "RecordProcessed" in log.getvalue()
    metrics = "\n".join(f"{metric} {labels} {value}" for metric, labels, value in telemetry.registry.collect())
    shown = capfd.readouterr()
    for text in (
        log.getvalue(),
        shown.out,
        shown.err,
        metrics,
        *(path.read_text() for path in (tmp_path / "audit").iterdir()),
        repr(seen.seen),
    ):
        assert text == "" or not holds_canary(text.encode())
    # The search would find one: there is one in the payload of each dead letter.
    assert all(holds_canary(record.value) for record in seen.records if record.topic != world.out)


async def test_no_canary_leaves_an_agent_that_is_killed_while_it_debugs(world: KafkaWorld, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path / "agent", world, top={"log_level": "debug"}, agent={"batch": 5})
    topics = [world.out, world.settings.letters_of(world.name)]
    agent.start()
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            Follower(world.cluster.bootstrap, topics, "read_uncommitted") as sent,
            Follower(world.cluster.bootstrap, topics) as seen,
        ):
            await sent.reach(lambda: len(sent.seen) >= 10)
            os.kill(agent.workers()[0], signal.SIGKILL)
            await sent.reach(lambda: len(sent.seen) >= 40)
            agent.kill()
            agent.start()
            await seen.reach(lambda: len(seen.seen) >= COUNT)
        assert agent.stop() == 0
    finally:
        agent.end()
    assert leaks(world, [*sent.records, *seen.records]) == []
    assert b"RecordProcessed" in agent.log.read_bytes()
    files = [path for path in agent.folder.rglob("*") if path.is_file()]
    assert agent.log in files
    assert any(path.parent == agent.audit for path in files)
    assert [path for path in files if holds_canary(path.read_bytes())] == []
