"""The data of the console, as JSON.

Responses hold codes, counts and coordinates. The playground is the exception: it returns the text that an operator
entered.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from http import HTTPStatus
from pathlib import Path

import orjson
from aiohttp import web

from deid_agent.agent import Coordinates, DeadLetterStore, Health, Outcome, parse_coordinates, parse_private_key
from deid_agent.audit import EntryFilter
from deid_agent.http import audit_view
from deid_agent.http.access import AccessControl, DeniedError
from deid_agent.http.audit_view import AuditCursor
from deid_agent.http.background import CachedResult, run_in_thread
from deid_agent.http.dead_letter_view import DeadLetterListing, ReplayResult, list_dead_letters, replay_dead_letters
from deid_agent.http.history import SAMPLE_INTERVAL_S, History
from deid_agent.http.playground_process import DEADLINE_S, PLAYGROUND_BYTES, BusyError, PlaygroundProcess
from deid_agent.http.review_desk import ReviewDesk
from deid_agent.model import ConfigurationError, Reason
from deid_agent.telemetry import ConsoleReplayed, Telemetry

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_MINUTES = {"5": 5, "15": 15, "60": 60}
_MAX_REPLAYED = 500
_MAX_REPORT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ConsoleSources:
    """The parts of the agent that the console shows.

    ``build`` is the build that the audit records. ``inventory`` reads rules, models, policy and configuration; it
    blocks and runs in a thread. ``open_dead_letters`` opens the dead letters for one use. ``audit_folder`` and
    ``audit_key`` are the trail and the public key that this agent signs with. ``health`` is None if no agent runs in
    this process; the page then has no metrics to show. ``report`` is a page of ``eval --html``. ``desk`` is None
    except in a process of its own for the review of notes; a running agent has none.
    """

    build: Mapping[str, str]
    demo: bool
    inventory: Callable[[], dict[str, object]]
    open_dead_letters: Callable[[], DeadLetterStore]
    audit_folder: Path
    audit_key: str
    history: History
    health: Health | None = None
    playground: PlaygroundProcess | None = None
    report: Path | None = None
    desk: ReviewDesk | None = None


@dataclass(slots=True)
class Views:
    """The request handlers for data and actions. ``AccessControl`` checks a request before it calls one of them."""

    sources: ConsoleSources
    access: AccessControl
    telemetry: Telemetry
    _dead_letters: CachedResult[DeadLetterListing] = field(init=False)
    _chain: CachedResult[dict[str, object]] = field(init=False)
    _inventory: CachedResult[dict[str, object]] = field(init=False)
    _replay: CachedResult[ReplayResult] | None = field(default=None, init=False)
    _searching: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        sources = self.sources
        self._dead_letters = CachedResult(partial(list_dead_letters, sources.open_dead_letters), fresh_s=10.0)
        self._chain = CachedResult(
            partial(audit_view.verify_chain, sources.audit_folder, sources.audit_key), fresh_s=60.0
        )
        self._inventory = CachedResult(sources.inventory, fresh_s=300.0)

    async def overview(self, request: web.Request) -> web.StreamResponse:
        """The totals since the start, and the plots of the last ``minutes`` (5, 15 or 60)."""
        minutes = _MINUTES.get(request.query.get("minutes", "15"))
        if minutes is None:
            raise bad_request("minutes: 5, 15 or 60")
        health, history = self.sources.health, self.sources.history
        status = None if health is None else health.ready()
        return json_response(
            {
                "now": time.time(),
                "interval_s": SAMPLE_INTERVAL_S,
                "build": self.sources.build,
                "demo": self.sources.demo,
                "agent": health is not None,
                "ready": None if status is None else {"ok": status.ok, "reasons": status.reasons},
                "totals": history.totals(),
                "series": history.series(minutes),
            }
        )

    async def dead_letters(self, _request: web.Request) -> web.StreamResponse:
        """The last listing of the dead letters. If it is old, a new one is read in the background."""
        state, at, found, problem = await self._dead_letters.wait()
        body = None if found is None else _members(found)
        replay = {"allowed": self.access.may_write, "running": self._replay is not None and self._replay.running}
        return json_response({"state": state, "at": at, "problem": problem, "found": body, "replay": replay})

    async def start_replay(self, request: web.Request) -> web.StreamResponse:
        """Start to replay the dead letters of ``records``.

        ``key`` is the content of the private key file. It is held in memory for this replay only.
        """
        body = await read_object(request)
        wanted = _parse_records(body)
        text, again = body.get("key"), body.get("again", False)
        if not isinstance(again, bool) or not (text is None or isinstance(text, str)):
            raise bad_request("key: text or null; again: true or false")
        if text is not None and not _is_local(request):
            # The server has no TLS, so the key would cross the network in the clear.
            raise DeniedError(
                HTTPStatus.FORBIDDEN,
                "key",
                "a private key is accepted over loopback only: use a tunnel, or deid-agent replay",
            )
        if self._replay is not None and self._replay.running:
            raise DeniedError(HTTPStatus.CONFLICT, "replay", "another replay is running: wait until it has finished")
        private_key = None
        if text:
            try:
                private_key = parse_private_key(text.strip(), "the file chosen")
            except ConfigurationError as problem:
                raise bad_request(str(problem)) from None
        work = partial(replay_dead_letters, self.sources.open_dead_letters, wanted, private_key, again=again)

        def run() -> ReplayResult:
            try:
                result = work()
            finally:
                # The listing shows the state before the replay, even one that is being read now.
                self._dead_letters.expire()
            self.telemetry.emit(ConsoleReplayed(len(result.done), len(result.failed)))
            return result

        self._replay = CachedResult(run)
        self._replay.request()
        return json_response({"state": "running"}, HTTPStatus.ACCEPTED)

    async def replay_result(self, _request: web.Request) -> web.StreamResponse:
        """The state and result of the last replay."""
        if self._replay is None:
            return json_response({"state": "none"})
        state, at, found, problem = self._replay.request()
        return json_response(
            {"state": state, "at": at, "problem": problem, "found": None if found is None else _members(found)}
        )

    async def audit(self, request: web.Request) -> web.StreamResponse:
        """Matching audit entries, newest first. ``more`` is the value of ``before`` for the next page."""
        choice, before = _parse_filter(request.query), _parse_cursor(request.query)
        if self._searching:
            raise DeniedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "another search is running: try again")
        self._searching = True
        try:
            found = await run_in_thread(partial(audit_view.search_entries, self.sources.audit_folder, choice, before))
        except ConfigurationError as problem:
            raise DeniedError(HTTPStatus.SERVICE_UNAVAILABLE, "audit", str(problem)) from None
        finally:
            self._searching = False
        more = None if found.more is None else f"{found.more.segment}-{found.more.line}"
        entries = [audit_view.entry_fields(entry) for entry in found.entries]
        return json_response({"entries": entries, "more": more, "read": found.bytes})

    async def chain(self, _request: web.Request) -> web.StreamResponse:
        """The result of the last verification of the audit."""
        state, at, found, problem = await self._chain.wait()
        return json_response({"state": state, "at": at, "problem": problem, "found": found})

    async def inventory(self, _request: web.Request) -> web.StreamResponse:
        """Rules, models, policy and configuration."""
        state, at, found, problem = await self._inventory.wait()
        return json_response({"state": state, "at": at, "problem": problem, "found": found})

    async def session(self, _request: web.Request) -> web.StreamResponse:
        """The features that the pages may offer."""
        return json_response(
            {
                "token": not self.access.open,
                "write": self.access.may_write,
                "playground": self.sources.playground is not None,
                "report": self.sources.report is not None,
                "demo": self.sources.demo,
                "agent": self.sources.health is not None,
            }
        )

    async def playground_state(self, _request: web.Request) -> web.StreamResponse:
        """The state of the playground's process. The process is started if it does not run."""
        playground = self.sources.playground
        state, problem = ("off", "") if playground is None else await playground.wait_started()
        return json_response({"state": state, "problem": problem, "most": PLAYGROUND_BYTES, "deadline_s": DEADLINE_S})

    async def playground(self, request: web.Request) -> web.StreamResponse:
        """A text before and after de-identification. It is not stored."""
        if self.sources.playground is None:
            raise DeniedError(HTTPStatus.NOT_FOUND, "playground", "the playground is off: set http.console_playground")
        body = await read_object(request)
        text, kind = body.get("text"), body.get("kind", "auto")
        if not isinstance(text, str) or kind not in {"auto", "note", "message"}:
            raise bad_request("text: a string; kind: auto, note or message")
        payload = text.encode("utf-8", "replace")
        if len(payload) > PLAYGROUND_BYTES:
            raise DeniedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "size", f"the text is larger than {PLAYGROUND_BYTES >> 10} KiB"
            )
        try:
            return json_response(await self.sources.playground.process_text(payload, str(kind).encode()))
        except BusyError:
            raise DeniedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "busy",
                "the playground is starting or is working on another text: try again",
            ) from None

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Open a session for a token. The response sets the cookie and returns the key that the pages keep."""
        token = (await read_object(request)).get("token")
        keys = await self.access.login(token) if isinstance(token, str) else None
        if keys is None:
            return json_response({"error": "token", "advice": "this is not the token"}, HTTPStatus.UNAUTHORIZED)
        reviewer = {"reviewer": keys.reviewer} if keys.reviewer else {}
        response = json_response({"ok": True, "page": keys.page} | reviewer)
        self.access.set_cookie(request, response, keys)
        return response

    async def report_ticket(self, request: web.Request) -> web.StreamResponse:
        """A ticket that opens the report once; empty if the report needs none."""
        return json_response({"ticket": self.access.issue_ticket(request)})

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """End the session."""
        response = json_response({"ok": True})
        self.access.logout(request, response)
        return response

    async def close(self) -> None:
        """Stop waiting for background work and end the playground's process."""
        for cached in (self._dead_letters, self._chain, self._inventory, self._replay):
            if cached is not None:
                cached.close()
        if self.sources.playground is not None:
            await self.sources.playground.close()


