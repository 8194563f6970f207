"""An agent behind the HTTP interface, on the loop of the test: a real server and runner, and a worker of the test."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from support.executors import ChoosyExecutor
from support.marks import MARKS
from support.recording import Recording

from deid_agent.agent.job import (
    MEDIA_HEADER,
    Completed,
    Processed,
    Refused,
    Result,
    ResultCallback,
    Suppressed,
    job_for,
)
from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.ports import AuditEntry, Record
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.config import ServiceSettings, SmartSettings
from deid_agent.http.service import Service, ServiceLimits
from deid_agent.http.service_access import Project, Projects, ServiceAccess, ServiceLogins
from deid_agent.http.service_job_answers import JobAnswers
from deid_agent.http.service_server import ServiceServer
from deid_agent.http.smart_service import SmartLogin, make_smart_login
from deid_agent.model.errors import Reason
from deid_agent.transport.http import HttpTransport

PATIENCE_S = 20.0
MESSAGES = "/v1/projects/default/messages"
TEXT = "/v1/projects/default/text"
DOCUMENTS = "/v1/projects/default/documents"
STREAM = "/v1/projects/default/stream"
OPERATION = "/fhir/default/$de-identify"
ND = "application/fhir+ndjson"


def result(payload: bytes) -> Result:
    """The result of a payload, selected by how it begins."""
    if payload.startswith(b"bad"):
        return Refused(Reason.MALFORMED, "byte 3", "parse")
    if payload.startswith(b"big"):
        return Refused(Reason.RESOURCE, "payload", "size")
    if payload.startswith(b"leave"):
        return Suppressed()
    if payload.startswith(b"%PDF"):
        return Processed(b"clean", headers=((MEDIA_HEADER, b"text/plain; charset=utf-8"),))
    if payload.startswith((b'{"resourceType"', b"\xef\xbb\xbf")):
        return Processed(payload.replace(b"\n", b" "))
    return Processed(b"clean " + payload)


class TaskExecutor(ChoosyExecutor):
    """Finishes every job in the next turn of the loop, except those that begin with ``hold``; keeps their tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[str] = []
        self.projects: list[str] = []
        self.code_keys: list[bytes] = []

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        job = job_for(record, project)
        self.tasks.append(job.task)
        self.code_keys.append(job.code_key)
        self.projects.append(project)
        if record.payload.startswith(b"hold"):
            super().submit(record, done, project)
        else:
            asyncio.get_running_loop().call_soon(done, record, Completed(result(record.payload)))

    def release(self) -> None:
        while self.pending:
            self.finish(0, result(self.pending[0][0].payload))


@dataclass
class HeldAudit:
    """Keeps the entries. While ``held``, an append is not durable and does not return."""

    entries: list[AuditEntry] = field(default_factory=list)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, entries: Sequence[AuditEntry]) -> Sequence[bytes]:
        await self.free.wait()
        self.entries += entries
        return ()

    async def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True)
class Reply:
    """A response as its bytes were, in parts."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpAgent:
    """Runs from ``start`` to ``end``."""

    def __init__(
        self,
        logins: ServiceLogins | None = None,
        *,
        ready: Callable[[], bool] = lambda: True,
        message_bytes: int = 1 << 20,
        clock: Callable[[], float] = lambda: 0.0,
        rate: float = 1e6,
        runner: RunnerSettings | None = None,
        projects: Sequence[str] = ("default",),
        permitted: Mapping[str, frozenset[str]] | None = None,
        smart: Mapping[str, object] | None = None,
        jobs: "Callable[[HttpAgent], JobAnswers] | None" = None,
        **settings: object,
    ) -> None:
        self.settings = ServiceSettings.model_validate({"port": 0, "max_requests": 4, **settings})
        self.telemetry, self.executor, self.audit = Recording(), TaskExecutor(), HeldAudit()
        self.audit.free.set()
        self.transport = HttpTransport(self.settings.max_requests, projects)
        limits = ServiceLimits(
            message_bytes,
            self.settings.max_in_flight_bytes,
            self.settings.max_requests // 2,
            self.settings.idle_s,
            self.settings.answer_s,
        )
        served = Projects(
            {name: Project(name, "pseudonymised", "0" * 16, "5e0c41d7") for name in projects}, permitted or {}
        )
        self.smart: SmartLogin | None = None
        if smart is not None:
            self.smart = make_smart_login(SmartSettings.model_validate(smart), served.names_of, self.telemetry)
        self.access = ServiceAccess(logins or ServiceLogins(), rate, clock, self.smart)
        answers = None if jobs is None else jobs(self)
        self.service = Service(self.transport, self.access, served, limits, ready, self.telemetry, self.smart, answers)
        held = lambda: self.service.budget.held  # noqa: E731
        self.server = ServiceServer(self.settings, self.service.application(), self.telemetry, None, "none", held)
        self.runner = Runner(
            self.transport,
            self.executor,
            self.audit,
            runner or RunnerSettings(linger_s=0.0, drain_s=2.0),
            marks=MARKS,
            telemetry=self.telemetry,
            projects={
                f"http-{name}": OutputMarks(name.encode(), project=name) for name in projects if name != "default"
            },
        )
        self._running: asyncio.Task[None] | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> "HttpAgent":
        await self.server.start()
        self._running = asyncio.create_task(self.runner.run())
        return self

    async def stop(self) -> None:
        """Ask the agent to stop, and wait for it. The server still runs."""
        self.runner.request_stop()
        if self._running is not None:
            async with asyncio.timeout(PATIENCE_S):
                await self._running

    async def end(self) -> None:
        self.audit.free.set()
        self.executor.release()
        with contextlib.suppress(Exception):
            await self.stop()
        await self.server.stop()
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, path: str, body: bytes | None = None, media: str = "application/json", **headers: str) -> Reply:
        """Send one request over a connection of its own; POST if there is a body, unless ``Method`` names another."""
        reader, writer = await self.open()
        writer.write(request(path, body, media, **headers))
        try:
            return await read_reply(reader)
        finally:
            writer.close()


def request(path: str, body: bytes | None = None, media: str = "application/json", **headers: str) -> bytes:
    """The bytes of a request. A header of None is left out; ``_`` in names are hyphens."""
    lines = {"Host": "127.0.0.1"}
    method = headers.pop("Method", "GET" if body is None else "POST")
    head = f"{method} {path} HTTP/1.1\r\n"
    if body is not None:
        lines |= {"Content-Type": media, "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    return (head + "".join(f"{n}: {v}\r\n" for n, v in lines.items()) + "\r\n").encode() + (body or b"")


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """The next response of a connection. ``IncompleteReadError`` if it is cut."""
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") != "chunked":
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            return Reply(int(first.split()[1]), headers, body)
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return Reply(int(first.split()[1]), headers, body)


async def until(holds: Callable[[], bool]) -> None:
    """Return once the condition holds; ``TimeoutError`` if it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  the other side sends no notification
            await asyncio.sleep(0.005)


Start = Callable[..., Awaitable[HttpAgent]]
"""The fixture ``start``: an agent with these settings, running."""


def code_of(body: bytes) -> str:
    """The closed code of an error."""
    return str(json.loads(body)["code"])


def chunk(data: bytes) -> bytes:
    """A chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def digest_of(token: str) -> str:
    """A token as the settings have it."""
    return hashlib.sha256(token.encode()).hexdigest()
