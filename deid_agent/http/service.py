"""The handlers of the HTTP interface: checks of a request, the way of its body through the agent, and the answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Middleware

from deid_agent.agent import MEDIA_HEADER, FinishedRecord, NoteOption, Request, Task
from deid_agent.http.service_access import Projects, ServiceAccess
from deid_agent.http.service_bodies import BodyReader, Budget, LineStream, result_of
from deid_agent.http.service_errors import (
    FHIR_JSON,
    RECORD_HEADER,
    ErrorBody,
    ServiceError,
    choose_media,
    is_accepted,
    operation_outcome,
    problem,
)
from deid_agent.http.service_job_answers import JobAnswers
from deid_agent.http.service_openapi import capability_statement, openapi
from deid_agent.http.service_routes import (
    FHIR_XML,
    JSON,
    ND_JSON,
    PDF,
    PUBLIC,
    TEXT,
    BodyForm,
    Route,
    is_fhir,
    media_type,
    select_routes,
)
from deid_agent.http.service_server import ServiceConnection
from deid_agent.http.smart_service import MOST_FORM, SmartLogin
from deid_agent.model import TransientError, describe_exception
from deid_agent.telemetry import ServiceAnswered, ServiceDenied, Telemetry, Uncaught
from deid_agent.transport import HttpTransport, RequestSlot

RouteHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_GONE = 499
"""The status in the metrics if the client left, or a stream was cut."""
_DENIALS = frozenset({"LOGIN", "FORBIDDEN", "BROWSER"})


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of requests. ``message_bytes`` is that of the workers."""

    message_bytes: int
    in_flight_bytes: int
    streams: int
    idle_s: float
    answer_s: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that passed the checks."""

    client: str
    project: str
    media: str
    task: str
    gives: str


@dataclass(slots=True)
class Service:
    """Answers requests, at once without ``jobs``. ``is_ready`` is false without workers, at start and at stop."""

    transport: HttpTransport
    access: ServiceAccess
    projects: Projects
    limits: ServiceLimits
    is_ready: Callable[[], bool]
    telemetry: Telemetry
    smart: SmartLogin | None = None
    jobs: JobAnswers | None = None
    budget: Budget = field(init=False)
    _streams: int = 0

    def __post_init__(self) -> None:
        self.budget = Budget(self.limits.in_flight_bytes)

    @property
    def routes(self) -> Sequence[Route]:
        """The routes that exist under these settings."""
        return select_routes(self.smart.routes if self.smart is not None else ())

    def application(self) -> web.Application:
        """The application with all routes."""
        application = web.Application(middlewares=[self._middleware()])
        for route in self.routes:
            application.router.add_route(
                route.method, route.path, self._handler(route), name=route.name, expect_handler=self._expect
            )
        return application

    def _middleware(self) -> "Middleware":
        @web.middleware
        async def guard(request: web.Request, handler: RouteHandler) -> web.StreamResponse:
            begin, status = time.monotonic(), _GONE
            connection = _connection(request)
            connection.begin()
            try:
                response = await self._answer(request, handler)
                status = response.status
            finally:
                name = request.match_info.route.name or "none"
                self.telemetry.emit(ServiceAnswered(name, status, connection.caller.name, time.monotonic() - begin))
                connection.end()
            return response

        return guard

    async def _answer(self, request: web.Request, handler: RouteHandler) -> web.StreamResponse:
        try:
            _check_coding(request)
            if request.match_info.route.name not in PUBLIC:
                _connection(request).caller = await self.access.caller(request)
            return await handler(request)
        except ServiceError as error:
            return self._error(request, error)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return self._error(request, ServiceError("METHOD", headers={"Allow": allowed}))
        except web.HTTPException:
            return self._error(request, ServiceError("NOT_FOUND"))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - the text of an unexpected exception may quote a message
            self.telemetry.emit(Uncaught("service", describe_exception(error)))
            return self._error(request, ServiceError("INTERNAL"))

    async def _expect(self, request: web.Request) -> web.Response | None:
        """Ask for the body of a request with ``Expect``, unless it is refused already."""
        try:
            _check_coding(request)
            if request.headers["Expect"].strip().lower() != "100-continue":
                raise ServiceError("EXPECTATION")
            if request.match_info.route.name not in PUBLIC:
                caller = await self.access.caller(request)
                if (project := request.match_info.get("project")) is not None:
                    self.projects.find(project, caller)
            if (request.content_length or 0) > self.limits.message_bytes and request.match_info.route.name != "stream":
                raise ServiceError("TOO_LARGE")
        except ServiceError as error:
            return self._error(request, error)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # as aiohttp does: the response has not begun
        return None

    def _error(self, request: web.Request, error: ServiceError) -> web.Response:
        if error.code in _DENIALS:
            self.telemetry.emit(ServiceDenied(error.why))
        body = _error_body(request, error)
        headers = {"Content-Type": body.media, **error.headers}
        if error.record:
            headers[RECORD_HEADER] = error.record
        response = web.Response(body=body.data, status=error.kind.status, headers=headers)
        if error.code == "TRANSFER":  # another reader of the connection may see the end of the body elsewhere
            response.force_close()
        return response

    def _handler(self, route: Route) -> RouteHandler:
        if self.smart is not None and route.name in self.smart.routes:
            return self.smart.handler(route.name, self.access.check_sender, self._read_form)
        match route.name:
            case "openapi":
                document = openapi(
                    self.routes, self.limits.message_bytes, self.smart.token_endpoint if self.smart else None
                )
                return _static(document, route.gives)
            case "metadata":
                return self._metadata
            case "projects":
                return self._list_projects
            case "job" | "job-file" | "job-delete":
                return self._answer_job

        async def handler(request: web.Request) -> web.StreamResponse:
            checked = self._check(request, route)
            lines = route.form is BodyForm.STREAM or (route.form is BodyForm.TEXT and checked.media in ND_JSON)
            return await (self._stream(request, checked) if lines else self._record(request, checked))

        return handler

    def _read_form(self, request: web.Request) -> BodyReader:
        return BodyReader(request, self.budget, MOST_FORM, self.limits.idle_s)

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        project = self.projects.find(request.match_info["project"], _connection(request).caller)
        statement = capability_statement(project.name, smart=self.smart is not None, files=self.jobs is not None)
        return _json(request, orjson.dumps(statement), (FHIR_JSON, JSON))

    async def _answer_job(self, request: web.Request) -> web.StreamResponse:
        caller = _connection(request).caller
        project = self.projects.find(request.match_info["project"], caller)
        if self.jobs is None:
            raise ServiceError("NOT_FOUND")
        return await self.jobs.answer(request, request.match_info.route.name or "", project.name, caller.name)

    async def _list_projects(self, request: web.Request) -> web.StreamResponse:
        listed = [
            {"name": each.name, "policy": each.policy, "digest": each.digest, "key": each.key}
            for each in self.projects.of(_connection(request).caller)
        ]
        return _json(request, orjson.dumps({"projects": listed}), (JSON,))

    def _check(self, request: web.Request, route: Route) -> Checked:
        """Check everything that comes before the body. Raises ``ServiceError``."""
        caller = _connection(request).caller
        project = self.projects.find(request.match_info["project"], caller)
        known = dict(route.query)
        for name, value in request.query.items():
            if value not in known.get(name, ()) or len(request.query.getall(name)) > 1:
                raise ServiceError("PARAMETER")
        media, known_charset = media_type(request.headers.get("Content-Type", ""))
        if media not in route.takes or not known_charset:
            raise ServiceError("MEDIA_TYPE")
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise ServiceError("ENCODING")
        task, gives = _task(request, route, media)
        # FHIR in JSON has two names, and clients send one of them and ask for the other.
        other = {JSON: FHIR_JSON, FHIR_JSON: JSON}.get(gives) if route.form is not BodyForm.TEXT else None
        gives = choose_media(request.headers.getall("Accept", []), (gives,) if other is None else (gives, other))
        if not self.is_ready():
            raise ServiceError("UNAVAILABLE", headers={"Retry-After": "5"})
        return Checked(caller.name, project.name, media, task, gives)

    async def _record(self, request: web.Request, checked: Checked) -> web.StreamResponse:
        self.access.bucket(checked.client).charge()
        body = BodyReader(request, self.budget, self.limits.message_bytes, self.limits.idle_s)
        try:
            payload = await body.whole()
            if self.jobs is not None and checked.task == Task.OPERATION:
                begun = await self.jobs.kick_off(request, checked.project, checked.client, payload, body.hold)
                if begun is not None:
                    return begun
            slot = self._claim(request, checked.project)
            try:
                done = await self._process(slot, payload, Request(checked.client, checked.task))
            finally:
                slot.release()
            del payload
            data = result_of(done)
            content_type = _content_type(done, checked)
            response = web.Response(body=data, headers={"Content-Type": content_type, RECORD_HEADER: done.id})
            # Its bytes count until they are sent: else one client that reads no answers could fill the memory.
            _connection(request).send()
            await response.prepare(request)
            await response.write_eof()
        finally:
            body.close()
        return response

    async def _process(self, slot: RequestSlot, payload: bytes, request: Request) -> FinishedRecord:
        try:
            async with asyncio.timeout(self.limits.answer_s):
                return await slot.submit(payload, request)
        except TimeoutError:
            raise ServiceError("LATE", headers={"Retry-After": "5"}) from None
        except TransientError:
            raise ServiceError("UNAVAILABLE", headers={"Retry-After": "5"}) from None

    async def _stream(self, request: web.Request, checked: Checked) -> web.StreamResponse:
        if self._streams >= self.limits.streams:
            raise ServiceError("BUSY", headers={"Retry-After": "1"})
        body = BodyReader(request, self.budget, self.limits.message_bytes, self.limits.idle_s)
        slot = self._claim(request, checked.project)
        self._streams += 1
        try:
            stream = LineStream(
                body, slot, self.access.bucket(checked.client), Request(checked.client, checked.task), checked.gives
            )
            return await stream.run(problem if checked.task else operation_outcome, self.limits.answer_s)
        finally:
            slot.release()
            self._streams -= 1
            body.close()

    def _claim(self, request: web.Request, project: str) -> RequestSlot:
        """A slot for a request to a project. Raises ``ServiceError`` if too many are in process."""
        slot = self.transport.claim(project)
        if slot is None:
            raise ServiceError("BUSY", headers={"Retry-After": "1"})
        _connection(request).working = True
        return slot


def _check_coding(request: web.Request) -> None:
    """Raise ``ServiceError`` for a transfer coding other than ``chunked`` (RFC 9112, 6.1): nothing here decodes it.

    aiohttp accepts ``gzip, chunked`` and hands out the compressed bytes as the body.
    """
    given = request.headers.getall("Transfer-Encoding", [])
    if given and (",".join(given).strip().lower() != "chunked" or request.version < HttpVersion11):
        raise ServiceError("TRANSFER")


def _connection(request: web.Request) -> ServiceConnection:
    """The connection of a request. Its server makes no other."""
    if not isinstance(request.protocol, ServiceConnection):
        raise TypeError("the interface is served by a ServiceServer")
    return request.protocol


def _content_type(done: FinishedRecord, checked: Checked) -> str:
    """The media type of an answer. That of a document is the worker's decision: it has read the content."""
    if checked.task.startswith(Task.DOCUMENT) and done.output is not None:
        return dict(done.output.headers).get(MEDIA_HEADER, b"").decode() or checked.gives
    return f"{TEXT}; charset=utf-8" if checked.gives == TEXT else checked.gives


