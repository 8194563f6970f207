"""An agent between our MLLP listener and an outlet, on the loop of the test."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from support.audits import NoAudit
from support.executors import ChoosyExecutor
from support.mllp_world import PATIENCE_S, Peer
from support.recording import Recording

from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.job import Completed, Done, Processed, Refused, Result, Suppressed
from deid_agent.agent.ports import Record
from deid_agent.agent.runner import Runner
from deid_agent.errors import Reason
from deid_agent.transport.mllp import MllpTransport
from deid_agent.transport.mllp_settings import ListenSettings
from deid_agent.transport.outlet import Outlet


def outcome(payload: bytes) -> Result:
    """The body says what becomes of a message; its MSH stays as it is."""
    head, _, body = payload.partition(b"\r")
    if body.startswith(b"bad"):
        return Refused(Reason.MALFORMED, "PID-3", "parse")
    if body.startswith(b"leave"):
        return Suppressed()
    return Processed(head + b"\rclean " + body)


class Hl7Executor(ChoosyExecutor):
    """Finishes every message in the next turn of the loop, but those whose body begins with ``hold``."""

    def submit(self, record: Record, done: Done) -> None:
        if record.payload.partition(b"\r")[2].startswith(b"hold"):
            super().submit(record, done)
        else:
            asyncio.get_running_loop().call_soon(done, record, Completed(outcome(record.payload)))

    def release(self) -> None:
        """Finish what was held."""
        while self.pending:
            self.finish(0, outcome(self.pending[0][0].payload))


class Agent:
    """Runs from ``start`` to ``stop``."""

    def __init__(self, outlet: Outlet, letters: Path, settings: ListenSettings, **limits: float) -> None:
        self.telemetry = Recording()
        self.executor = Hl7Executor()
        self.transport = MllpTransport(settings, outlet, letters, telemetry=self.telemetry)
        wanted = {"linger_s": 0.0, "drain_s": 2.0, "retry_first_s": 0.01, "retry_most_s": 0.02} | limits
        self.runner = Runner(
            self.transport,
            self.executor,
            NoAudit(),
            RunnerSettings(**wanted),  # type: ignore[arg-type]
            telemetry=self.telemetry,
        )
        self._running: asyncio.Task[None] | None = None
        self._peers: list[Peer] = []

    async def start(self) -> "Agent":
        self._running = asyncio.create_task(self.runner.run())
        await until(lambda: self.transport._server._listening is not None or self._done)
        if self._done:
            await self._running
        return self

    @property
    def _done(self) -> bool:
        return self._running is not None and self._running.done()

    async def peer(self, **options: object) -> Peer:
        self._peers.append(await Peer.to(self.transport.port, **options))
        return self._peers[-1]

    async def end(self) -> None:
        """However it stands; the peers too."""
        with contextlib.suppress(Exception):
            await self.stop()
        for peer in self._peers:
            peer.reset()
            await peer.close()

    async def stop(self) -> None:
        self.runner.request_stop()
        if self._running is not None:
            async with asyncio.timeout(PATIENCE_S):
                await self._running


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds; ``TimeoutError`` where it does not."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  the other side tells nobody
            await asyncio.sleep(0.005)
