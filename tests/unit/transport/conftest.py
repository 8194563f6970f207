"""An outlet that does as the test says, and agents between our MLLP listener and it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.mllp_agent import Agent
from support.mllp_listener import LISTEN, Outlet, Start

from deid_agent.transport.mllp_settings import ListenSettings


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


@pytest.fixture
async def start(tmp_path: Path, outlet: Outlet) -> AsyncIterator[Start]:
    agents: list[Agent] = []

    async def started(settings: ListenSettings = LISTEN, **limits: float) -> Agent:
        agents.append(Agent(outlet, tmp_path / "letters", settings, **limits))
        return await agents[-1].start()

    yield started
    for agent in agents:
        await agent.end()
