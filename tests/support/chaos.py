"""Two agents on one broker, distinguishable messages, and a thread that kills processes at random moments.

A moment is a count: "when the n-th output was sent", committed or not, so that many kills fall between a send and its
commit. Every fault has its own share of the messages, so none happens on an idle system.
"""

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from aiokafka import ConsumerRecord
from support.agent_process import AgentProcess
from support.audits import verify
from support.follow import ID, Follower
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import ThreeBrokers
from support.kafka_world import KafkaWorld, produce, read, until
from support.marks import MARKS
from support.transport_contract import Given

from deid_agent.agent import Coordinates
from deid_agent.audit.reading import read_entries as read_audit

PARTITIONS = 4
PATIENTS = 40
CANARY = re.compile(rb"qzv[a-z]{5}|vqz[a-z]{5}|qzx\d{10}")
_CONDITION_S = 300.0  # a busy machine takes minutes to start an agent


class Fault(StrEnum):
    """The faults that are injected."""

    AGENT = "one agent is killed and started again at once"
    BOTH = "both agents are killed and started again"
    FRESH = "one agent is killed, and again as soon as it has partitions"
    AWAY = "one agent is killed and stays away until the other has its partitions"
    ZOMBIE = "one agent is suspended, and goes on when the other has settled all that it had"
    WORKER = "one worker is killed"
    BROKER = "the broker is killed and started again"


