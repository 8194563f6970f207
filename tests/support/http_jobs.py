"""Jobs behind the HTTP interface on the loop of a test, and a server of files with every fault."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.http_agent import OPERATION, PATIENCE_S, HttpAgent, Reply, until

from deid_agent.http.service_job_answers import JobAnswers
from deid_agent.http.service_job_fetch import InputOpener, Lookup, look_up
from deid_agent.http.service_job_files import JobFolder
from deid_agent.http.service_job_inputs import InputRules
from deid_agent.http.service_job_runs import RunLimits
from deid_agent.http.service_jobs import JobLimits, ServiceJobs

FHIR = "application/fhir+json"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def whole(body: bytes, **headers: str) -> bytes:
    """A response with a file."""
    lines = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return b"HTTP/1.1 200 OK\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines.items()).encode() + b"\r\n" + body


@dataclass
class FileServer:
    """Answers ``/bulk/NAME`` with the bytes in ``files``, or by a function, and closes the connection."""

    files: dict[str, bytes | Serve] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    port: int = 0
    _server: asyncio.Server | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> "FileServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/bulk/"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            given = self.files.get(head.split()[1].rpartition("/")[2], b"HTTP/1.1 404 Not Found\r\n\r\n")
            if callable(given):
                await given(reader, writer)
            else:
                writer.write(given)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()


@dataclass
class JobWorld:
    """An agent with jobs. ``server`` is the one server that it may read."""

    agent: HttpAgent
    jobs: ServiceJobs
    server: FileServer
    folder: Path

    async def kick_off(self, *files: tuple[str, str], **headers: str) -> Reply:
        """Begin a job of files, given as type and address or name on the server."""
        return await self.agent.ask(OPERATION, call(self.server.base, *files), FHIR, **headers)

    async def run(self, *files: tuple[str, str]) -> dict[str, object]:
        """The manifest of a job of files."""
        return await self.finish(await self.kick_off(*files))

    async def get(self, path: str, **headers: str) -> Reply:
        """The answer to a GET."""
        return await self.agent.ask(path, None, **headers)

    async def finish(self, started: Reply, **headers: str) -> dict[str, object]:
        """The manifest, once the job is done."""
        assert started.status == 202, started
        path = path_of(started.headers["content-location"])
        async with asyncio.timeout(PATIENCE_S):
            while (reply := await self.get(path, **headers)).status == 202:
                assert int(reply.headers["retry-after"]) >= 1
                await asyncio.sleep(0.01)
        assert reply.status == 200, reply
        found: dict[str, object] = json.loads(reply.body)
        return found

    async def read(self, item: Mapping[str, object], **headers: str) -> bytes:
        """The content of a file of a manifest."""
        reply = await self.get(path_of(str(item["url"])), **headers)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/fhir+ndjson")
        assert reply.body.count(b"\n") == item["count"]
        return reply.body

    async def errors(self, found: Mapping[str, object]) -> list[tuple[str, str]]:
        """Code and place of each error of a manifest."""
        lines = [line for item in items(found, "error") for line in (await self.read(item)).splitlines()]
        issues = [json.loads(line)["issue"][0] for line in lines]
        return [(each["details"]["coding"][0]["code"], each.get("diagnostics", "")) for each in issues]

    async def end(self) -> None:
        await self.jobs.close()
        await self.server.stop()


def items(found: Mapping[str, object], kind: str) -> list[dict[str, object]]:
    """The files of a manifest."""
    listed = found[kind]
    assert isinstance(listed, list)
    return listed


def path_of(url: str) -> str:
    """The path of an address of the interface."""
    return "/" + url.split("/", 3)[3]


def call(base: str, *files: tuple[str, str]) -> bytes:
    """Parameters of ``$de-identify`` with these types and names or addresses of files."""
    listed = [
        {
            "name": "data",
            "part": [
                {"name": "resourceType", "valueCode": type_},
                {"name": "resourceUrl", "valueUrl": name if ":" in name else base + name},
            ],
        }
        for type_, name in files
    ]
    urls = {"resourceType": "Parameters", "parameter": [{"name": "format", "valueCode": "fhir+ndjson"}, *listed]}
    tree = {"resourceType": "Parameters", "parameter": [{"name": "identifiableDataFileUrls", "resource": urls}]}
    return json.dumps(tree).encode()


async def make_world(
    start: Callable[..., Awaitable[HttpAgent]],
    folder: Path,
    *,
    urls: Sequence[str] | None = None,
    lookup: Lookup = look_up,
    limits: JobLimits | None = None,
    idle_s: float = PATIENCE_S,
    inbox: Path | None = None,
    codes: bool = False,
    trusts: ssl.SSLContext | None = None,
    **settings: object,
) -> JobWorld:
    """Start an agent with jobs, and a server of files."""
    server = await FileServer().start()
    made: list[ServiceJobs] = []

    def answers(agent: HttpAgent) -> JobAnswers:
        rules = InputRules(("pseudonymised",), [server.base] if urls is None else urls, (), inbox, codes)
        made.append(
            ServiceJobs(
                JobFolder(folder),
                {"default": rules},
                limits or JobLimits(RunLimits(1 << 20, 1 << 20, 100)),
                InputOpener(trusts or ssl.create_default_context(), idle_s, lookup),
                agent.transport.claim,
                agent.access.bucket,
                agent.telemetry,
            )
        )
        return JobAnswers(made[0], base_url=None, requires_token=False, idle_s=PATIENCE_S)

    agent = await start(jobs=answers, **settings)
    return JobWorld(agent, made[0], server, folder)


MakeWorld = Callable[..., Awaitable[JobWorld]]
"""The fixture ``world``: ``make_world`` with these settings."""


async def until_empty(folder: Path) -> None:
    """Return once a folder of jobs has none."""
    await until(lambda: [path.name for path in folder.iterdir()] == ["lock"])
