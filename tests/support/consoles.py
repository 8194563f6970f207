"""A console over the folders of an agent that has run: sealed and plain letters, an audit, and a client."""

import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from click.testing import CliRunner

from deid_agent import config, key
from deid_agent.agent.health import Health
from deid_agent.agent.ports import Partition
from deid_agent.cli import main, wire
from deid_agent.console.app import LIMITS, console
from deid_agent.console.gate import PAGE_HEADER, Access
from deid_agent.console.inventory import Running
from deid_agent.console.room import Room
from deid_agent.console.views import Sources
from deid_agent.operator.pages import routes
from deid_agent.operator.server import OperatorServer
from deid_agent.telemetry.emit import Telemetry

SAMPLES = Path(__file__).resolve().parents[2] / "deid_agent" / "samples"
TOKEN = "a token that nobody guesses"
ACT = {"X-Deid-Console": "1"}
OPEN = Access()
CANARY = "<img src=x onerror=alert(1)>"


def ran(root: Path, *, sealed: bool) -> Path:
    """An agent's folders below ``root`` after it took two good files and two that nobody can read; its settings."""
    (root / "in").mkdir()
    for name in ("01-adt-a01.hl7", "02-oru-discharge.hl7"):
        shutil.copy(SAMPLES / name, root / "in" / name)
    for n in (1, 2):
        (root / "in" / f"{n}{CANARY.replace('/', '')}.hl7").write_bytes(b"nothing of Okonkwo")
    letters = "plain = true"
    if sealed:
        made = CliRunner().invoke(main, ["letters", "keygen", "--out", str(root / "letters.key")])
        assert made.exit_code == 0, made.stderr
        letters = f'public_key = "{root}/letters.key.pub"'
    file = root / "agent.toml"
    file.write_text(
        f'transport = "directory"\n[agent]\nworkers = 0\n[http]\nport = 0\n[directory]\ninput = "{root}/in"\n'
        f'output = "{root}/out"\ndead_letters = "{root}/dead"\nstate = "{root}/state"\n[audit]\npath = "{root}/audit"\n'
        f"[dead_letters]\n{letters}\n"
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
    """One console and a client of it, which says nothing of where it comes from unless it is told to."""

    telemetry: Telemetry
    health: Health
    server: OperatorServer
    client: aiohttp.ClientSession
    sources: Sources

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

    async def enter(self) -> dict[str, str]:
        """Log in: the client keeps the cookie as a browser does, and this is the header that the pages send."""
        status, said = await self.post("api/login", {"token": TOKEN})
        assert status == 200
        return {PAGE_HEADER: said["page"]}

    async def ended(self, path: str) -> Any:
        """The answer of something that goes on behind, once it is done."""
        while (said := (await self.get(path))[1])["state"] == "running":
            pass
        return said


async def _body(answer: aiohttp.ClientResponse) -> Any:
    return await answer.json() if answer.content_type == "application/json" else await answer.text()


@asynccontextmanager
async def world(
    file: Path,
    access: Access = OPEN,
    *,
    room: Room | None = None,
    report: Path | None = None,
    every_s: float = 3600,
) -> AsyncIterator[World]:
    """A console over the folders that ``file`` names, beside health and metrics, as ``run`` has it."""
    telemetry, health = Telemetry(), Health()
    health.started()
    health.assigned(Partition("adt", 0))
    health.workers(2, 2)
    settings = config.load(file)
    parts = wire.workshop_of(settings, key.DEMO)
    running = Running(parts, settings, wire.build_of(settings, parts), demo=True)
    sources = replace(wire.sources_of(settings.http, running, telemetry, health), room=room, report=report)
    async with console(sources, access, telemetry, every_s) as pages:
        server = OperatorServer("127.0.0.1", 0, [*routes(health, telemetry.registry), *pages], telemetry, LIMITS)
        await server.start()
        try:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
                yield World(telemetry, health, server, client, sources)
        finally:
            await server.stop()
