"""An agent between our MLLP listener and a sink, on the loop of the test."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from support.audits import NoAudit
from support.executors import ChoosyExecutor
from support.marks import MARKS
from support.mllp_world import PATIENCE_S, Peer
from support.recording import Recording

from deid_agent.agent.job import Completed, Processed, Refused, Result, ResultCallback, Suppressed
from deid_agent.agent.ports import Record
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.config import MllpSettings
from deid_agent.model.errors import Reason
from deid_agent.transport.mllp.source import MllpTransport
from deid_agent.transport.sinks import Sink


def make_settings(dead_letters: Path = Path("dead-letters"), **values: object) -> MllpSettings:
    """A listener on a free port."""
    return MllpSettings.model_validate({"port": 0, "dead_letters": dead_letters, **values})


def outcome(payload: bytes) -> Result:
    """The result for a message, selected by its body; its MSH is unchanged."""
    head, _, body = payload.partition(b"\r")
    if body.startswith(b"bad"):
        return Refused(Reason.MALFORMED, "PID-3", "parse")
    if body.startswith(b"leave"):
        return Suppressed()
    return Processed(head + b"\rclean " + body)


class Hl7Executor(ChoosyExecutor):
    """Finishes every message in the next turn of the loop, except those with a body that begins with ``hold``."""

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        if record.payload.partition(b"\r")[2].startswith(b"hold"):
            super().submit(record, done, project)
        else:
            asyncio.get_running_loop().call_soon(done, record, Completed(outcome(record.payload)))

    def release(self) -> None:
        """Finish the held jobs."""
        while self.pending:
            self.finish(0, outcome(self.pending[0][0].payload))


class Agent:
    """Runs from ``start`` to ``stop``."""

    def __init__(
        self,
        sink: Sink,
        dead_letters: Path,
        settings: MllpSettings,
        clock: Callable[[], float] | None = None,
        **limits: float,
    ) -> None:
        self.telemetry = Recording()
        self.executor = Hl7Executor()
        self.transport = MllpTransport(
            settings.model_copy(update={"dead_letters": dead_letters}), sink, telemetry=self.telemetry, clock=clock
        )
        wanted = {"linger_s": 0.0, "drain_s": 2.0, "retry_first_s": 0.01, "retry_most_s": 0.02} | limits
        self.runner = Runner(
            self.transport,
            self.executor,
            NoAudit(),
            RunnerSettings(**wanted),  # type: ignore[arg-type]
            marks=MARKS,
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
        """Stop the agent in any state, and its peers."""
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
    """Return once the condition holds; ``TimeoutError`` if it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  the other side sends no notification
            await asyncio.sleep(0.005)
