"""What the tests of our listener with an agent behind it share."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from support.mllp_agent import Agent

from deid_agent.agent.ports import Output, Record
from deid_agent.errors import TransientError
from deid_agent.transport.mllp_settings import ListenSettings

Start = Callable[..., Awaitable[Agent]]
LISTEN = ListenSettings(port=0, max_connections=4)
CANARY = b"Okonkwo-Featherstonehaugh"


class Outlet:
    """Keeps outputs; does what the test says before."""

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


def changed(**values: object) -> ListenSettings:
    return ListenSettings(**{"port": 0, "max_connections": 4, **values})  # type: ignore[arg-type]


def letters(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["deid.error.code"] for path in sorted(folder.glob("letters/*.json"))]
