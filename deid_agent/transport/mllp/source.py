"""The MLLP transport: receives HL7 v2 over MLLP and acknowledges a message (AA) only once its output is durable.

The agent stores nothing. Until a message is in the sink or among the dead letters it belongs to its sender, who has no
acknowledgment and sends it again. A crash therefore loses nothing, and a message that was delivered but not
acknowledged arrives twice. When a connection closes, its uncommitted messages are dropped: otherwise they would be
delivered after the messages that the sender sends over its next connection. An old discharge after a new admission
causes harm.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from deid_agent.agent import UNSEALED, AssignmentListener, DeadLetterSealer, FinishedRecord, Partition, Record
from deid_agent.config import FailureReply, MllpSettings
from deid_agent.model import AssignmentLostError, ConfigurationError, TransientError, UncertainCommitError, UnsafeError
from deid_agent.telemetry import Telemetry
from deid_agent.transport.folder.dead_letters import stage_dead_letter
from deid_agent.transport.folder.files import StagedFiles
from deid_agent.transport.mllp.connection import ConnectionSlot, ReplyQueue
from deid_agent.transport.mllp.listener import MllpServer
from deid_agent.transport.mllp.numbers import SequenceNumbers, numbers_file
from deid_agent.transport.mllp.protocol import AckResult, RefusalCode
from deid_agent.transport.sinks import Sink
from deid_agent.transport.waiting import take_or_wait


class MllpTransport:
    """Implements ``Transport`` and ``KnowsLag``. Its partitions are connection slots, all assigned from the start.

    Outputs go to ``sink``; refused messages go to the folder ``settings.dead_letters``, built by ``sealer``. If a
    connection closes with uncommitted messages, its partition is revoked and assigned again.
    """

    def __init__(
        self,
        settings: MllpSettings,
        sink: Sink,
        *,
        sealer: DeadLetterSealer = UNSEALED,
        telemetry: Telemetry | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._dead_letters = settings.dead_letters.absolute()
        self._sealer = sealer
        self._wakeup = asyncio.Event()
        self._server = MllpServer(settings, telemetry or Telemetry(), self._wakeup.set, self._connection_closed, clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="letters")
        self._state = numbers_file(settings)
        self._numbers: SequenceNumbers | None = None
        self._listener: AssignmentListener | None = None
        self._turn = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"MllpTransport({self._settings.host}:{self.port} -> {self._sink!r})"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    async def start(self, listener: AssignmentListener) -> None:
        """Start the sink, then listen. Raises ``ConfigurationError`` if either fails."""
        try:
            self._dead_letters.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(f"mllp.dead_letters: {self._dead_letters}: {error.strerror}") from None
        await self._sink.start()
        self._listener = listener
        await listener.assigned([slot.stream for slot in self._server.slots])
        await self._server.start()
        # Before the loop runs again, so before a connection is served.
        try:
            self._numbers = SequenceNumbers(self._state, len(self._server.slots))
        except ConfigurationError:
            await self._server.stop(lambda *_: None)
            raise
        for slot in self._server.slots:
            slot.count_from(self._numbers.next(slot.stream.number))

    async def poll(self, limit: int) -> Sequence[Record]:
        """See ``Transport.poll``."""
        return await take_or_wait(lambda: self._next(limit), self._wakeup, lambda: self._stopped)

    def _next(self, limit: int) -> list[Record]:
        """Records of all slots. Each call begins with another slot."""
        slots, found = self._server.slots, list[Record]()
        self._turn = (self._turn + 1) % len(slots)
        for slot in (*slots[self._turn :], *slots[: self._turn]):
            found += slot.get(limit - len(found))
        return found

    def pause(self, stream: Partition) -> None:
        """See ``Transport.pause``. A connection is no longer read once it has sent as much as it may."""
        self._server.slots[stream.number].paused = True

    def resume(self, stream: Partition) -> None:
        """See ``Transport.resume``."""
        self._server.slots[stream.number].paused = False
        self._wakeup.set()

    async def commit(self, stream: Partition, batch: Sequence[FinishedRecord], position: int) -> None:
        """See ``Transport.commit``. Each record is made durable and acknowledged before the next one.

        Records that were committed before an error are not committed again when the call is repeated.
        """
        slot = self._server.slots[stream.number]
        if any(item.record.coordinates.stream != stream for item in batch):
            raise UnsafeError(f"{stream}: a batch up to {position} holds another's records")
        # A number may have gone to another message since: the record itself must be the one that was taken.
        ours = [item for item in batch if slot.taken.get(item.record.coordinates.offset) is item.record]
        if ours and self._numbers is not None:
            _require_connection(slot, ours[0].record)
            await self._numbers.use(stream.number, ours[-1].record.coordinates.offset)
        for item in ours:
            at = item.record.coordinates.offset
            replies = _require_connection(slot, item.record)
            try:
                await self._store(item)
            except TransientError as error:
                if isinstance(error, UncertainCommitError):
                    slot.uncertain = at
                if replies.leaving or time.monotonic() - (replies.since(at) or 0.0) >= self._settings.answer_s:
                    self._fail_connection(slot, replies, RefusalCode.SINK)
                    raise AssignmentLostError(f"{error}; its sender was informed") from None
                raise
            except asyncio.CancelledError:
                slot.uncertain = at
                raise
            slot.taken.pop(at, None)
            if item.dead_letter is None:
                replies.answer(at, AckResult.ACCEPT)
            else:
                refused = AckResult(self._settings.refused[1])
                replies.answer(at, refused, "" if refused is AckResult.ACCEPT else item.dead_letter.reason)

    async def _store(self, item: FinishedRecord) -> None:
        """Make one record durable."""
        if item.output is not None:
            await self._sink.deliver(item.record, item.output)
        elif item.dead_letter is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._write, item)
            except OSError as error:
                raise UnsafeError(
                    f"mllp.dead_letters: writing to the folder failed ({error.strerror}): fix it and start again; "
                    "nothing was lost"
                ) from None

    def _write(self, item: FinishedRecord) -> None:
        if item.dead_letter is None:
            return
        staged = StagedFiles()
        try:
            stage_dead_letter(staged, self._dead_letters, self._sealer, item.record, item.dead_letter)
            staged.publish()
        finally:
            staged.discard()

    def lag(self, stream: Partition) -> int | None:
        """See ``KnowsLag.lag``."""
        return self._server.slots[stream.number].lag

    @property
    def exhausted(self) -> bool:
        """Never: a sender may connect at any time."""
        return False

    async def stop(self) -> None:
        """See ``Transport.stop``. Senders that wait are informed that nothing was done, unless a message may have been
        delivered.
        """
        if self._stopped:
            return
        self._stopped = True
        self._wakeup.set()
        try:
            await self._server.stop(lambda slot, replies: self._fail_connection(slot, replies, RefusalCode.STOPPING))
        finally:
            self._thread.shutdown(wait=False)
            if self._numbers is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._numbers.close)
            async with asyncio.timeout(5.0):
                await self._sink.stop()

    def _fail_connection(self, slot: ConnectionSlot, replies: ReplyQueue, why: RefusalCode) -> None:
        """Commit nothing more of this connection and report that to its sender.

        Sends nothing if a message may have been delivered.
        """
        if slot.uncertain in slot.taken or self._settings.trouble is FailureReply.CLOSE:
            replies.end()
        else:
            replies.fail(why)

    async def _connection_closed(self, slot: ConnectionSlot) -> None:
        """After a connection closed, drop its uncommitted messages: they must not follow what its sender sends next."""
        slot.clear()
        slot.replies = None
        if self._stopped or self._listener is None or self._numbers is None:
            return
        if not slot.taken:
            slot.count_from(self._numbers.next(slot.stream.number))
            return
        slot.reassigning = True
        await self._listener.revoked([slot.stream])
        slot.taken.clear()
        slot.count_from(self._numbers.next(slot.stream.number))
        slot.uncertain, slot.paused = -1, False
        await self._listener.assigned([slot.stream])
        slot.reassigning = False


def _require_connection(slot: ConnectionSlot, record: Record) -> ReplyQueue:
    """The acknowledgments of the connection that this record came from. Raises ``AssignmentLostError`` if it closed."""
    replies = slot.replies
    if replies is None or replies.closed or slot.taken.get(record.coordinates.offset) is not record:
        raise AssignmentLostError(f"MLLP: {record.coordinates}: its connection is closed; its sender still has it")
    return replies
