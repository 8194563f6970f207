"""Agents for the tests of `http`: the folders of one that has run, and one behind the interface for clients."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.consoles import ran
from support.http_agent import HttpAgent, Start
from support.http_jobs import JobWorld, MakeWorld, make_world
from support.smart_agent import LAB, WARD, SmartAgent, settings_of

RULES = Path(__file__).resolve().parents[3] / "rules"


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("plain"), sealed=False)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The same for a test that changes them."""
    return ran(tmp_path, sealed=False)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """The same with sealed dead letters; their key is next to the settings."""
    return ran(tmp_path, sealed=True)


@pytest.fixture
def other_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate rules folder for the agent, with its settings."""
    shutil.copytree(RULES, tmp_path / "rules")
    monkeypatch.setenv("DEID_RULES", str(tmp_path / "rules"))
    (tmp_path / "agent").mkdir()
    return ran(tmp_path / "agent", sealed=False)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts agents behind the HTTP interface, and ends them after the test."""
    agents: list[HttpAgent] = []

    async def begin(*args: object, **settings: object) -> HttpAgent:
        agents.append(HttpAgent(*args, **settings))  # type: ignore[arg-type]
        return await agents[-1].start()

    yield begin
    for agent in agents:
        await agent.end()


@pytest.fixture
async def smart(start: Start, tmp_path: Path) -> SmartAgent:
    """An agent that gives tokens to two clients."""
    return SmartAgent(await start(smart=settings_of(tmp_path, LAB, WARD), projects=("default", "darts")))


@pytest.fixture
async def world(start: Start, tmp_path: Path) -> AsyncIterator[MakeWorld]:
    """Starts agents with jobs, and ends them after the test."""
    worlds: list[JobWorld] = []

    async def make(**settings: object) -> JobWorld:
        worlds.append(await make_world(start, tmp_path / "jobs", **settings))  # type: ignore[arg-type]
        return worlds[-1]

    yield make
    for each in worlds:
        await each.end()
