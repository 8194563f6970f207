"""The run of one job: each line of its files is a record of one slot, in order, and its result a line of an output.

A refused line is one error of the job. A file that cannot be read to its end is one error too, and has no output: a
client would take the part for the whole.
"""

import asyncio
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from deid_agent.agent import FinishedRecord, Request, Task
from deid_agent.http.service_access import Bucket
from deid_agent.http.service_bodies import LineSplitter, result_of
from deid_agent.http.service_errors import ServiceError, operation_outcome
from deid_agent.http.service_job_fetch import InputOpener, finish_in_thread
from deid_agent.http.service_job_files import JobFile
from deid_agent.http.service_job_inputs import InputRules, JobInput
from deid_agent.model import Reason
from deid_agent.transport import RequestSlot

_FIRST_MEMBER: Final = re.compile(rb'\s*\{\s*"resourceType"\s*:\s*"([A-Za-z]{1,64})"')
_GZIP: Final = b"\x1f\x8b"
_AHEAD: Final = 64
_AHEAD_BYTES: Final = 8 << 20
"""Lines and bytes without a result. Few, because requests of other clients wait behind them."""


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobOutput:
    """A finished file, by its number."""

    number: int
    type: str
    count: int


@dataclass(slots=True)
class ServiceJob:
    """One job of a client. ``code_key`` is the key of its link codes, and empty after its end.

    Only a job with files has ``inputs``. ``request`` is the address of its kick-off.
    """

    id: str
    project: str
    client: str
    request: str
    begun: datetime
    folder: Path
    inputs: Sequence[JobInput] = ()
    code_key: bytes = field(default=b"", repr=False)
    state: JobState = JobState.WAITING
    file: int = 0
    lines: int = 0
    refused: int = 0
    outputs: list[JobOutput] = field(default_factory=list)
    errors: JobOutput | None = None
    failure: ServiceError | None = None
    expires: datetime | None = None

    @property
    def progress(self) -> str:
        """A few words for a person."""
        if self.state is JobState.WAITING or not self.inputs:
            return self.state
        return f"file {self.file} of {len(self.inputs)}, {self.lines} lines"


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run: of a line, of all files, and of the refused lines of a file."""

    line_bytes: int
    job_bytes: int
    errors: int


@dataclass(frozen=True, slots=True)
class _Pending:
    """A line without a result: a record in process, or an error."""

    number: int
    size: int
    answer: "asyncio.Future[FinishedRecord] | ServiceError"

    @property
    def ready(self) -> bool:
        return isinstance(self.answer, ServiceError) or self.answer.done()


@dataclass(slots=True)
class JobRun:
    """Runs a job in a slot. Methods raise ``OSError`` if an output cannot be written.

    They raise ``TransientError`` if the agent leaves: then the job has no result.
    """

    job: ServiceJob
    slot: RequestSlot
    bucket: Bucket
    limits: RunLimits
    left: int = field(init=False)
    """Bytes that the files may still have."""
    _errors: JobFile = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limits.job_bytes
        self._errors = self._make_file(max(1, len(self.job.inputs)) + 1)

    def _make_file(self, number: int) -> JobFile:
        return JobFile(self.job.folder / f"{number}.ndjson")

    async def run_files(self, opener: InputOpener, rules: InputRules) -> None:
        """Process all files, one after another."""
        for number, item in enumerate(self.job.inputs, 1):
            self.job.file = number
            output = self._make_file(number)
            try:
                async with opener.open(item, rules, self.left) as chunks:
                    await _FileRun(self, number, item, output).run(chunks)
                await self._publish(output, number, item.type)
            except ServiceError as error:
                self.refuse(error, number)
            finally:
                await finish_in_thread(output.discard)

    async def run_resource(self, payload: bytes) -> None:
        """Process the resource of a kick-off, in Parameters or alone."""
        output = self._make_file(1)
        try:
            request = Request(self.job.client, Task.RESOURCE, self.job.code_key)
            line = _one_line(result_of(await self.slot.submit(payload, request)))
            output.add(line)
            self.job.lines = 1
            await self._publish(output, 1, _type_of(line))
        except ServiceError as error:
            self.refuse(error)
        finally:
            output.discard()

    def refuse(self, error: ServiceError, file: int = 0, line: int = 0) -> None:
        """Add an error of a file or of a line to those of the job."""
        self.job.refused += 1
        self._errors.add(operation_outcome(error, line, file).data)

    async def write(self, output: JobFile) -> None:
        """Write the lines of an output and the errors, once they are many."""
        for each in (output, self._errors):
            if each.is_full:
                await finish_in_thread(each.write)

    async def _publish(self, output: JobFile, number: int, type_: str) -> None:
        if output.count:
            await finish_in_thread(output.finish)
            self.job.outputs.append(JobOutput(number, type_, output.count))

    async def finish(self) -> None:
        """Make the errors durable. The job is done."""
        if self._errors.count:
            await finish_in_thread(self._errors.finish)
            number = max(1, len(self.job.inputs)) + 1
            self.job.errors = JobOutput(number, "OperationOutcome", self._errors.count)

    def close(self) -> None:
        """Close the file of errors, if it is not finished."""
        self._errors.discard()


def _one_line(result: bytes) -> bytes:
    if b"\n" in result:
        raise ServiceError("INTERNAL")
    return result.removeprefix(BOM_UTF8)  # an output is not the file that came: many readers take no byte order mark


def _type_of(line: bytes) -> str:
    """The type of a sanitized resource."""
    found = _FIRST_MEMBER.match(line)
    return found[1].decode() if found else str(orjson.loads(line)["resourceType"])


@dataclass(slots=True)
class _FileRun:
    """Processes the lines of one file, a bounded number at once."""

    whole: JobRun
    number: int
    item: JobInput
    output: JobFile
    _pending: deque[_Pending] = field(default_factory=deque)
    _ahead: int = 0
    _line: int = 0
    _refused: int = 0

    async def run(self, chunks: AsyncIterator[bytes]) -> None:
        """Process the file. Raises ``ServiceError`` if it has no output."""
        try:
            await self._run(chunks)
        except ServiceError:
            # Else the lines of many files that fail at once would wait in the slot, and in memory.
            waiting = [each.answer for each in self._pending if not isinstance(each.answer, ServiceError)]
            await asyncio.gather(*waiting, return_exceptions=True)
            raise

    async def _run(self, chunks: AsyncIterator[bytes]) -> None:
        splitter, first = LineSplitter(self.whole.limits.line_bytes), True
        async for chunk in chunks:
            if first and chunk.startswith(_GZIP):  # thousands of errors for lines that are none would hide the reason
                raise ServiceError("FILE_ENCODING")
            first = False
            self.whole.left -= len(chunk)
            for line in splitter.feed(chunk):
                self._line += 1
                if line is None or line.strip():
                    await self._put(line)
        for line in splitter.end():
            self._line += 1
            if line is None or line.strip():
                await self._put(line)
        while self._pending:
            await self._take()

    async def _put(self, line: bytes | None) -> None:
        await self.whole.bucket.wait()
        slot, job = self.whole.slot, self.whole.job
        if line is None:
            self._pending.append(_Pending(self._line, 0, ServiceError(Reason.RESOURCE.value)))
        else:
            await slot.running.wait()
            request = Request(job.client, f"{Task.LINE} {self.item.type}", job.code_key)
            self._pending.append(_Pending(self._line, len(line), slot.submit(line, request)))
            self._ahead += len(line)
        while self._pending and (len(self._pending) >= _AHEAD or self._ahead >= _AHEAD_BYTES or self._pending[0].ready):
            await self._take()

    async def _take(self) -> None:
        item = self._pending.popleft()
        self._ahead -= item.size
        try:
            if isinstance(item.answer, ServiceError):
                raise item.answer
            line = _one_line(result_of(await item.answer))
        except ServiceError as error:
            self._refused += 1
            self.whole.refuse(error, self.number, item.number)
            if self._refused > self.whole.limits.errors:
                raise ServiceError("FILE_ERRORS") from None
        else:
            self.output.add(line)
        self.whole.job.lines += 1
        await self.whole.write(self.output)