def read_report(path: Path) -> bytes:
    """The content of a page of ``eval --html``. Blocks. Raises ``ConfigurationError`` if the file cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_REPORT_BYTES + 1)
    except OSError as problem:
        raise ConfigurationError(f"http.console_report {path}: cannot be read ({problem.strerror})") from None
    if len(data) > _MAX_REPORT_BYTES:
        raise ConfigurationError(f"http.console_report {path}: the file is larger than {_MAX_REPORT_BYTES >> 20} MiB")
    return data


def json_response(body: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """A response with this JSON object."""
    data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(body=data, status=status, content_type="application/json")


def _members(found: DeadLetterListing | ReplayResult) -> dict[str, object]:
    """As ``dataclasses.asdict``, which would copy a thousand dead letters on the agent's event loop."""
    return {member.name: getattr(found, member.name) for member in fields(found)}


def bad_request(advice: str) -> DeniedError:
    """The refusal of a request whose form is wrong."""
    return DeniedError(HTTPStatus.BAD_REQUEST, "request", advice)


async def read_object(request: web.Request) -> dict[str, object]:
    """The JSON object of a request. Raises ``DeniedError`` if it is none."""
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise bad_request("send a JSON object")
    return body


def _parse_records(body: Mapping[str, object]) -> frozenset[Coordinates]:
    named = body.get("records")
    if not isinstance(named, list) or not 0 < len(named) <= _MAX_REPLAYED:
        raise bad_request(f"records: a list of 1 to {_MAX_REPLAYED} names topic/partition/offset")
    try:
        return frozenset(parse_coordinates(str(name)) for name in named)
    except ValueError:
        raise bad_request("records: topic/partition/offset") from None


