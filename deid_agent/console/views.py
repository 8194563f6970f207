"""What the console answers. Everything is JSON of codes, counts and coordinates, but for a text that somebody tries."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from http import HTTPStatus
from pathlib import Path

import orjson
from aiohttp import web

from deid_agent.agent import letterkeys
from deid_agent.agent.health import Health
from deid_agent.agent.letterbox import LetterBox
from deid_agent.agent.letterhead import coordinates_of
from deid_agent.agent.ports import Coordinates, Outcome
from deid_agent.audit.entries import Choice
from deid_agent.console import auditlook, letterlist
from deid_agent.console.aside import Kept, aside
from deid_agent.console.auditlook import Cursor
from deid_agent.console.gate import DeniedError, Gate
from deid_agent.console.history import EVERY_S, History
from deid_agent.console.inventory import Running, inventory
from deid_agent.console.letterlist import Listing, Replayed
from deid_agent.console.room import DEADLINE_S, BusyError, Room
from deid_agent.console.trying import MOST
from deid_agent.errors import ConfigurationError, Reason
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.events import ConsoleReplayed

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RANGES = {"5": 5, "15": 15, "60": 60}
_RECORDS = 500
_REPORT = 64 << 20


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the console looks. ``box`` opens the dead letters anew each time; ``audit`` is the folder of the trail.

    ``health`` is None where no agent runs in this process: then there are no numbers to show.
    """

    running: Running
    box: Callable[[], LetterBox]
    audit: Path
    public: str
    history: History
    health: Health | None = None
    room: Room | None = None
    report: Path | None = None


@dataclass(slots=True)
class Views:
    """The handlers. Each expects that ``Gate`` let the request in."""

    sources: Sources
    gate: Gate
    telemetry: Telemetry
    _letters: Kept[Listing] = field(init=False)
    _chain: Kept[dict[str, object]] = field(init=False)
    _inventory: Kept[dict[str, object]] = field(init=False)
    _replay: Kept[Replayed] | None = field(default=None, init=False)
    _searching: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        sources = self.sources
        self._letters = Kept(partial(letterlist.listing, sources.box), fresh_s=10.0)
        self._chain = Kept(partial(auditlook.status, sources.audit, sources.public), fresh_s=60.0)
        self._inventory = Kept(partial(inventory, sources.running), fresh_s=300.0)

    async def overview(self, request: web.Request) -> web.StreamResponse:
        """Numbers since the start, and the plots of the last ``minutes`` (5, 15 or 60)."""
        minutes = _RANGES.get(request.query.get("minutes", "15"))
        if minutes is None:
            raise _bad("minutes: 5, 15 or 60")
        health, history = self.sources.health, self.sources.history
        verdict = None if health is None else health.ready()
        return _json(
            {
                "now": time.time(),
                "every_s": EVERY_S,
                "build": self.sources.running.build,
                "demo": self.sources.running.demo,
                "agent": health is not None,
                "ready": None if verdict is None else {"ok": verdict.ok, "reasons": verdict.reasons},
                "totals": history.totals(),
                "series": history.series(minutes),
            }
        )

    async def letters(self, _request: web.Request) -> web.StreamResponse:
        """What is known of the dead letters; reading goes on behind."""
        state, at, found, problem = await self._letters.soon()
        body = None if found is None else _members(found)
        writes = {"allowed": self.gate.may_write, "running": self._replay is not None and self._replay.running}
        return _json({"state": state, "at": at, "problem": problem, "found": body, "replay": writes})

    async def replay(self, request: web.Request) -> web.StreamResponse:
        """Begin to put back the letters of ``records``; ``key`` is the text of the private key, held for this alone."""
        body = await _object(request)
        wanted = _records(body)
        text, again = body.get("key"), body.get("again", False)
        if not isinstance(again, bool) or not (text is None or isinstance(text, str)):
            raise _bad("key: text or null; again: true or false")
        if text is not None and not _from_here(request):
            # Without TLS the key would be on the network in the clear.
            raise DeniedError(
                HTTPStatus.FORBIDDEN, "key", "a private key is taken over loopback alone: use a tunnel, or the command"
            )
        if self._replay is not None and self._replay.running:
            raise DeniedError(HTTPStatus.CONFLICT, "replay", "another replay is at work: let it end")
        private = None
        if text:
            try:
                private = letterkeys.private_of(text.strip(), "the file chosen")
            except ConfigurationError as problem:
                raise _bad(str(problem)) from None
        work = partial(letterlist.replay, self.sources.box, wanted, private, again=again)

        def run() -> Replayed:
            done = work()
            self.telemetry.emit(ConsoleReplayed(len(done.done), len(done.failed)))
            return done

        self._replay = Kept(run)
        self._replay.ask()
        return _json({"state": "running"}, HTTPStatus.ACCEPTED)

    async def replayed(self, _request: web.Request) -> web.StreamResponse:
        """What the last replay did."""
        if self._replay is None:
            return _json({"state": "none"})
        state, at, found, problem = self._replay.ask()
        return _json(
            {"state": state, "at": at, "problem": problem, "found": None if found is None else _members(found)}
        )

    async def audit(self, request: web.Request) -> web.StreamResponse:
        """Entries that fit, the newest first; ``more`` is where the next page goes on."""
        choice, before = _choice(request.query), _cursor(request.query)
        if self._searching:
            raise DeniedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "another search is at work: try again")
        self._searching = True
        try:
            found = await aside(partial(auditlook.search, self.sources.audit, choice, before))
        except ConfigurationError as problem:
            raise DeniedError(HTTPStatus.SERVICE_UNAVAILABLE, "audit", str(problem)) from None
        finally:
            self._searching = False
        more = None if found.more is None else f"{found.more.segment}-{found.more.line}"
        return _json({"entries": [auditlook.told(entry) for entry in found.entries], "more": more, "read": found.bytes})

    async def chain(self, _request: web.Request) -> web.StreamResponse:
        """Does the audit verify?"""
        state, at, found, problem = await self._chain.soon()
        return _json({"state": state, "at": at, "problem": problem, "found": found})

    async def about(self, _request: web.Request) -> web.StreamResponse:
        """Rules, models, policy, configuration."""
        state, at, found, problem = await self._inventory.soon()
        return _json({"state": state, "at": at, "problem": problem, "found": found})

    async def session(self, _request: web.Request) -> web.StreamResponse:
        """What the pages may offer."""
        return _json(
            {
                "token": not self.gate.open,
                "write": self.gate.may_write,
                "playground": self.sources.room is not None,
                "report": self.sources.report is not None,
                "demo": self.sources.running.demo,
                "agent": self.sources.health is not None,
            }
        )

    async def room(self, _request: web.Request) -> web.StreamResponse:
        """Is the playground's process there? It is begun where it is not."""
        state, problem = ("off", "") if self.sources.room is None else await self.sources.room.soon()
        return _json({"state": state, "problem": problem, "most": MOST, "deadline_s": DEADLINE_S})

    async def try_(self, request: web.Request) -> web.StreamResponse:
        """A text before and after. Kept nowhere."""
        if self.sources.room is None:
            raise DeniedError(HTTPStatus.NOT_FOUND, "playground", "http.console_playground is off")
        body = await _object(request)
        text, kind = body.get("text"), body.get("kind", "auto")
        if not isinstance(text, str) or kind not in {"auto", "note", "message"}:
            raise _bad("text: a string; kind: auto, note or message")
        payload = text.encode("utf-8", "replace")
        if len(payload) > MOST:
            raise DeniedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "size", f"at most {MOST >> 10} KiB are tried")
        try:
            return _json(await self.sources.room.try_(payload, str(kind).encode()))
        except BusyError:
            raise DeniedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "busy", "the playground starts, or another text is at work: try again"
            ) from None

    async def login(self, request: web.Request) -> web.StreamResponse:
        """A session for a token: one half is a cookie, the other one the page keeps."""
        token = (await _object(request)).get("token")
        opened = self.gate.login(token) if isinstance(token, str) else None
        if opened is None:
            return _json({"error": "token", "advice": "this is not the token"}, HTTPStatus.UNAUTHORIZED)
        response = _json({"ok": True, "page": opened.page})
        self.gate.set_cookie(request, response, opened)
        return response

    async def ticket(self, request: web.Request) -> web.StreamResponse:
        """What the address of the report wants, once; empty where it wants nothing."""
        return _json({"ticket": self.gate.ticket(request)})

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """End the session."""
        response = _json({"ok": True})
        self.gate.logout(request, response)
        return response

    async def close(self) -> None:
        """Wait for nothing more."""
        for kept in (self._letters, self._chain, self._inventory, self._replay):
            if kept is not None:
                kept.close()
        if self.sources.room is not None:
            await self.sources.room.close()


