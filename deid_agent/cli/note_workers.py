"""De-identifies notes in worker processes, with results in the order of the notes.

The workers are those of the agent: one that dies or hangs is restarted, and the note at which it does so again is
refused as ``POISON``; the others are not affected.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import orjson

from deid_agent.agent import (
    Completed,
    Coordinates,
    Job,
    Process,
    Processed,
    Record,
    Refused,
    Result,
    WorkerPool,
)
from deid_agent.app import WorkerFactory
from deid_agent.cli.note_files import FileNote, NoteStream
from deid_agent.model import PhiType, Span, parse_source
from deid_agent.pipeline import DeidentifiedText, Deidentifier, RefusedText, TextRequest, facts_from_context
from deid_agent.telemetry import Telemetry

_IN_FLIGHT = 64
"""Notes that wait for each worker: enough that it always reads a whole group at once."""

Emit = Callable[[FileNote, DeidentifiedText | RefusedText | None], None]
"""Takes each note with its result; None for a note without a request."""


_Submitted = tuple[FileNote, "asyncio.Future[Completed] | None"]
"""A note, and its result once it is there; None for a note without a request."""


@dataclass(frozen=True, slots=True)
class NoteWorkerFactory:
    """Builds the job callable of a worker for notes."""

    parts: WorkerFactory

    def __call__(self) -> Process:
        """The loaded job callable, a ``BatchProcess``."""
        return NoteRunner(self.parts.deidentifier(notes_only=True))


@dataclass(frozen=True, slots=True)
class NoteRunner:
    """De-identifies notes in the form of jobs."""

    deidentifier: Deidentifier

    def __call__(self, job: Job) -> Result:
        """The result of one note."""
        ((result, _),) = self.process_batch([job])
        return result

    def process_batch(self, jobs: Sequence[Job]) -> list[tuple[Result, float]]:
        """The result of each note, the same as for the note alone, and its share of the time."""
        begin = perf_counter()
        requests = [_decode_request(job.payload) for job in jobs]
        results = [_encode_result(result) for result in self.deidentifier.texts(requests)]
        seconds = perf_counter() - begin
        sizes = [len(request.text) + 1 for request in requests]
        return [(result, seconds * size / sum(sizes)) for result, size in zip(results, sizes, strict=True)]


def _encode_request(note: FileNote, request: TextRequest) -> bytes:
    # surrogatepass: a note may hold half of a surrogate pair, which JSON in UTF-8 cannot
    text = request.text.encode("utf-8", "surrogatepass")
    head = orjson.dumps([request.document, request.patient, dict(note.context)])
    return len(head).to_bytes(4, "big") + head + text


def _decode_request(payload: bytes) -> TextRequest:
    end = 4 + int.from_bytes(payload[:4], "big")
    document, patient, context = orjson.loads(payload[4:end])
    text = payload[end:].decode("utf-8", "surrogatepass")
    return TextRequest(text, document, patient, facts_from_context(context))


def _encode_result(result: DeidentifiedText | RefusedText) -> Result:
    if isinstance(result, RefusedText):
        return Refused(result.reason, result.where, fault=result.detail)
    spans = orjson.dumps([[s.start, s.end, s.type.value, str(s.source)] for s in result.spans])
    return Processed(len(spans).to_bytes(4, "big") + spans + result.text.encode("utf-8", "surrogatepass"))


def _decode_result(result: Result) -> DeidentifiedText | RefusedText | None:
    if isinstance(result, Refused):
        return RefusedText(result.reason, result.where or "text", result.fault)
    if not isinstance(result, Processed):
        return None
    end = 4 + int.from_bytes(result.payload[:4], "big")
    spans = tuple(
        Span(start, stop, PhiType(type_), parse_source(source))
        for start, stop, type_, source in orjson.loads(result.payload[4:end])
    )
    return DeidentifiedText(result.payload[end:].decode("utf-8", "surrogatepass"), spans, ())


def run_in_workers(notes: NoteStream, factory: WorkerFactory, workers: int, emit: Emit) -> None:
    """Pass each note to ``emit`` with its result, in order. Raises what a worker's start or ``emit`` raises."""
    asyncio.run(_run(notes, factory, workers, emit))


async def _run(notes: NoteStream, factory: WorkerFactory, workers: int, emit: Emit) -> None:
    pool = WorkerPool(NoteWorkerFactory(factory), workers, Telemetry())
    waiting: asyncio.Queue[FileNote | Exception | None] = asyncio.Queue()
    submitted: asyncio.Queue[_Submitted | None] = asyncio.Queue()
    room = threading.Semaphore(_IN_FLIGHT * workers)
    loop = asyncio.get_running_loop()
    try:
        await pool.start()
        # A daemon: it may wait for standard input when the command has to end.
        threading.Thread(target=_read_ahead, args=(notes, loop, waiting, room), daemon=True).start()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(pool.serve())
            group.create_task(_submit_all(waiting, submitted, pool))
            while (each := await submitted.get()) is not None:
                note, done = each
                emit(note, None if done is None else _decode_result((await done).result))
                room.release()
            serving.cancel()
    except BaseExceptionGroup as group_error:
        raise _first_error(group_error) from None
    finally:
        await pool.stop()


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _read_ahead(
    notes: NoteStream,
    loop: asyncio.AbstractEventLoop,
    waiting: "asyncio.Queue[FileNote | Exception | None]",
    room: threading.Semaphore,
) -> None:
    """Put the notes into ``waiting`` while there is ``room``, then None; an exception in place of None."""
    end: Exception | None = None
    with suppress(RuntimeError):  # the loop has ended
        try:
            for note in notes:
                if note is not None:
                    room.acquire()
                    loop.call_soon_threadsafe(waiting.put_nowait, note)
        except Exception as error:  # noqa: BLE001 - raised again by the reader of the queue
            end = error
        loop.call_soon_threadsafe(waiting.put_nowait, end)


async def _submit_all(
    waiting: "asyncio.Queue[FileNote | Exception | None]",
    submitted: "asyncio.Queue[_Submitted | None]",
    pool: WorkerPool,
) -> None:
    number = 0
    while (note := await waiting.get()) is not None:
        if isinstance(note, Exception):
            raise note
        submitted.put_nowait((note, _submit(note, number, pool)))
        number += 1
    submitted.put_nowait(None)


def _submit(note: FileNote, number: int, pool: WorkerPool) -> "asyncio.Future[Completed] | None":
    if note.request is None:
        return None
    done: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

    def finish(_: Record, completed: Completed) -> None:
        if not done.done():
            done.set_result(completed)

    pool.submit(Record(Coordinates("notes", 0, number), _encode_request(note, note.request)), finish)
    return done
