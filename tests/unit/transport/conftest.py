"""A scripted sink, agents between our MLLP listener and it, and folder transports that end with the test."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.folder_files import Make
from support.mllp_agent import Agent
from support.mllp_listener import LISTEN, ScriptedSink, Start
from support.transport_contract import folder_settings

from deid_agent.config import MllpSettings
from deid_agent.transport.folder.source import FolderTransport


@pytest.fixture
def sink() -> ScriptedSink:
    return ScriptedSink()


@pytest.fixture
async def start(tmp_path: Path, sink: ScriptedSink) -> AsyncIterator[Start]:
    agents: list[Agent] = []

    async def started(
        settings: MllpSettings = LISTEN, clock: Callable[[], float] | None = None, **limits: float
    ) -> Agent:
        agents.append(Agent(sink, tmp_path / "letters", settings, clock, **limits))
        return await agents[-1].start()

    yield started
    for agent in agents:
        await agent.end()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[FolderTransport] = []
    (tmp_path / "in").mkdir()

    def make(**more: object) -> FolderTransport:
        settings = {name: more.pop(name) for name in ("watch", "interval_s", "stable_s") if name in more}
        made.append(FolderTransport(folder_settings(tmp_path, **settings), **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        await transport.stop()