def _task(request: web.Request, route: Route, media: str) -> tuple[str, str]:
    """The task of a worker and the media type of the answer."""
    if route.form is BodyForm.OPERATION:
        return (Task.XML_RESOURCE if media == FHIR_XML else route.task), media
    if route.form is BodyForm.DOCUMENT:
        return f"{Task.DOCUMENT} {media}", TEXT if media == PDF else media
    if route.form is not BodyForm.TEXT:
        return Task.MESSAGE, media
    spans_only, utf16 = "spans" in request.query, "offsets" in request.query
    options = [
        *([NoteOption.SPANS_ONLY.value] if spans_only else []),
        *([NoteOption.UTF16.value] if utf16 else []),
    ]
    if media != TEXT:
        return " ".join((Task.NOTE, *options)), media
    accept = ",".join(request.headers.getall("Accept", []))
    if options or (not is_accepted(accept, TEXT) and is_accepted(accept, JSON)):
        return " ".join((Task.PLAIN_TO_JSON, *options)), JSON
    return Task.PLAIN_NOTE, TEXT


def _error_body(request: web.Request, error: ServiceError) -> ErrorBody:
    return operation_outcome(error) if is_fhir(request.path) else problem(error)


def _json(request: web.Request, data: bytes, media: Sequence[str]) -> web.Response:
    return web.Response(body=data, headers={"Content-Type": choose_media(request.headers.getall("Accept", []), media)})


def _static(body: Mapping[str, object], media: Sequence[str]) -> RouteHandler:
    data = orjson.dumps(body)

    async def handler(request: web.Request) -> web.StreamResponse:
        return _json(request, data, media)

    return handler
