"""The jobs of the HTTP interface: who has which, how many run, and when their files are removed.

Nothing of a job outlives the agent: after a restart its address is not found, and its files are gone.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from deid_agent.http.service_access import Bucket
from deid_agent.http.service_errors import ServiceError
from deid_agent.http.service_job_fetch import InputOpener
from deid_agent.http.service_job_files import JobFolder, remove_job
from deid_agent.http.service_job_inputs import InputRules, JobInput
from deid_agent.http.service_job_runs import JobRun, JobState, RunLimits, ServiceJob
from deid_agent.model import TransientError, describe_exception
from deid_agent.telemetry import ServiceJobEnded, Telemetry, Uncaught
from deid_agent.transport import RequestSlot

_MOST_JOBS: Final = 1000
"""Of all clients: those of another server's tokens have no list here."""
_MOST_KEYS: Final = 1000
_KEY_S: Final = 86_400.0
_SLOT_WAIT_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of jobs. ``seconds`` is the longest time of a job, and then the time that its files are kept."""

    run: RunLimits
    per_client: int = 4
    running: int = 4
    files: int = 100
    seconds: float = _KEY_S


@dataclass(frozen=True, slots=True)
class KickOff:
    """A request for a job. ``key`` is its ``Idempotency-Key``; ``digest`` is that of its body, if there is a key."""

    client: str
    project: str
    request: str
    key: str = field(default="", repr=False)
    digest: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class _UsedKey:
    job: str
    digest: bytes = field(repr=False)
    until: float


class ServiceJobs:
    """All jobs of an agent. ``claim`` gives a slot of a project, or None if all are in use."""

    def __init__(
        self,
        folder: JobFolder,
        rules: Mapping[str, InputRules],
        limits: JobLimits,
        opener: InputOpener,
        claim: Callable[[str], RequestSlot | None],
        bucket: Callable[[str], Bucket],
        telemetry: Telemetry,
    ) -> None:
        self.rules = rules
        self.limits = limits
        self._folder = folder
        self._opener = opener
        self._claim = claim
        self._bucket = bucket
        self._telemetry = telemetry
        self._jobs: dict[str, ServiceJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keys: dict[tuple[str, str, bytes], _UsedKey] = {}
        self._secret = secrets.token_bytes(32)
        self._turns = asyncio.Semaphore(limits.running)
        self._turns_of: dict[str, asyncio.Semaphore] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def find(self, id_: str, project: str, client: str) -> ServiceJob:
        """A job of a client. Raises ``ServiceError(NOT_FOUND)``, also for that of another one."""
        job = self._jobs.get(id_)
        if job is None or (job.project, job.client) != (project, client):
            raise ServiceError("NOT_FOUND")
        return job

    def digest(self, data: bytes) -> bytes:
        """A digest for comparisons in this process. It is keyed: a body may be a guess of a value."""
        return hashlib.blake2b(data, key=self._secret, digest_size=32).digest()

    def known(self, call: KickOff) -> str | None:
        """The id of the job that this kick-off has already made. It may have been deleted.

        Raises ``ServiceError`` if the key was used for another body, or if the client used too many.
        """
        if not call.key:
            return None
        now = time.monotonic()
        for name in [name for name, used in self._keys.items() if used.until < now]:
            del self._keys[name]
        used = self._keys.get(self._name(call))
        if used is None:
            if sum(client == call.client for client, _, _ in self._keys) >= _MOST_KEYS:
                raise ServiceError("JOBS", headers={"Retry-After": "3600"})
            return None
        if used.digest != call.digest:
            raise ServiceError("IDEMPOTENCY")
        return used.job

    def _name(self, call: KickOff) -> tuple[str, str, bytes]:
        return call.client, call.project, self.digest(call.key.encode("utf-8", "surrogateescape"))

    def start_files(self, call: KickOff, inputs: Sequence[JobInput]) -> ServiceJob:
        """Start a job that reads files. Raises ``ServiceError``."""
        job = self._make(call, inputs)
        self._launch(job, self._run_files(job))
        return job

    def start_resource(self, call: KickOff, payload: bytes, release: Callable[[], None]) -> ServiceJob:
        """Start a job for a resource in a request. ``release`` is called once its bytes are no longer held.

        It runs at once: a resource that waited for the files of other jobs would keep its bytes in memory for hours.
        Raises ``ServiceError``.
        """
        slot = self._claim(call.project)
        if slot is None:
            raise ServiceError("BUSY", headers={"Retry-After": "1"})
        try:
            job = self._make(call, ())
        except ServiceError:
            slot.release()
            raise
        self._launch(job, self._run_resource(job, slot, payload), release)
        return job

    def _make(self, call: KickOff, inputs: Sequence[JobInput]) -> ServiceJob:
        ours = sum(job.client == call.client for job in self._jobs.values())
        if ours >= self.limits.per_client or len(self._jobs) >= _MOST_JOBS:
            raise ServiceError("JOBS", headers={"Retry-After": "60"})
        try:
            folder = self._folder.make()
        except OSError:
            raise ServiceError("STORAGE") from None
        key = secrets.token_bytes(32) if self.rules[call.project].common_codes else b""
        begun = datetime.now(UTC)
        job = ServiceJob(folder.name, call.project, call.client, call.request, begun, folder, tuple(inputs), key)
        self._jobs[job.id] = job
        if call.key:
            self._keys[self._name(call)] = _UsedKey(job.id, call.digest, time.monotonic() + _KEY_S)
        return job

    def _launch(
        self, job: ServiceJob, work: Coroutine[None, None, None], release: Callable[[], None] = lambda: None
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(job, work))
        self._tasks[job.id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            # A task that is cancelled before its first step runs none of its code.
            work.close()
            release()
            self._tasks.pop(job.id, None)
            self._end(job)

        task.add_done_callback(ended)

    async def _guard(self, job: ServiceJob, work: Coroutine[None, None, None]) -> None:
        """Run a job to its end; every failure is a closed code."""
        try:
            await work
            job.state = JobState.DONE
        except ServiceError as error:
            job.failure = error
        except TimeoutError:
            job.failure = ServiceError("JOB_TIME")
        except TransientError:
            job.failure = ServiceError("UNAVAILABLE")
        except OSError as error:
            self._telemetry.emit(Uncaught("service job", describe_exception(error)))
            job.failure = ServiceError("STORAGE")
        except Exception as error:  # noqa: BLE001 - the text of an unexpected exception may quote a message
            self._telemetry.emit(Uncaught("service job", describe_exception(error)))
            job.failure = ServiceError("INTERNAL")

    async def _run_files(self, job: ServiceJob) -> None:
        deadline = self._deadline()
        # First the turn of the client, which may use half of all: a slow server of one must not stop the others.
        own = self._turns_of.setdefault(job.client, asyncio.Semaphore(max(1, self.limits.running // 2)))
        async with AsyncExitStack() as turns:
            async with asyncio.timeout_at(deadline):
                await turns.enter_async_context(own)
                await turns.enter_async_context(self._turns)
                while (slot := self._claim(job.project)) is None:  # noqa: ASYNC110 - a free slot is not signalled
                    await asyncio.sleep(_SLOT_WAIT_S)
            rules = self.rules[job.project]
            await self._run(job, slot, lambda run: run.run_files(self._opener, rules), deadline)

    async def _run_resource(self, job: ServiceJob, slot: RequestSlot, payload: bytes) -> None:
        await self._run(job, slot, lambda run: run.run_resource(payload), self._deadline())

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.limits.seconds

    async def _run(
        self,
        job: ServiceJob,
        slot: RequestSlot,
        work: Callable[[JobRun], Coroutine[None, None, None]],
        deadline: float,
    ) -> None:
        job.state = JobState.RUNNING
        try:
            run = JobRun(job, slot, self._bucket(job.client), self.limits.run)
            try:
                try:
                    async with asyncio.timeout_at(deadline):
                        await work(run)
                except TimeoutError:  # the outputs that are complete are kept
                    run.refuse(ServiceError("JOB_TIME"), job.file)
                await run.finish()
            finally:
                run.close()
        finally:
            slot.release()

    def _end(self, job: ServiceJob) -> None:
        """The job has ended: its codes die with its key, and its files expire."""
        job.code_key = b""
        if job.state is not JobState.DONE:
            job.state = JobState.CANCELLED if job.failure is None else JobState.FAILED
        seconds = (datetime.now(UTC) - job.begun).total_seconds()
        self._telemetry.emit(
            ServiceJobEnded(
                job.project, job.client, job.state, max(1, len(job.inputs)), job.lines, job.refused, seconds
            )
        )
        job.expires = datetime.now(UTC) + timedelta(seconds=self.limits.seconds)
        if job.state is not JobState.DONE:
            # Its files have no reader: on a full disk they would keep the space for hours.
            self._clear(job)
        if job.id in self._jobs:
            loop = asyncio.get_running_loop()
            self._timers[job.id] = loop.call_later(self.limits.seconds, self.remove, job)
        elif job.state is JobState.DONE:
            self._clear(job)

    def remove(self, job: ServiceJob) -> None:
        """Cancel a job if it runs, and remove its files. From now on it is not found."""
        self._jobs.pop(job.id, None)
        if (timer := self._timers.pop(job.id, None)) is not None:
            timer.cancel()
        if (task := self._tasks.get(job.id)) is not None:
            task.cancel()
        else:
            self._clear(job)

    def _clear(self, job: ServiceJob) -> None:
        """Remove the files of a job in a thread: to remove large files takes time."""
        asyncio.get_running_loop().run_in_executor(None, remove_job, job.folder)

    async def close(self) -> None:
        """Cancel all jobs and remove all files."""
        tasks = list(self._tasks.values())
        for job in list(self._jobs.values()):
            self.remove(job)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._folder.close()
