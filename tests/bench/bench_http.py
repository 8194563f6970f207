"""Messages per second over HTTP, beside the same messages through a folder.

    python tests/bench/bench_http.py [messages] [rounds]

Three lines, in turns within one run, with one worker and the default recognizers: files of a folder, requests of 32
clients with keep-alive, and one stream. Each has its own worker process, runner and audit trail; a worker has read one
message before the time begins. The last lines are ratios of medians to the folder.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.http_agent import MESSAGES, STREAM, read_reply, request
from support.transport_contract import folder_settings

from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.ports import Transport
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.app import WorkerFactory
from deid_agent.audit.storage import Signer
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.config import AgentSettings, ServiceSettings
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.http.service import Service, ServiceLimits
from deid_agent.http.service_access import Project, Projects, ServiceAccess, ServiceLogins
from deid_agent.http.service_server import ServiceServer
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import BatchCommitted
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import Event
from deid_agent.transport.folder.source import FolderTransport
from deid_agent.transport.http import HttpTransport

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 400
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
CLIENTS = 32
SAMPLES = Path(__file__).resolve().parents[2] / "deid_agent" / "samples"


def messages() -> list[bytes]:
    """The samples of the package in JSON, as lines, each with a number of its own."""
    found = [orjson.loads((SAMPLES / name).read_bytes()) for name in ("04-document-reference.json", "05-bundle.json")]
    return [orjson.dumps({**found[number % 2], "id": f"message-{number}"}) for number in range(COUNT + 1)]


@dataclass(frozen=True)
class Rate:
    """Messages a second, and the CPU of one message: in the worker, and in the process of agent and clients."""

    per_s: float
    worker_ms: float
    agent_ms: float


def cpu_s(pool: WorkerPool) -> tuple[float, float]:
    """The CPU of the worker and of this process so far."""
    process = pool._workers[0]._process
    if process is None:
        return 0.0, time.process_time()
    ticks = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), time.process_time()


class Committed(Telemetry):
    """Notes when each batch was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.early, self.first, self.last = 0, 0, 0.0, 0.0
        self.pool: WorkerPool | None = None
        self.begin = self.end = (0.0, 0.0)

    def emit(self, event: Event) -> None:
        super().emit(event)
        if isinstance(event, BatchCommitted):
            self.count += event.published
            self.last = time.perf_counter()
            if self.pool is not None:
                self.end = cpu_s(self.pool)
            if not self.first:
                self.early, self.first, self.begin = self.count, self.last, self.end

    def rate(self) -> Rate:
        """From the first commit to the last: the start and the first scan do not count."""
        done = self.count - self.early
        worker, agent = (1000 * (after - before) / done for before, after in zip(self.begin, self.end, strict=True))
        return Rate(done / (self.last - self.first), worker, agent)


def runner(transport: Transport, folder: Path, telemetry: Committed, linger_s: float) -> tuple[Runner, AuditTrail]:
    rules = data_folder("rules")
    factory = WorkerFactory(rules, DEMO_KEY, load_policy("pseudonymised", rules))
    audit = AuditTrail(folder / "audit", {}, Signer(DEMO_KEY.audit_seed), telemetry, TrailSettings(agent="bench"))
    limits = RunnerSettings(linger_s=linger_s)
    pool = telemetry.pool = WorkerPool(factory, 1, telemetry)
    return Runner(transport, pool, audit, limits, marks=OutputMarks(b"k" * 32), telemetry=telemetry), audit


async def through_a_folder(folder: Path, given: list[bytes]) -> Rate:
    (folder / "in").mkdir()
    for number, data in enumerate(given):
        (folder / "in" / f"{number:06}").write_bytes(data)
    telemetry = Committed()
    agent, audit = runner(FolderTransport(folder_settings(folder)), folder, telemetry, RunnerSettings().linger_s)
    await agent.run()
    await audit.close()
    assert telemetry.count == len(given)
    return telemetry.rate()


async def over_http(folder: Path, send: Callable[[int, list[bytes]], Awaitable[None]], given: list[bytes]) -> Rate:
    settings = ServiceSettings(port=0)
    telemetry, transport = Committed(), HttpTransport(settings.max_requests)
    agent, audit = runner(transport, folder, telemetry, 0.0)
    limits = ServiceLimits(
        AgentSettings().max_message_bytes,
        settings.max_in_flight_bytes,
        settings.max_requests // 2,
        settings.idle_s,
        settings.answer_s,
    )
    projects = Projects({"default": Project("default", "pseudonymised", "", "")})
    access = ServiceAccess(ServiceLogins(), settings.records_per_s)
    service = Service(transport, access, projects, limits, lambda: True, telemetry)
    server = ServiceServer(settings, service.application(), telemetry, None, "none", lambda: 0)
    await server.start()
    running = asyncio.create_task(agent.run())
    try:
        await by_requests(server.port, given[:1])
        await send(server.port, given[1:])
        return telemetry.rate()
    finally:
        agent.request_stop()
        await running
        await server.stop()
        await audit.close()


async def by_requests(port: int, given: list[bytes]) -> None:
    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in given[number::CLIENTS]:
            writer.write(request(MESSAGES, data))
            reply = await read_reply(reader)
            assert reply.status == 200, reply.body
        writer.close()

    await asyncio.gather(*(one(number) for number in range(min(CLIENTS, len(given)))))


async def by_a_stream(port: int, given: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def write() -> None:
        body = b"".join(data + b"\n" for data in given)
        writer.write(request(STREAM, body, "application/x-ndjson"))
        await writer.drain()

    writing = asyncio.create_task(write())
    lines = 0
    while data := await reader.read(1 << 16):
        lines += data.count(b'"id":"')
        if data.endswith(b"0\r\n\r\n"):
            break
    await writing
    writer.close()


async def main() -> None:
    given = messages()
    rates: dict[str, list[Rate]] = {"folder": [], "32 clients": [], "stream": []}
    for _ in range(ROUNDS):
        for name, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                match name:
                    case "folder":
                        rate = await through_a_folder(Path(folder), given)
                    case "stream":
                        rate = await over_http(Path(folder), by_a_stream, given)
                    case _:
                        rate = await over_http(Path(folder), by_requests, given)
            found.append(rate)
    median = {name: statistics.median(each.per_s for each in found) for name, found in rates.items()}
    for name, found in rates.items():
        worker, agent = (
            statistics.median(each) for each in ([r.worker_ms for r in found], [r.agent_ms for r in found])
        )
        sys.stdout.write(
            f"{name:12}{median[name]:7.1f} messages/s ({min(r.per_s for r in found):.1f} to "
            f"{max(r.per_s for r in found):.1f}), CPU of one: worker {worker:.1f} ms, agent, clients {agent:.1f} ms\n"
        )
    for name in ("32 clients", "stream"):
        sys.stdout.write(f"{name} / folder: {median[name] / median['folder']:.2f}\n")


if __name__ == "__main__":
    asyncio.run(main())