def _parse_filter(query: Mapping[str, str]) -> EntryFilter:
    topic, outcome, reason = (query.get(name) or None for name in ("topic", "outcome", "reason"))
    if topic is not None and not _TOPIC.fullmatch(topic):
        raise bad_request("topic: letters, digits, dots, dashes and underscores")
    if outcome is not None and outcome not in set(Outcome):
        raise bad_request(f"outcome: {', '.join(Outcome)}")
    if reason is not None and reason not in set(Reason):
        raise bad_request(f"reason: {', '.join(Reason)}")
    project = query.get("project") or None
    if project is not None and not _PROJECT.fullmatch(project):
        raise bad_request("project: small letters, digits, dashes and underscores")
    place = _parse_number(query, "partition"), _parse_number(query, "offset")
    return EntryFilter(topic, *place, outcome, reason, project=project)


def _parse_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not re.fullmatch(r"[0-9]{1,18}", text):
        raise bad_request(f"{name}: a number")
    return int(text) if text else None


def _parse_cursor(query: Mapping[str, str]) -> AuditCursor | None:
    text = query.get("before", "")
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,8})-([0-9]{1,12})", text)
    if found is None:
        raise bad_request("before: the value of more in an earlier response")
    return AuditCursor(int(found[1]), int(found[2]))


def _is_local(request: web.Request) -> bool:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return isinstance(peer, tuple) and str(peer[0]) in {"127.0.0.1", "::1"}
