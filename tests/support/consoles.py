"""A console over the folders of an agent that has run, with plain or sealed dead letters, an audit, and a client."""

import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from click.testing import CliRunner

from deid_agent.agent.health import Health
from deid_agent.agent.ports import Partition
from deid_agent.cli import main
from deid_agent.cli.inventory import RunningAgent
from deid_agent.cli.service import console_sources
from deid_agent.cli.service_parts import describe_build, make_worker_factory
from deid_agent.config import load_settings
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.http.access import PAGE_HEADER, AccessSettings
from deid_agent.http.console import CONSOLE_LIMITS, console_routes
from deid_agent.http.playground_process import PlaygroundProcess
from deid_agent.http.review_desk import ReviewDesk
from deid_agent.http.server import OperatorServer, operator_routes
from deid_agent.http.views import ConsoleSources
from deid_agent.telemetry.emit import Telemetry

SAMPLES = Path(__file__).resolve().parents[2] / "deid_agent" / "samples"
TOKEN = "a token that nobody guesses"
ACT = {"X-Deid-Console": "1"}
OPEN = AccessSettings()
CANARY = "<img src=x onerror=alert(1)>"


def ran(root: Path, *, sealed: bool) -> Path:
    """Run an agent below ``root`` on two valid files and two that it refuses, and return its settings file."""
    (root / "in").mkdir()
    for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7"):
        shutil.copy(SAMPLES / name, root / "in" / name)
    for n in (1, 2):
        (root / "in" / f"{n}{CANARY.replace('/', '')}.hl7").write_bytes(b"nothing of Okonkwo")
    dead_letters = "plain = true"
    if sealed:
        made = CliRunner().invoke(main, ["dead-letters", "keygen", "--out", str(root / "dead-letters.key")])
        assert made.exit_code == 0, made.stderr
        dead_letters = f'public_key = "{root}/dead-letters.key.pub"'
    file = root / "agent.toml"
    file.write_text(
        f'transport = "directory"\n[agent]\nworkers = 0\n[http]\nport = 0\n[directory]\ninput = "{root}/in"\n'
        f'output = "{root}/out"\ndead_letters = "{root}/dead"\nstate = "{root}/state"\n[audit]\npath = "{root}/audit"\n'
        f"[dead_letters]\n{dead_letters}\n"
    )
    root_logger = logging.getLogger()
    handlers, level = root_logger.handlers[:], root_logger.level
    done = CliRunner().invoke(main, ["run", "--demo-key", "--log-level", "error", "--config", str(file)])
    root_logger.handlers[:] = handlers  # `run` takes over the root logger
    root_logger.setLevel(level)
    assert done.exit_code == 1, done.stderr
    return file


@dataclass
class World:
    """One console and a client. The client sends no Origin header unless a test adds one."""

    telemetry: Telemetry
    health: Health
    server: OperatorServer
    client: aiohttp.ClientSession
    sources: ConsoleSources
    agent: RunningAgent

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Status and JSON (else text) of ``/console/<path>``."""
        async with self.client.get(f"{self.base}/console/{path}", headers=headers, allow_redirects=False) as answer:
            return answer.status, await _body(answer)

    async def post(self, path: str, body: object, headers: Mapping[str, str] = ACT) -> tuple[int, Any]:
        async with self.client.post(f"{self.base}/console/{path}", json=body, headers=headers) as answer:
            return answer.status, await _body(answer)

    async def log_in(self, token: str = TOKEN) -> dict[str, str]:
        """Log in. The client keeps the cookie, as a browser does. Returns the header that the pages send."""
        status, body = await self.post("api/login", {"token": token})
        assert status == 200
        return {PAGE_HEADER: body["page"]}

    async def finished(self, path: str) -> Any:
        """The response for work in the background, once the work is done."""
        while (body := (await self.get(path))[1])["state"] == "running":
            pass
        return body


async def _body(answer: aiohttp.ClientResponse) -> Any:
    return await answer.json() if answer.content_type == "application/json" else await answer.text()


@asynccontextmanager
async def world(
    file: Path,
    access: AccessSettings = OPEN,
    *,
    playground: PlaygroundProcess | None = None,
    report: Path | None = None,
    desk: ReviewDesk | None = None,
    interval_s: float = 3600,
) -> AsyncIterator[World]:
    """A console over the folders of the settings ``file``, with health and metrics, as ``run`` serves it."""
    telemetry, health = Telemetry(), Health()
    health.started()
    health.assigned(Partition("adt", 0))
    health.workers(2, 2)
    settings = load_settings(file)
    parts = make_worker_factory(settings, DEMO_KEY)
    running = RunningAgent(parts, settings, describe_build(settings, parts), demo=True)
    made = console_sources(settings.http, running, telemetry, health)
    sources = replace(made, playground=playground, report=report, desk=desk)
    async with console_routes(sources, access, telemetry, interval_s) as pages:
        server = OperatorServer(
            "127.0.0.1", 0, [*operator_routes(health, telemetry.registry), *pages], telemetry, CONSOLE_LIMITS
        )
        await server.start()
        try:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
                yield World(telemetry, health, server, client, sources, running)
        finally:
            await server.stop()
