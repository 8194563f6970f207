"""Executors for tests: one whose jobs finish when the test decides, and one that finishes them at once."""

import asyncio

from deid_agent.agent.job import Completed, Job, Processed, Refused, Result, ResultCallback
from deid_agent.agent.ports import Partition, Record
from deid_agent.model.errors import Reason


def clean(record: Record | Job) -> Result:
    """The result of the executors of this module for a record."""
    if record.payload.startswith(b"bad"):
        return Refused(Reason.MALFORMED, "byte 0", "parse")
    return Processed(b"clean " + record.payload, record.key, record.headers)


class ChoosyExecutor:
    """An executor whose jobs wait until ``finish``. With ``deaf``, ``forget`` is ignored, so that late results arrive.

    ``begun`` is the number of waiting jobs that have begun; all of them by default.
    """

    size = 1
    up = 1

    def __init__(self, *, deaf: bool = False, begun: int | None = None) -> None:
        self.pending: list[tuple[Record, ResultCallback]] = []
        self.running = False
        self._deaf = deaf
        self._begun = begun

    @property
    def waiting(self) -> int:
        return len(self.pending)

    async def start(self) -> None:
        self.running = True

    async def serve(self) -> None:
        await asyncio.Event().wait()

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        self.pending.append((record, done))

    def recall(self, stream: Partition) -> int | None:
        if self._begun is None:
            return None
        mine = [item for item in self.pending[self._begun :] if item[0].coordinates.stream == stream]
        self.pending = [item for item in self.pending if item not in mine]
        return min((record.coordinates.offset for record, _ in mine), default=None)

    def forget(self, stream: Partition) -> None:
        if not self._deaf:
            self.pending = [item for item in self.pending if item[0].coordinates.stream != stream]

    async def stop(self) -> None:
        self.running = False

    def finish(self, index: int = 0, result: Result | None = None) -> None:
        """Finish one of the waiting jobs; do nothing if none waits."""
        if self.pending:
            record, done = self.pending.pop(index % len(self.pending))
            done(record, Completed(result or clean(record)))

    def finish_all(self) -> None:
        while self.pending:
            self.finish()


class EagerExecutor(ChoosyExecutor):
    """Every job finishes in the next turn of the loop."""

    def submit(self, record: Record, done: ResultCallback, project: str = "") -> None:
        asyncio.get_running_loop().call_soon(done, record, Completed(clean(record)))
