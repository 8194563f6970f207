"""The data of the review pages, as JSON: the queue, a note, and the decisions on it.

Offsets are in code points. A response contains the text of a note. A refusal contains a fixed code and advice without
a value of a note: the code of a ``DeskError``, or ``request``, ``size``, ``note``, ``reviewer``, ``folder``, ``disk``
or ``fault``.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from itertools import pairwise
from typing import TypeVar

from aiohttp import web

from deid_agent.http.access import DeniedError
from deid_agent.http.background import run_in_thread
from deid_agent.http.review_desk import DeskError, DeskNote, DeskSpan, ReviewDesk
from deid_agent.http.views import bad_request, json_response, read_object
from deid_agent.model import CATEGORY, ConfigurationError, PhiType

MAX_CHARACTERS = 1_000_000
"""The longest note that a page shows."""
MAX_SPANS = 3_000
"""The most spans of a saved note. They fit into the largest request, and one more is refused."""
TYPE_KEYS: dict[PhiType, str] = dict(zip(PhiType, "pdujhorcsyzlgtnfewixmka1vqb2", strict=True))
"""The key that chooses each type in the list of types."""
_NOTE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SOURCE = re.compile(r"[ -~]{0,80}")
_CODE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_TYPES = frozenset(PhiType)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReviewViews:
    """The request handlers of the review. ``AccessControl`` checks a request and finds its reviewer first."""

    desk: ReviewDesk

    async def reviewer_of(self, token: str) -> str | None:
        """The reviewer with this token. Raises ``DeniedError`` if the desk fails."""
        return await _ask(partial(self.desk.reviewer_of, token))

    async def queue(self, _request: web.Request, reviewer: str) -> web.StreamResponse:
        """The reviewer's notes, the figures, and the types with their keys."""
        items = await _ask(partial(self.desk.queue, reviewer))
        figures = await _ask(self.desk.figures)
        types = [{"type": kind, "key": key, "category": CATEGORY[kind]} for kind, key in TYPE_KEYS.items()]
        notes = [
            {"note": item.note, "state": item.state, "reasons": item.reasons, "characters": item.characters}
            for item in items
        ]
        return json_response({"reviewer": reviewer, "notes": notes, "figures": asdict(figures), "types": types})

    async def note(self, request: web.Request, reviewer: str) -> web.StreamResponse:
        """A note with its spans, for an adjudicator with those of both reviewers."""
        found = await _ask(partial(self.desk.open, reviewer, _note_id(request)))
        if len(found.text) > MAX_CHARACTERS:
            raise DeniedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "size",
                f"the note has over {MAX_CHARACTERS:,} characters: export it and review it elsewhere",
            )
        # A text may contain half of a surrogate pair, which has no UTF-8 form, so everything is escaped as ASCII.
        return web.Response(body=json.dumps(_describe(found, reviewer)).encode(), content_type="application/json")

    async def save(self, request: web.Request, reviewer: str) -> web.StreamResponse:
        """Save decisions as a draft, or finish the note. Returns the new state."""
        note, body = _note_id(request), await read_object(request)
        # A page that lost its session may meet the session of another reviewer, who has logged in elsewhere.
        if body.get("reviewer") != reviewer:
            raise DeniedError(
                HTTPStatus.CONFLICT, "reviewer", "another reviewer has logged in: log in with your own token"
            )
        finished, adjudicates = body.get("finished"), body.get("adjudicates", False)
        if not isinstance(finished, bool) or not isinstance(adjudicates, bool):
            raise bad_request("finished and adjudicates: true or false")
        spans = _parse_spans(body.get("spans"))
        state = await _ask(partial(self.desk.save, reviewer, note, spans, finished=finished, adjudicates=adjudicates))
        return json_response({"state": state})


async def _ask(work: Callable[[], T]) -> T:
    """The result of a call of the desk, which blocks. Raises ``DeniedError`` for everything that it raises.

    The text of another exception may contain PHI, and the server would log it.
    """
    try:
        return await run_in_thread(work)
    except DeskError as refused:
        code = refused.code if _CODE.fullmatch(refused.code) else "refused"
        raise DeniedError(HTTPStatus.CONFLICT, code, refused.advice) from None
    except ConfigurationError as problem:  # its text names files, never a value
        raise DeniedError(HTTPStatus.SERVICE_UNAVAILABLE, "folder", str(problem)) from None
    except OSError as problem:
        kind = type(problem).__name__
        raise DeniedError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "disk",
            f"the folder of reviewed notes cannot be read or written ({kind}), and nothing was changed: try again",
        ) from None
    except Exception as problem:  # noqa: BLE001 - see above
        kind = type(problem).__name__
        raise DeniedError(
            HTTPStatus.INTERNAL_SERVER_ERROR, "fault", f"an unexpected error ({kind}): report it"
        ) from None


def _note_id(request: web.Request) -> str:
    note = request.match_info["note"]
    if not _NOTE.fullmatch(note):
        raise DeniedError(HTTPStatus.NOT_FOUND, "note", "there is no note with this id: open it from the queue")
    return note


def _describe(found: DeskNote, reviewer: str) -> dict[str, object]:
    return {
        "reviewer": reviewer,
        "note": found.note,
        "state": found.state,
        "text": found.text,
        "characters": len(found.text),
        "spans": [asdict(span) for span in found.spans],
        "others": [{"reviewer": name, "spans": [asdict(span) for span in spans]} for name, spans in found.others],
    }


def _parse_spans(listed: object) -> Sequence[DeskSpan]:
    """The spans of a request, in order. Raises ``DeniedError`` without a value of the request."""
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise bad_request("spans: a list of objects")
    if len(listed) > MAX_SPANS:
        raise DeniedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "size", f"a note has at most {MAX_SPANS} spans")
    spans = sorted((_parse_span(one) for one in listed), key=lambda span: span.begin)
    if any(left.end > right.begin for left, right in pairwise(spans)):
        raise bad_request("spans: disjoint")
    return spans


def _parse_span(one: dict[str, object]) -> DeskSpan:
    begin, end, kind = one.get("begin"), one.get("end"), one.get("type")
    source, uncertain = one.get("source", ""), one.get("uncertain", False)
    if not isinstance(begin, int) or not isinstance(end, int) or isinstance(begin, bool) or isinstance(end, bool):
        raise bad_request("begin and end: numbers")
    if not 0 <= begin < end <= MAX_CHARACTERS:
        raise bad_request("begin and end: a half-open span inside the note")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise bad_request("type: the name of a PHI type")
    if not isinstance(source, str) or not isinstance(uncertain, bool):
        raise bad_request("source: text; uncertain: true or false")
    return DeskSpan(begin, end, kind, source if _SOURCE.fullmatch(source) else "", uncertain)
