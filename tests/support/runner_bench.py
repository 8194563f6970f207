"""One agent over the in-memory bus, with a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from support.executors import ChoosyExecutor
from support.marks import MARKS
from support.memory_transport import Cluster, MemoryTransport
from support.recording import Recording
from support.virtual import run_virtual

from deid_agent.agent.health import Health
from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.ports import AuditEntry, CrosswalkLog, Partition
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.model.errors import DeidError

A, B = Partition("adt", 0), Partition("adt", 1)


class ListAudit:
    """Keeps entries, and the number of records committed when each batch arrived. It signs ``heads`` in turn."""

    def __init__(self, cluster: Cluster) -> None:
        self.entries: list[AuditEntry] = []
        self.committed_before: list[int] = []
        self.error: DeidError | None = None
        self.heads: list[bytes] = []
        self._cluster = cluster

    async def append(self, entries: Sequence[AuditEntry]) -> Sequence[bytes]:
        if self.error is not None:
            raise self.error
        self.committed_before.append(len(self._cluster.finished[A]))
        self.entries += entries
        return [b"line of %d" % entry.coordinates.offset for entry in entries]

    def take_head(self) -> bytes:
        return self.heads.pop(0) if self.heads else b""

    async def close(self) -> None:
        pass


@dataclass
class RunnerHarness:
    """One agent and its surroundings."""

    settings: RunnerSettings = field(default_factory=RunnerSettings)
    finite: bool = True
    projects: dict[str, OutputMarks] = field(default_factory=dict)
    crosswalks: dict[str, CrosswalkLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = Cluster(A, B)
        self.transport = MemoryTransport(self.cluster, finite=self.finite)
        self.executor: ChoosyExecutor = ChoosyExecutor()
        self.audit = ListAudit(self.cluster)
        self.telemetry = Recording()
        self.health = Health(lambda: asyncio.get_running_loop().time())

    def fill(self, count: int, payload: bytes = b"good", stream: Partition = A) -> None:
        for number in range(count):
            self.cluster.produce(stream, b"%s %d" % (payload, number), key=b"%d" % (number % 3))

    def start(self) -> asyncio.Task[None]:
        self.runner = Runner(
            self.transport,
            self.executor,
            self.audit,
            self.settings,
            marks=MARKS,
            telemetry=self.telemetry,
            health=self.health,
            projects=self.projects,
            crosswalks=self.crosswalks,
        )
        return asyncio.create_task(self.runner.run())

    def offsets(self, stream: Partition = A) -> list[int]:
        return [item.record.coordinates.offset for item in self.cluster.finished[stream]]


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """The test, run on a loop with a virtual clock."""

    async def body() -> None:
        await test()

    def run() -> None:
        run_virtual(body)

    run.__name__ = getattr(test, "__name__", "test")
    return run
