"""Access control of the console: sessions, tickets, hosts, origins, headers. Each test is an attack that is refused."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from support.consoles import ACT, CANARY, TOKEN, World, world

from deid_agent.http.access import PAGE_HEADER, AccessSettings
from deid_agent.http.sessions import Sessions

CLOSED = AccessSettings(TOKEN, write=False, loopback=False)
PATHS = (
    "api/overview",
    "api/dead-letters",
    "api/audit",
    "api/audit/chain",
    "api/inventory",
    "api/playground",
    "api/session",
)


@pytest.fixture
async def opened(plain: Path) -> AsyncIterator[World]:
    async with world(plain) as console:
        yield console


@pytest.fixture
async def closed(plain: Path) -> AsyncIterator[World]:
    async with world(plain, CLOSED) as console:
        yield console


@pytest.mark.parametrize("path", PATHS)
async def test_without_the_token_nothing_is_answered(closed: World, path: str) -> None:
    status, answer = await closed.get(path)
    assert (status, answer["error"]) == (401, "token")
    status, answer = await closed.get(path, Authorization=f"Bearer {TOKEN}x")
    assert (status, answer["error"]) == (401, "token")
    assert (await closed.get(path, Authorization=f"Bearer {TOKEN}"))[0] == 200


@pytest.mark.parametrize("page", ["", "dead-letters", "audit", "rules", "playground", "evaluation", "report"])
async def test_a_page_redirects_to_the_login(closed: World, page: str) -> None:
    assert (await closed.get(page))[0] == 303
    assert (await closed.get("login"))[0] == 200


async def test_the_token_opens_a_session_that_no_script_reads_and_that_ends(closed: World) -> None:
    assert (await closed.post("api/login", {"token": "wrong, and long enough"}))[0] == 401
    assert (await closed.post("api/login", {"token": 7}))[0] == 401
    assert (await closed.get("api/dead-letters"))[0] == 401
    async with closed.client.post(f"{closed.base}/console/api/login", json={"token": TOKEN}, headers=ACT) as answer:
        cookie, page = answer.headers["Set-Cookie"], (await answer.json())["page"]
    assert TOKEN not in cookie and TOKEN not in page and page not in cookie
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/console"))
    mine = {PAGE_HEADER: page}
    assert (await closed.get("api/dead-letters", **mine))[0] == 200
    assert (await closed.get(""))[0] == 200
    kept = cookies(closed)
    assert (await closed.post("api/logout", {}, mine | ACT))[0] == 200
    closed.client.cookie_jar.clear()
    closed.client.cookie_jar.update_cookies(kept)
    assert (await closed.get("api/dead-letters", **mine))[0] == 401, "a stolen session ends with the log out"


def cookies(console: World) -> dict[str, str]:
    return {cookie.key: cookie.value for cookie in console.client.cookie_jar}


ACTS = ("api/playground", "api/replay", "api/report", "api/logout")


async def test_a_stolen_cookie_alone_grants_no_access(plain: Path, tmp_path: Path) -> None:
    """Every server of the host receives the cookie, but not the page key, which browsers keep per origin."""
    report = tmp_path / "report.html"
    report.write_text(f"<p>{CANARY}</p>")
    async with world(plain, AccessSettings(TOKEN, write=True), report=report) as console:
        other = await console.log_in()
        mine = await console.log_in()
        stolen = cookies(console)
        assert len(stolen) == 1 and other != mine
        async with aiohttp.ClientSession(cookies=stolen, cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            thief = replace(console, client=client)
            for guess in ({}, {PAGE_HEADER: ""}, {PAGE_HEADER: "1"}, {PAGE_HEADER: next(iter(stolen.values()))}, other):
                for path in PATHS:
                    status, answer = await thief.get(path, **guess)
                    assert (status, answer["error"]) == (401, "token"), path
                for path in ACTS:
                    status, answer = await thief.post(path, {"records": ["files/0/0"]}, guess | ACT)
                    assert (status, answer["error"]) == (401, "token"), path
                for path in ("report", "report?ticket=", "report?ticket=x"):
                    status, answer = await thief.get(path, **guess)
                    assert (status, answer) == (303, ""), path
            assert CANARY in (await thief.get("report", **mine))[1], "with both the session is valid"
        assert (await console.get("api/dead-letters", **mine))[0] == 200, "and it continues"


async def test_a_ticket_opens_the_report_once_and_for_its_own_session_alone(plain: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(f"<p>{CANARY}</p>")
    async with world(plain, CLOSED, report=report) as console:
        mine = await console.log_in()
        ticket = (await console.post("api/report", {}, mine | ACT))[1]["ticket"]
        of_mine = cookies(console)
        await console.log_in()
        assert (await console.get(f"report?ticket={ticket}"))[0] == 303, "another session"
        console.client.cookie_jar.clear()
        console.client.cookie_jar.update_cookies(of_mine)
        assert (await console.get("report?ticket=x"))[0] == 303
        status, page = await console.get(f"report?ticket={ticket}")
        assert status == 200 and CANARY in page
        assert (await console.get(f"report?ticket={ticket}"))[0] == 303, "spent"
        assert (await console.get("report", Authorization=f"Bearer {TOKEN}"))[0] == 200


def test_a_session_and_its_ticket_end_with_their_time() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    opened = sessions.open()
    assert not sessions.redeem_ticket(opened.cookie, "")
    ticket = sessions.issue_ticket(opened.cookie)
    now[0] = 61.0
    assert not sessions.redeem_ticket(opened.cookie, ticket)
    assert sessions.owner(opened.cookie, opened.page) == ""
    now[0] = 8 * 3600.0
    assert sessions.owner(opened.cookie, opened.page) is sessions.cookie_owner(opened.cookie) is None
    assert sessions.issue_ticket(opened.cookie) == ""
    assert opened.page not in repr(sessions.open()) + repr(opened)


def test_too_many_sessions_end_the_oldest() -> None:
    sessions = Sessions(lambda: 1.0)
    first, *others = [sessions.open() for _ in range(33)]
    assert sessions.owner(first.cookie, first.page) is None
    assert all(sessions.owner(each.cookie, each.page) == "" for each in others)
    # Those of a reviewer end none of another person.
    of_anna, *_ = [sessions.open("anna") for _ in range(33)]
    assert sessions.owner(of_anna.cookie, of_anna.page) is None
    assert all(sessions.owner(each.cookie, each.page) == "" for each in others)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost.evil:80", "[::"])
async def test_a_request_with_a_foreign_host_name_is_refused(opened: World, host: str) -> None:
    for path in ("", "login", "web/base.css", "api/overview"):
        status, answer = await opened.get(path, Host=host)
        assert (status, answer["error"]) == (421, "host"), path


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9464", "[::1]:80", "127.8.8.8"])
async def test_host_names_of_this_machine_are_accepted(opened: World, host: str) -> None:
    assert (await opened.get("api/session", Host=host))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=["another site", "another port", "another origin", "no origin", "origin of another port"],
)
async def test_a_request_from_another_origin_is_refused(opened: World, headers: dict[str, str]) -> None:
    assert await refused(opened, "GET", headers) == "origin"
    assert await refused(opened, "POST", headers | ACT) == "origin"


async def refused(console: World, method: str, headers: dict[str, str]) -> str:
    url = f"{console.base}/console/api/playground"
    async with console.client.request(method, url, headers=headers, json={}) as answer:
        assert answer.status == 403
        return str((await answer.json())["error"])


async def test_a_form_of_another_origin_is_refused(opened: World) -> None:
    """A form can neither add a header nor send JSON."""
    url = f"{opened.base}/console/api/playground"
    plain = {"Content-Type": "text/plain"}
    for headers in (plain | ACT, {"Content-Type": "application/json"}):
        async with opened.client.post(url, data=b'{"text": "x"}', headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]) == (403, "header")


@pytest.mark.parametrize(
    "access",
    [AccessSettings(), AccessSettings(write=True), AccessSettings(TOKEN)],
    ids=["no token", "write without a token", "token without write"],
)
async def test_a_read_only_console_replays_nothing(plain: Path, access: AccessSettings) -> None:
    async with world(plain, access) as console:
        body, headers = {"records": ["files/0/0"]}, {"Authorization": f"Bearer {TOKEN}"} | ACT
        status, answer = await console.post("api/replay", body, headers)
        assert (status, answer["error"]) == (403, "write")


async def test_a_replay_requires_the_token_itself(plain: Path) -> None:
    async with world(plain, AccessSettings(TOKEN, write=True)) as console:
        assert (await console.post("api/replay", {"records": ["files/0/0"]}))[0] == 401


@pytest.mark.parametrize("path", ["", "login", "web/common.js", "api/overview", "api/nothing"])
async def test_every_answer_forbids_frames_scripts_and_caches(opened: World, path: str) -> None:
    async with opened.client.get(f"{opened.base}/console/{path}") as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        if path != "api/nothing":
            assert answer.headers["X-Frame-Options"] == "DENY"
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'self';") and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


async def test_an_oversized_request_is_ended(opened: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.server.port)
    writer.write(b"POST /console/api/playground HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
    writer.write(bytes(2 << 20))
    async with asyncio.timeout(10):
        assert await gone(reader)
    writer.close()


async def gone(reader: asyncio.StreamReader) -> bool:
    try:
        await reader.read()
    except ConnectionError:
        return True
    return reader.at_eof()


async def test_no_content_of_a_request_is_echoed_or_logged(
    closed: World, opened: World, caplog: pytest.LogCaptureFixture
) -> None:
    name = "Okonkwo"
    with caplog.at_level(logging.DEBUG):
        answers = [
            await opened.get(f"{name}?{name}={CANARY}"),
            await opened.get(f"api/audit?topic={name}%20{CANARY}"),
            await opened.get(f"api/audit?offset={name}"),
            await opened.get(f"api/overview?minutes={name}"),
            await opened.get("api/overview", Origin=f"http://{name}"),
            await opened.get("api/overview", Host=name),
            await opened.post("api/playground", {"text": name, "kind": name}),
            await opened.post("api/replay", {"records": [name]}),
            await closed.post("api/login", {"token": name}),
        ]
    assert {status for status, _ in answers} <= {400, 401, 403, 404, 421}
    assert not any(name in str(answer) or CANARY in str(answer) for _, answer in answers)
    assert name not in caplog.text


async def test_a_refusal_is_logged_once_a_minute(closed: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await closed.get("api/overview")
    assert [record.getMessage() for record in caplog.records] == ["ConsoleDenied"]


async def test_only_files_of_the_package_are_served(opened: World) -> None:
    for path in ("web/", "web/shell.html", "web/..%2fapp.py", "web/../../etc/passwd", "web/%2e%2e/console/app.py"):
        assert (await opened.get(path))[0] == 404, path


async def test_health_and_metrics_need_no_token(closed: World) -> None:
    async with closed.client.get(f"{closed.base}/healthz") as answer:
        assert answer.status == 200
