"""Names planted in every message appear in no output, header, key, log, metric, trace or audit.

The paths: success, dead letter, a worker that dies, one that hangs, an exception inside a recognizer whose text quotes
the message, an agent that is killed; all at the most verbose log level. The payloads of dead letters are the unchanged
messages and the only allowed location of a name.
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
from support.marks import MARKS
from support.transport_contract import Given

from deid_agent.agent.job import Job, Process, Result, WorkerSettings
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.app import WorkerFactory
from deid_agent.audit.storage import Signer
from deid_agent.audit.trail import AuditTrail
from deid_agent.config.secrets import SecretKey
from deid_agent.model.text import Document
from deid_agent.pipeline.policy import load_policy
from deid_agent.recognize.tagger import Findings, Tagger
from deid_agent.rules import data_folder
from deid_agent.telemetry.emit import Telemetry, stream_handler

pytestmark = pytest.mark.broker

PATIENCE_S = 120.0
COUNT = 120
DIES, HANGS, BREAKS = 20, 41, 62


@dataclass(frozen=True)
class Troubled:
    """The real callable, except for three messages: one kills its worker, one hangs, one breaks a recognizer."""

    worker_factory: WorkerFactory

    def __call__(self) -> Process:
        process, real = self.worker_factory(), Tagger._find_once

        def broken(self: Tagger, docs: Sequence[Document]) -> list[Findings]:
            raise ValueError(f"no rule for {[doc.text for doc in docs]}")

        def run(job: Job) -> Result:
            Tagger._find_once = real  # type: ignore[method-assign]
            if b"|N%d|" % DIES in job.payload:
                os.write(2, job.payload)
                os.kill(os.getpid(), signal.SIGKILL)
            elif b"|N%d|" % HANGS in job.payload:
                while True:
                    signal.pause()
            elif b"|N%d|" % BREAKS in job.payload:
                Tagger._find_once = broken  # type: ignore[method-assign]
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
    """All log output at DEBUG, as the command line writes it."""
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
    """Records that contain a name outside the payloads of dead letters."""
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
    rules = data_folder("rules")
    worker_factory = WorkerFactory(
        rules=rules,
        key=SecretKey(bytes(range(32))),
        policy=load_policy("pseudonymised", rules),
        system="rules",
    )
    telemetry = Telemetry()
    topics = [world.out, world.settings.dead_letter_topic(world.name)]
    with logged() as log:
        audit = AuditTrail(tmp_path / "audit", {"version": "test"}, Signer(bytes(32)), telemetry)
        pool = WorkerPool(Troubled(worker_factory), 2, telemetry, WorkerSettings(deadline_s=2.0, attempts=2))
        runner = Runner(world.transport(), pool, audit, RunnerSettings(), marks=MARKS, telemetry=telemetry)
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(PATIENCE_S), Follower(world.cluster.bootstrap, topics) as seen:
            await seen.reach(lambda: len(seen.seen) >= COUNT)
            runner.request_stop()
            await running
        await audit.close()
    dead_letters = [dict(record.headers) for record in seen.records if record.topic != world.out]
    assert Counter(dead_letter["deid.error.code"] for dead_letter in dead_letters) == {
        b"MALFORMED": sum(map(is_torn, range(COUNT))),
        b"POISON": 2,
        b"INTERNAL": 1,
    }
    assert b"ValueError" in {dead_letter["__connect.errors.exception.class.name"] for dead_letter in dead_letters}
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
    # The search works: it finds a name in the payload of each dead letter.
    assert all(holds_canary(record.value) for record in seen.records if record.topic != world.out)


async def test_no_canary_leaves_an_agent_that_is_killed_while_it_debugs(world: KafkaWorld, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path / "agent", world, top={"log_level": "debug"}, agent={"batch": 5})
    topics = [world.out, world.settings.dead_letter_topic(world.name)]
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
