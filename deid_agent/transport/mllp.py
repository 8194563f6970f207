"""The MLLP transport: HL7 v2 comes over MLLP, and its sender is told AA when it is safe elsewhere, not before.

Nothing is kept here: until a message stands at the outlet or among the dead letters it is its sender's, who
has no answer and sends again. So whoever dies meanwhile, nothing is lost, and what was delivered but not answered
comes twice. A connection that goes away takes its unsettled messages along: they would come late, behind what its
sender sends over the next one, and an old discharge behind a new admission does harm.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from deid_agent.agent.letterhead import PLAIN, Keeper
from deid_agent.agent.ports import Listener, Partition, Record, Settled
from deid_agent.errors import ConfigurationError, DoubtError, LostError, TransientError, UnsafeError
from deid_agent.telemetry.emit import Telemetry
from deid_agent.transport.folder_letters import stage_letter
from deid_agent.transport.folders import Staged
from deid_agent.transport.mllp_ack import Verdict, Why
from deid_agent.transport.mllp_lane import Lane, Line
from deid_agent.transport.mllp_listener import MllpServer
from deid_agent.transport.mllp_settings import ListenSettings, Trouble
from deid_agent.transport.outlet import Outlet

_POLL_S: Final = 0.5


class MllpTransport:
    """Implements ``Transport`` and ``KnowsLag``. Partitions are places for a connection, all ours from the start.

    Outputs go to ``outlet``, refused messages into the folder ``letters``, made by ``keeper``. Where a connection
    goes with messages unsettled, its partition is given up and taken anew.
    """

    def __init__(
        self,
        settings: ListenSettings,
        outlet: Outlet,
        letters: Path,
        *,
        keeper: Keeper = PLAIN,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._settings = settings
        self._outlet = outlet
        self._letters = letters.absolute()
        self._keeper = keeper
        self._woken = asyncio.Event()
        self._server = MllpServer(settings, telemetry or Telemetry(), self._woken.set, self._gone)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="letters")
        self._listener: Listener | None = None
        self._turn = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"MllpTransport({self._settings.host}:{self.port} -> {self._outlet!r})"

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.port

    async def start(self, listener: Listener) -> None:
        """Make the outlet ready, then listen. Raises ``ConfigurationError`` where either cannot be."""
        try:
            self._letters.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(f"mllp.dead_letters: {self._letters}: {error.strerror}") from None
        await self._outlet.start()
        self._listener = listener
        await listener.assigned([lane.stream for lane in self._server.lanes])
        await self._server.start()

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``."""
        found = self._next(limit)
        if not found and not self._stopped:
            self._woken.clear()
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            found = self._next(limit)
        return found

    def _next(self, limit: int) -> list[Record]:
        """Records of all lanes; each time another one is asked first."""
        lanes, found = self._server.lanes, list[Record]()
        self._turn = (self._turn + 1) % len(lanes)
        for lane in (*lanes[self._turn :], *lanes[: self._turn]):
            found += lane.get(limit - len(found))
        return found

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``; once a connection has sent what it may, it is not read either."""
        self._server.lanes[stream.number].paused = True

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._server.lanes[stream.number].paused = False
        self._woken.set()

    async def settle(self, stream: Partition, batch: Sequence[Settled], position: int) -> None:
        """See ``Transport.settle``. Each record is made durable, then answered, then comes the next.

        What was settled before an error is not settled again when the call is repeated.
        """
        lane = self._server.lanes[stream.number]
        if any(item.record.coordinates.stream != stream for item in batch):
            raise UnsafeError(f"{stream.topic}/{stream.number}: a batch up to {position} holds another's records")
        for item in batch:
            at = item.record.coordinates.offset
            if at not in lane.taken:
                continue
            line = lane.line
            if line is None or line.over:
                raise LostError(f"MLLP: {item.record.coordinates}: its connection has gone; its sender has it")
            try:
                await self._keep(item)
            except TransientError as error:
                if isinstance(error, DoubtError):
                    lane.doubtful = at
                if line.leaving or time.monotonic() - (line.since(at) or 0.0) >= self._settings.answer_s:
                    self._leave(lane, line, Why.OUTLET)
                    raise LostError(f"{error}; its sender was told") from None
                raise
            except asyncio.CancelledError:
                lane.doubtful = at
                raise
            lane.taken.discard(at)
            if item.letter is None:
                line.answer(at, Verdict.ACCEPT)
            else:
                refused = self._settings.refused
                line.answer(at, refused, "" if refused is Verdict.ACCEPT else item.letter.reason)

    async def _keep(self, item: Settled) -> None:
        """Make one record durable."""
        if item.output is not None:
            await self._outlet.deliver(item.record, item.output)
        elif item.letter is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._write, item)
            except OSError as error:
                raise UnsafeError(
                    f"mllp.dead_letters: the folder fails ({error.strerror}): mend it and start again; nothing was lost"
                ) from None

    def _write(self, item: Settled) -> None:
        if item.letter is None:
            return
        staged = Staged()
        try:
            stage_letter(staged, self._letters, self._keeper, item.record, item.letter)
            staged.show()
        finally:
            staged.drop()

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        return self._server.lanes[stream.number].lag

    @property
    def exhausted(self) -> bool:
        """Never: a sender may come at any time."""
        return False

    async def stop(self) -> None:
        """See ``Transport.stop``: whoever waits for an answer is told that nothing was done, where that is so."""
        if self._stopped:
            return
        self._stopped = True
        self._woken.set()
        try:
            await self._server.stop(lambda lane, line: self._leave(lane, line, Why.STOPPING))
        finally:
            self._thread.shutdown(wait=False)
            async with asyncio.timeout(5.0):
                await self._outlet.stop()

    def _leave(self, lane: Lane, line: Line, why: Why) -> None:
        """Settle nothing more of this connection and tell it so; say nothing where a message may have been taken."""
        if lane.doubtful in lane.taken or self._settings.trouble is Trouble.CLOSE:
            line.end()
        else:
            line.fail(why)

    async def _gone(self, lane: Lane) -> None:
        """A connection has gone: what it left unsettled must not come to stand behind what its sender sends next."""
        lane.clear()
        lane.line = None
        if not lane.taken or self._stopped or self._listener is None:
            return
        lane.dealing = True
        await self._listener.revoked([lane.stream])
        lane.taken.clear()
        lane.doubtful, lane.paused = -1, False
        await self._listener.assigned([lane.stream])
        lane.dealing = False