def read_report(path: Path) -> bytes:
    """The page of ``eval --html``; for a thread. Raises ``ConfigurationError``."""
    try:
        with path.open("rb") as file:
            data = file.read(_REPORT + 1)
    except OSError as problem:
        raise ConfigurationError(f"http.console_report {path}: cannot be read ({problem.strerror})") from None
    if len(data) > _REPORT:
        raise ConfigurationError(f"http.console_report {path}: over {_REPORT >> 20} MiB")
    return data


def _json(body: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(body=data, status=status, content_type="application/json")


def _members(found: Listing | Replayed) -> dict[str, object]:
    """As ``asdict``, which would copy each of a thousand letters on the agent's loop."""
    return {member.name: getattr(found, member.name) for member in fields(found)}


def _bad(advice: str) -> DeniedError:
    return DeniedError(HTTPStatus.BAD_REQUEST, "request", advice)


async def _object(request: web.Request) -> dict[str, object]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise _bad("send a JSON object")
    return body


def _records(body: Mapping[str, object]) -> frozenset[Coordinates]:
    named = body.get("records")
    if not isinstance(named, list) or not 0 < len(named) <= _RECORDS:
        raise _bad(f"records: 1 to {_RECORDS} of topic/partition/offset")
    try:
        return frozenset(coordinates_of(str(name)) for name in named)
    except ValueError:
        raise _bad("records: topic/partition/offset") from None


def _choice(query: Mapping[str, str]) -> Choice:
    topic, outcome, reason = (query.get(name) or None for name in ("topic", "outcome", "reason"))
    if topic is not None and not _TOPIC.fullmatch(topic):
        raise _bad("topic: letters, digits, dots, dashes and underscores")
    if outcome is not None and outcome not in set(Outcome):
        raise _bad(f"outcome: {', '.join(Outcome)}")
    if reason is not None and reason not in set(Reason):
        raise _bad(f"reason: {', '.join(Reason)}")
    return Choice(topic, _number(query, "partition"), _number(query, "offset"), outcome, reason)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not re.fullmatch(r"[0-9]{1,18}", text):
        raise _bad(f"{name}: a number")
    return int(text) if text else None


def _cursor(query: Mapping[str, str]) -> Cursor | None:
    text = query.get("before", "")
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,8})-([0-9]{1,12})", text)
    if found is None:
        raise _bad("before: as an earlier answer said")
    return Cursor(int(found[1]), int(found[2]))


def _from_here(request: web.Request) -> bool:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return isinstance(peer, tuple) and str(peer[0]) in {"127.0.0.1", "::1"}
