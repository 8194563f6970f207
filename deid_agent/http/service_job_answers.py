"""The requests about jobs: kick-off, status, manifest, files and deletion, as FHIR Bulk Data Access has them."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from deid_agent.http.service_errors import FHIR_JSON, ServiceError, choose_media
from deid_agent.http.service_job_fetch import finish_in_thread
from deid_agent.http.service_job_inputs import FORMAT, read_file_call
from deid_agent.http.service_job_runs import JobOutput, JobState, ServiceJob
from deid_agent.http.service_jobs import KickOff, ServiceJobs
from deid_agent.http.service_routes import JSON, ND_JSON
from deid_agent.http.service_server import ServiceConnection

_ND: Final = "application/fhir+ndjson"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
_CHUNK: Final = 1 << 16
_MOST_WAIT_S: Final = 60


class JobAnswers:
    """Answers requests about jobs. ``base_url`` is the address of the interface, None for that of each request.

    ``requires_token``: clients need a token to read files too. ``idle_s`` is the longest time in which a client must
    read some of a file.
    """

    def __init__(self, jobs: ServiceJobs, *, base_url: str | None, requires_token: bool, idle_s: float) -> None:
        self._jobs = jobs
        self._base_url = base_url
        self._requires_token = requires_token
        self._idle_s = idle_s

    async def kick_off(
        self, request: web.Request, project: str, client: str, payload: bytes, hold: Callable[[], Callable[[], None]]
    ) -> web.Response | None:
        """The answer to a call of ``$de-identify`` that begins a job; None if it is to be answered at once.

        ``hold`` keeps the bytes of the body counted, and returns the function that ends that. Raises ``ServiceError``.
        """
        rules = self._jobs.rules.get(project)
        if rules is None:
            return None
        inputs = read_file_call(payload, rules, self._jobs.limits.files)
        if inputs is None and not _prefers_async(request):
            return None
        call = await self._read_call(request, project, client, payload)
        id_ = self._jobs.known(call)
        if id_ is None:
            if inputs is not None:
                id_ = self._jobs.start_files(call, inputs).id
            else:
                id_ = self._start_resource(call, payload, hold)
        headers = {"Content-Location": f"{self._base(request)}/fhir/{project}/jobs/{id_}"}
        if _prefers_async(request):
            headers["Preference-Applied"] = "respond-async"
        return web.Response(status=202, headers=headers)

    def _start_resource(self, call: KickOff, payload: bytes, hold: Callable[[], Callable[[], None]]) -> str:
        release = hold()
        try:
            return self._jobs.start_resource(call, payload, release).id
        except ServiceError:
            release()
            raise

    async def _read_call(self, request: web.Request, project: str, client: str, payload: bytes) -> KickOff:
        keys = request.headers.getall("Idempotency-Key", [])
        if keys and (len(keys) > 1 or not _KEY.fullmatch(keys[0])):
            raise ServiceError("PARAMETER", "Idempotency-Key")
        url = f"{self._base(request)}/fhir/{project}/$de-identify"
        if not keys:
            return KickOff(client, project, url)
        return KickOff(client, project, url, keys[0], await finish_in_thread(self._jobs.digest, payload))

    async def answer(self, request: web.Request, route: str, project: str, client: str) -> web.StreamResponse:
        """The answer about a job of this client. Raises ``ServiceError``."""
        job = self._jobs.find(request.match_info["job"], project, client)
        match route:
            case "job-delete":
                self._jobs.remove(job)
                return web.Response(status=202)
            case "job-file":
                return await self._send_file(request, job)
            case _:
                return self._report(request, job)

    def _report(self, request: web.Request, job: ServiceJob) -> web.Response:
        media = choose_media(request.headers.getall("Accept", []), (JSON, FHIR_JSON))
        if job.failure is not None:
            raise job.failure
        if job.state is not JobState.DONE or job.expires is None:
            age_s = (datetime.now(UTC) - job.begun).total_seconds()
            wait_s = min(_MOST_WAIT_S, max(1, int(age_s / 4)))
            return web.Response(status=202, headers={"Retry-After": str(wait_s), "X-Progress": job.progress})
        base = f"{self._base(request)}/fhir/{job.project}/jobs/{job.id}"
        body = manifest(job, base, self._requires_token) if media == JSON else out_parameters(job, base)
        expires = format_datetime(job.expires, usegmt=True)
        return web.Response(body=orjson.dumps(body), headers={"Content-Type": media, "Expires": expires})

    async def _send_file(self, request: web.Request, job: ServiceJob) -> web.StreamResponse:
        choose_media(request.headers.getall("Accept", []), ND_JSON)
        outputs = [*job.outputs, *([job.errors] if job.errors is not None else [])]
        number = request.match_info["number"]
        found = next((each for each in outputs if str(each.number) == number), None)
        if found is None or job.state is not JobState.DONE:
            raise ServiceError("NOT_FOUND")
        return await _send(request, job.folder / f"{found.number}.ndjson", self._idle_s)

    def _base(self, request: web.Request) -> str:
        if self._base_url is not None:
            return self._base_url
        # Without the header aiohttp would ask for the name of this machine, which blocks, and reveal it.
        host = request.headers.get("Host", "")
        return f"{request.scheme}://{host}" if _HOST.fullmatch(host) else ""


def manifest(job: ServiceJob, base: str, requires_token: bool) -> dict[str, object]:
    """The manifest of a finished job (Bulk Data Access, Export Response)."""
    return {
        "transactionTime": job.begun.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "request": job.request,
        "requiresAccessToken": requires_token,
        "output": [_item(each, base) for each in job.outputs],
        "error": [_item(each, base) for each in ([job.errors] if job.errors is not None else [])],
    }


def _item(output: JobOutput, base: str) -> dict[str, object]:
    return {"type": output.type, "url": f"{base}/{output.number}.ndjson", "count": output.count}


def out_parameters(job: ServiceJob, base: str) -> dict[str, object]:
    """The output of the operation of DARTS. Files with errors are named in an OperationOutcome."""
    files = [
        {
            "name": "data",
            "part": [
                {"name": "resourceType", "valueCode": each.type},
                {"name": "resourceUrl", "valueUrl": f"{base}/{each.number}.ndjson"},
            ],
        }
        for each in job.outputs
    ]
    urls = {"resourceType": "Parameters", "parameter": [{"name": "format", "valueCode": FORMAT}, *files]}
    items: list[dict[str, object]] = [{"name": "de-identifiedDataFileUrls", "resource": urls}]
    if job.errors is not None:
        text = f"{job.errors.count} files or lines were refused: {base}/{job.errors.number}.ndjson"
        issue = {"severity": "warning", "code": "incomplete", "diagnostics": text}
        items.append({"name": "outcome", "resource": {"resourceType": "OperationOutcome", "issue": [issue]}})
    return {"resourceType": "Parameters", "parameter": items}


def _prefers_async(request: web.Request) -> bool:
    preferences = ",".join(request.headers.getall("Prefer", [])).split(",")
    return "respond-async" in {each.partition(";")[0].strip().lower() for each in preferences}


async def _send(request: web.Request, path: Path, idle_s: float) -> web.StreamResponse:
    """Send a file, as long as the client reads. Raises ``ConnectionError`` if it does not."""
    try:
        file = path.open("rb")
    except OSError:
        raise ServiceError("NOT_FOUND") from None
    with file:
        size = file.seek(0, 2)
        file.seek(0)
        response = web.StreamResponse(headers={"Content-Type": _ND, "Content-Length": str(size)})
        await response.prepare(request)
        while chunk := await finish_in_thread(file.read, _CHUNK):
            try:
                async with asyncio.timeout(idle_s):
                    await response.write(chunk)
                if isinstance(request.protocol, ServiceConnection):
                    request.protocol.quiet_since = asyncio.get_running_loop().time()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the client does not read") from None
        await response.write_eof()
    return response
