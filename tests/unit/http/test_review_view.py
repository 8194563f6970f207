"""The review of the console: a reviewer's own session, notes with exact offsets, refusals without a value of a note."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.consoles import ACT, OPEN, TOKEN, World, world
from support.review_desks import ANNA, BEN, CARA, TEXT, TOKEN_OF, MemoryDesk, proposals, span

from deid_agent.http.access import PAGE_HEADER, AccessSettings
from deid_agent.http.console import load_assets
from deid_agent.http.review_desk import DeskError, DeskSpan
from deid_agent.http.review_view import MAX_CHARACTERS, MAX_SPANS, TYPE_KEYS
from deid_agent.model import ConfigurationError
from deid_agent.model.phi import PhiType

EMOJI = "👩‍⚕️ Ines 😀\r\nMr. Okafor\u00a0\u202e(RTL)\u200b\ud83d end"
NOTE = "00aa11"
REVIEW = ("api/review/queue", f"api/review/notes/{NOTE}")
GOOD = [{"begin": 0, "end": 4, "type": "PATIENT", "source": "crf:token", "uncertain": False}]


def desk() -> MemoryDesk:
    odd = (span(EMOJI, "Ines", "DOCTOR"), span(EMOJI, "Okafor", "PATIENT"))
    return MemoryDesk({NOTE: (TEXT, proposals()), "00bb22": (EMOJI, odd)})


@pytest.fixture
async def shown(plain: Path) -> AsyncIterator[World]:
    async with world(plain, OPEN, desk=desk()) as console:
        yield console


def body(reviewer: str, **changes: object) -> dict[str, object]:
    return {"reviewer": reviewer, "finished": False, "spans": GOOD} | changes


async def test_a_console_without_a_desk_has_no_review(plain: Path) -> None:
    async with world(plain, AccessSettings(TOKEN)) as console:
        header = await console.log_in()
        for path in ("review", "web/review.js", "web/review.css", "web/review-spans.js", *REVIEW):
            assert (await console.get(path, **header))[0] == 404, path
        assert (await console.post("api/login", {"token": TOKEN_OF[ANNA]}))[0] == 401
        assert "eview" not in (await console.get("", **header))[1]
    assert "review" not in str(load_assets().pages)


@pytest.mark.parametrize("access", [OPEN, AccessSettings(TOKEN, write=True)], ids=["open", "closed"])
async def test_only_a_reviewer_opens_the_review(plain: Path, access: AccessSettings) -> None:
    """Neither a console without a token nor the token of the console is enough."""
    async with world(plain, access, desk=desk()) as console:
        operator = {} if access.token is None else await console.log_in()
        for headers in (operator, {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {TOKEN_OF[ANNA]}"}):
            for path in REVIEW:
                status, answer = await console.get(path, **headers)
                assert (status, answer["error"]) == (401, "token"), path
            status, answer = await console.post(REVIEW[1], body(ANNA), headers | ACT)
            assert (status, answer["error"]) == (401, "token")
            assert (await console.get("review", **headers))[0] == 303
        header = await console.log_in(TOKEN_OF[ANNA])
        assert (await console.get("review"))[0] == 200
        assert (await console.get(REVIEW[0]))[0] == 401, "the cookie alone"
        assert (await console.get(REVIEW[0], **header))[0] == 200


async def test_a_reviewer_may_not_do_the_work_of_an_operator(plain: Path) -> None:
    async with world(plain, AccessSettings(TOKEN, write=True), desk=desk()) as console:
        header = await console.log_in(TOKEN_OF[ANNA])
        for path in ("api/audit", "api/dead-letters", "api/inventory", "api/overview", "api/session"):
            assert (await console.get(path, **header))[0] == 401, path
        assert (await console.post("api/replay", {"records": ["files/0/2"]}, header | ACT))[0] == 401
        assert (await console.post("api/report", {}, header | ACT))[0] == 401
        assert (await console.get("audit", **header))[0] == 303
        assert (await console.post("api/logout", {}, header | ACT))[0] == 200
        assert (await console.get(REVIEW[0], **header))[0] == 401


async def test_a_reviewer_saves_a_draft_and_finishes_a_note(shown: World) -> None:
    header = await shown.log_in(TOKEN_OF[ANNA])
    status, queue = await shown.get(REVIEW[0], **header)
    assert status == 200 and queue["reviewer"] == ANNA
    assert queue["notes"][0] == {"note": NOTE, "state": "open", "reasons": ["random"], "characters": len(TEXT)}
    assert queue["figures"]["notes"] == 2 and queue["figures"]["kappa"] is None
    assert (await shown.post(REVIEW[1], body(ANNA), header | ACT)) == (200, {"state": "draft"})
    assert (await shown.get(REVIEW[1], **header))[1]["spans"] == GOOD
    assert (await shown.post(REVIEW[1], body(ANNA, finished=True), header | ACT)) == (200, {"state": "finished"})
    status, answer = await shown.post(REVIEW[1], body(ANNA), header | ACT)
    assert (status, answer["error"]) == (409, "finished")


async def test_offsets_of_every_code_point_are_exact(shown: World) -> None:
    """Pairs, joiners, reversing marks, CRLF, no-break spaces and half of a pair, which has no UTF-8 form."""
    header = await shown.log_in(TOKEN_OF[ANNA])
    async with shown.client.get(f"{shown.base}/console/api/review/notes/00bb22", headers=header) as answer:
        note = json.loads(await answer.read())
    assert note["text"] == EMOJI and note["characters"] == len(EMOJI)
    assert [note["text"][one["begin"] : one["end"]] for one in note["spans"]] == ["Ines", "Okafor"]


async def test_only_an_adjudicator_has_the_decisions_of_both(shown: World) -> None:
    for name, kind in ((ANNA, "PATIENT"), (BEN, "DOCTOR")):
        header = await shown.log_in(TOKEN_OF[name])
        spans = [GOOD[0] | {"type": kind}]
        await shown.post(REVIEW[1], body(name, spans=spans, finished=True), header | ACT)
        assert (await shown.get(REVIEW[1], **header))[1]["others"] == []
    header = await shown.log_in(TOKEN_OF[CARA])
    note = (await shown.get(REVIEW[1], **header))[1]
    assert note["state"] == "disputed" and [one["reviewer"] for one in note["others"]] == [ANNA, BEN]
    assert (await shown.post(REVIEW[1], body(CARA, finished=True, adjudicates=True), header | ACT))[1] == {
        "state": "agreed"
    }


WRONG: tuple[object, ...] = (
    None, {}, ["x"], [1], [{}], [GOOD[0] | {"begin": True}], [GOOD[0] | {"begin": "0"}], [GOOD[0] | {"begin": -1}],
    [GOOD[0] | {"end": 0}], [GOOD[0] | {"end": 1e9}], [GOOD[0] | {"end": 10**9}], [GOOD[0] | {"type": "OKAFOR"}],
    [GOOD[0] | {"type": 7}], [GOOD[0] | {"source": 7}], [GOOD[0] | {"uncertain": 1}], GOOD * 2,
    [*GOOD, GOOD[0] | {"begin": 3, "end": 9}],
)  # fmt: skip


@pytest.mark.parametrize("spans", WRONG)
async def test_wrong_spans_are_refused_and_nothing_is_saved(shown: World, spans: object) -> None:
    header = await shown.log_in(TOKEN_OF[ANNA])
    status, answer = await shown.post(REVIEW[1], body(ANNA, spans=spans), header | ACT)
    assert (status, answer["error"]) == (400, "request")
    assert "OKAFOR" not in json.dumps(answer)
    assert memory(shown).decided == {}


def memory(shown: World) -> MemoryDesk:
    assert isinstance(shown.sources.desk, MemoryDesk)
    return shown.sources.desk


async def test_sizes_are_limited_and_the_largest_decision_fits(plain: Path) -> None:
    long = MemoryDesk({NOTE: ("a b " * (MAX_CHARACTERS // 4), ()), "00cc33": ("x" * (MAX_CHARACTERS + 1), ())})
    async with world(plain, OPEN, desk=long) as console:
        header = await console.log_in(TOKEN_OF[ANNA])
        first = MAX_CHARACTERS - 2 * MAX_SPANS
        most = [
            {
                "begin": first + 2 * n,
                "end": first + 2 * n + 1,
                "type": "LOCATION-OTHER",
                "source": "s" * 80,
                "uncertain": False,
            }
            for n in range(MAX_SPANS)
        ]
        assert (await console.post(REVIEW[1], body(ANNA, spans=most), header | ACT))[0] == 200
        more = [*most, GOOD[0]]
        status, answer = await console.post(REVIEW[1], body(ANNA, spans=more), header | ACT)
        assert (status, answer["error"]) == (413, "size")
        assert len((await console.get(REVIEW[1], **header))[1]["text"]) == MAX_CHARACTERS
        status, answer = await console.get("api/review/notes/00cc33", **header)
        assert (status, answer["error"]) == (413, "size")


async def test_decisions_are_never_saved_for_another_reviewer(shown: World) -> None:
    """A page whose session has ended keeps its work while another reviewer logs in beside it."""
    await shown.log_in(TOKEN_OF[ANNA])
    header = await shown.log_in(TOKEN_OF[BEN])
    for sent in (ANNA, "", None):
        status, answer = await shown.post(REVIEW[1], body("") | {"reviewer": sent}, header | ACT)
        assert (status, answer["error"]) == (409, "reviewer")
    assert memory(shown).decided == {}


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Deid-Console": "0"}, ACT | {"Origin": "http://127.0.0.1:1"}, ACT | {"Sec-Fetch-Site": "same-site"}],
)
async def test_a_request_of_another_page_saves_nothing(shown: World, headers: dict[str, str]) -> None:
    header = await shown.log_in(TOKEN_OF[ANNA])
    assert (await shown.post(REVIEW[1], body(ANNA), header | headers))[0] == 403
    assert (await shown.get(REVIEW[0], **header, Host="evil.example"))[0] == 421
    assert memory(shown).decided == {}


FAULTS: tuple[tuple[Exception, int, str], ...] = (
    (DeskError("disputed", "the reviewers differ: another one decides"), 409, "disputed"),
    (DeskError("Okafor <b>", "an unknown code is not shown"), 409, "refused"),
    (OSError(28, "Okafor is full"), 503, "disk"),
    (ConfigurationError("notes/00aa11: is torn"), 503, "folder"),
    (KeyError("Okafor"), 500, "fault"),
)


@pytest.mark.parametrize(("fault", "status", "code"), FAULTS, ids=[code for *_, code in FAULTS])
async def test_a_failing_desk_is_an_error_with_a_fixed_code_and_no_value(
    shown: World, fault: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    header = await shown.log_in(TOKEN_OF[ANNA])
    requests: list[Any] = [
        lambda: shown.get(REVIEW[0], **header),
        lambda: shown.get(REVIEW[1], **header),
        lambda: shown.post(REVIEW[1], body(ANNA), header | ACT),
        lambda: shown.post("api/login", {"token": TOKEN_OF[ANNA]}),
    ]
    for request in requests:
        memory(shown).fault = fault
        got, answer = await request()
        assert (got, answer["error"]) == (status, code) and set(answer) == {"error", "advice"}
        assert "Okafor" not in json.dumps(answer)
    assert "Okafor" not in caplog.text


@pytest.mark.parametrize("name", ["x" * 129, "%2e%2e%2fkey", "a b", "Okafor%0a", "<b>"])
async def test_an_odd_name_of_a_note_never_reaches_the_desk(shown: World, name: str) -> None:
    header = await shown.log_in(TOKEN_OF[ANNA])
    memory(shown).fault = AssertionError()
    status, answer = await shown.get(f"api/review/notes/{name}", **header)
    assert status == 404 and (not isinstance(answer, dict) or answer["error"] == "note")


def test_each_type_has_a_key_of_its_own() -> None:
    assert set(TYPE_KEYS) == set(PhiType) and len(set(TYPE_KEYS.values())) == len(PhiType)
    assert (TYPE_KEYS[PhiType.PATIENT], TYPE_KEYS[PhiType.DATE], TYPE_KEYS[PhiType.IDNUM]) == ("p", "t", "2")


def test_no_value_is_in_a_repr() -> None:
    note = desk().open(ANNA, NOTE)
    assert "Okafor" not in repr(note) and PAGE_HEADER
    assert DeskSpan(0, 1, "DATE") == DeskSpan(0, 1, "DATE", "", uncertain=False)