def dead_letters_of(number: int) -> str:
    """Five letters that encode a number."""
    return "".join(chr(97 + number // 26**digit % 26) for digit in range(5))


def patient_of(number: int) -> bytes:
    """The patient (and record key) of a message; a patient's messages share a partition."""
    return b"QZX%010d" % (7_000_000 + number % PATIENTS)


def is_torn(number: int) -> bool:
    """Every fiftieth message is invalid."""
    return number % 50 == 49


def message(number: int) -> bytes:
    """A small message with its number in a field that no policy changes, and a unique name."""
    family, given = b"Qzv" + dead_letters_of(number).encode(), b"Vqz" + dead_letters_of(number).encode()
    if is_torn(number):
        return b'{"resourceType": "Patient", "name": [{"family": "%s", "given": ["%s"]' % (family, given)
    return (
        b"MSH|^~\\&|N%d|B|C|D|20240318143012||ORU^R01^ORU_R01|7|P|2.5.1\r" % number
        + b"PID|1||%s^^^B^MR||%s^%s||19570422|F\r" % (patient_of(number), family, given)
        + b"OBX|1|TX|1^Note^L||Mrs. %s, %s came in.||||||F\r" % (family, given)
    )


def holds_canary(data: bytes) -> bool:
    """True if the data contains a name or identifier of any message, in any case."""
    return CANARY.search(data.lower()) is not None


class Chaos:
    """One run: ``count`` messages and the ``faults``, in an order and at moments that ``seed`` decides."""

    def __init__(
        self,
        world: KafkaWorld,
        broker: KafkaBroker | ThreeBrokers,
        agents: Sequence[AgentProcess],
        *,
        faults: Mapping[StrEnum, int],
        count: int,
        seed: int,
    ) -> None:
        self.world = world
        self.broker = broker
        self.agents = tuple(agents)
        self.count = count
        self.numbers: dict[str, int] = {}
        """The message at each position of the input, by the id of its record."""
        self.positions: dict[str, Coordinates] = {}
        """The position of each record of the input, by its id."""
        self.done = Counter[str]()
        """The number of faults of each kind: kills of agents, workers and the broker, and suspensions."""
        self.unforced: list[int] = []
        """Exit codes of agents that ended without being asked; they were started again."""
        self._dead_letters = world.settings.dead_letter_topic(world.name)
        self._random = random.Random(seed)
        self._faults = [fault for fault, times in faults.items() for _ in range(times)]
        self._random.shuffle(self._faults)
        self.faults = len(self._faults)
        self.seconds: dict[StrEnum, float] = defaultdict(float)
        """How long the faults of each kind took."""
        self._wanted = set(self.agents)
        self._orphans: set[int] = set()
        self._partitions = PARTITIONS

    async def run(self) -> None:
        """Feed, disturb, wait until everything is published, and stop the agents."""
        topics = [self.world.out, self._dead_letters]
        for agent in self.agents:
            agent.start()
        supervising = asyncio.create_task(self._supervise())
        try:
            async with (
                Follower(self.broker.bootstrap, topics, "read_uncommitted") as sent,
                Follower(self.broker.bootstrap, topics) as seen,
            ):
                await self._storm(sent, seen)
                await seen.reach(lambda: len(seen.seen) >= self.count)
            self._wanted.clear()
            for agent in self.agents:
                await self._until(agent.handles_sigterm)  # one of them may have been started a moment ago
            codes = [agent.stop() for agent in self.agents]
            assert codes == [0] * len(codes)
        finally:
            supervising.cancel()
            for agent in self.agents:
                agent.end()

    async def found(self) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
        """The outputs and dead letters as a later reader finds them."""
        return await read(self.broker.bootstrap, self.world.out), await read(self.broker.bootstrap, self._dead_letters)

    async def orphans_end(self) -> None:
        """Wait until the workers of killed agents have ended by themselves; ``TimeoutError`` if one does not."""
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in self._orphans))

    def leaks(self, records: Iterable[ConsumerRecord]) -> list[str]:
        """The forbidden locations that contain a canary: outputs, sealed dead letters, keys, headers, logs, audits,
        other topics.
        """
        found = []
        for record in records:
            parts = [record.key or b"", record.value, *(name.encode() + value for name, value in record.headers)]
            if any(map(holds_canary, parts)):
                found.append(f"{record.topic}/{record.partition}/{record.offset}")
        holders = tuple(f"{self.world.name}-{number}" for number in range(99))
        files = [path for agent in self.agents for path in agent.folder.rglob("*")]
        files += [path for path in self.broker.folder.rglob("*") if path.parent.name not in holders]
        return found + [str(path) for path in files if path.is_file() and holds_canary(path.read_bytes())]

    # --- feeding and disturbing

    async def _storm(self, sent: Follower, seen: Follower) -> None:
        share = self.count // (len(self._faults) + 1)
        for turn, fault in enumerate(self._faults):
            await self._feed(share)
            moment = turn * share + self._random.randint(1, share * 3 // 4)
            await sent.reach(lambda moment=moment: len(sent.seen) >= moment)  # type: ignore[misc]
            begin = time.monotonic()
            await self._do(fault, sent, seen)
            self.seconds[fault] += time.monotonic() - begin
        await self._feed(self.count - len(self.numbers))

    async def _feed(self, count: int) -> None:
        by_partition: list[list[int]] = [[] for _ in range(self._partitions)]
        begin = len(self.numbers)
        for number in range(begin, begin + count):
            by_partition[number % PATIENTS % self._partitions].append(number)
        for partition, numbers in enumerate(by_partition):
            given = [Given(message(number), patient_of(number)) for number in numbers]
            offsets = await produce(self.broker.bootstrap, self.world.name, partition, given)
            for number, offset in zip(numbers, offsets, strict=True):
                at = Coordinates(self.world.name, partition, offset)
                self.numbers[MARKS.id_of(at, self.world.topic_id)] = number
                self.positions[MARKS.id_of(at, self.world.topic_id)] = at

    async def _do(self, fault: StrEnum, sent: Follower, seen: Follower) -> None:
        """Inject a fault; return when the processes that it ended have been started again."""
        assert isinstance(fault, Fault)
        one, *others = self._random.sample(self.agents, len(self.agents))
        match fault:
            case Fault.AGENT:
                self._kill(one)
                one.start()
            case Fault.BOTH:
                for agent in self.agents:
                    self._kill(agent)
                    agent.start()
            case Fault.FRESH:
                self._kill(one)
                one.start()
                await self._until(lambda: one.owned() > 0)
                self._kill(one)
                one.start()
            case Fault.AWAY:
                await self._until(lambda: one.owned() > 0)
                self._wanted.discard(one)
                self._kill(one)
                await self._until(lambda: sum(other.owned() for other in others) == self._partitions)
                one.start()
                self._wanted.add(one)
            case Fault.ZOMBIE:
                await self._until(lambda: one.owned() > 0)
                one.suspend()
                self.done["suspended"] += 1
                await self._until(lambda: sum(other.owned() for other in others) == self._partitions)
                await sent.reach(lambda: len(sent.seen) >= len(self.numbers))
                one.resume()
            case Fault.WORKER:
                await self._until(lambda: bool(one.workers()))
                os.kill(self._random.choice(one.workers()), signal.SIGKILL)
                self.done["workers"] += 1
            case Fault.BROKER:
                self.done["broker"] += 1
                assert isinstance(self.broker, KafkaBroker)
                await asyncio.to_thread(self.broker.restart)
            case _:
                assert_never(fault)

    def _kill(self, agent: AgentProcess) -> None:
        self._orphans.update(agent.workers())
        agent.kill()
        self.done["agents"] += 1

    async def _supervise(self) -> None:
        """Restart every process that ended by itself, as a service manager does."""
        while True:
            for agent in self._wanted:
                if (code := agent.code) is not None:
                    self.unforced.append(code)
                    agent.start()
            await asyncio.sleep(0.05)

    async def _until(self, holds: Callable[[], bool]) -> None:
        await until(holds, within_s=_CONDITION_S)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the records of a run, from its outputs and dead letters as a later reader finds them."""

    records: int
    lost: int
    doubled: int
    disordered: int
    """Records that were published after a later record of the same key and input partition."""
    unaudited: int
    """Records whose outcome is in no audit trail."""

    @property
    def faultless(self) -> bool:
        """True if every record has one outcome, in order and audited."""
        return self.lost == self.doubled == self.disordered == self.unaudited == 0


def judge(chaos: Chaos, out: Sequence[ConsumerRecord], dead_letters: Sequence[ConsumerRecord]) -> Verdict:
    """Compare the outputs with the input and the audit trails. Raises ``KeyError`` for an output without an input."""
    names = Counter(map(name_of, (*out, *dead_letters)))
    disordered = 0
    for records in (out, dead_letters):
        latest: dict[tuple[int, int], int] = {}
        for name in map(name_of, records):
            number = chaos.numbers[name]
            patient = number % PATIENTS, chaos.positions[name].partition
            disordered += number < latest.get(patient, -1)
            latest[patient] = max(number, latest.get(patient, -1))
    audited: dict[str, set[str]] = defaultdict(set)
    for agent in chaos.agents:
        verify(agent.audit)
        for entry in read_audit(agent.audit):
            audited[str(entry["deid_id"])].add(str(entry["outcome"]))
    outcomes = [(name_of(r), "published") for r in out] + [(name_of(r), "dead_lettered") for r in dead_letters]
    return Verdict(
        records=len(chaos.numbers),
        lost=len(chaos.numbers.keys() - names.keys()),
        doubled=sum(names.values()) - len(names),
        disordered=disordered,
        unaudited=sum(outcome not in audited[name] for name, outcome in outcomes),
    )


def name_of(record: ConsumerRecord) -> str:
    """The id of the input of an output or dead letter."""
    return str(dict(record.headers)[ID].decode())
