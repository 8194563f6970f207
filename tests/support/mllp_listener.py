"""Shared parts of the tests that run the listener with an agent behind it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from support.mllp_agent import Agent, make_settings

from deid_agent.agent.ports import Output, Record
from deid_agent.config import MllpSettings
from deid_agent.model.errors import TransientError

Start = Callable[..., Awaitable[Agent]]
LISTEN = make_settings(max_connections=4)
CANARY = b"Okonkwo-Featherstonehaugh"


class ScriptedSink:
    """A sink that keeps outputs, with faults planned by the test."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.error: TransientError | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.tries = 0

    async def start(self) -> None:
        pass

    async def deliver(self, record: Record, output: Output) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        await self.open.wait()
        self.got.append(output.payload.partition(b"\r")[2])

    async def stop(self) -> None:
        pass


def changed(**values: object) -> MllpSettings:
    return make_settings(**{"max_connections": 4, **values})  # type: ignore[arg-type]


def dead_letters(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["deid.error.code"] for path in sorted(folder.glob("letters/*.json"))]
