"""Access to the console in a real browser: the token, replays, the report, other ports."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from playwright.async_api import Page
from support.browser import browsing
from support.console_pages import READY, console
from support.consoles import ACT, CANARY, TOKEN, World, world

from deid_agent.cli import main
from deid_agent.http.access import PAGE_HEADER, AccessSettings


async def test_a_replay_is_refused_without_a_token(file: Path, chromium: str) -> None:
    """The page offers none, and the agent refuses one that the page is made to send."""
    async with console(file) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/dead-letters")
        await seen.page.wait_for_selector(READY["dead-letters"])
        assert not await seen.page.is_visible("#replay")
        assert await seen.page.is_visible("#readonly")
        assert await seen.page.evaluate(SENT) == [403, "write"]


SENT = """fetch("/console/api/replay", {method: "POST", body: JSON.stringify({records: ["files/0/2"]}),
  headers: {"Content-Type": "application/json", "X-Deid-Console": "1"}})
  .then(async (answer) => [answer.status, (await answer.json()).error])"""


@pytest.mark.smoke
async def test_a_user_with_a_token_logs_in_replays_a_dead_letter_and_logs_out(own: Path, chromium: str) -> None:
    async with console(own, AccessSettings(TOKEN, write=True)) as shown, browsing(chromium, width=360) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/dead-letters")
        await page.wait_for_url("**/console/login")
        await page.fill("#token", "not the token, but long")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#problem:has-text('not the token')")
        await page.fill("#token", TOKEN)
        await page.keyboard.press("Enter")
        await page.wait_for_selector(READY[""])
        assert await page.evaluate("document.cookie") == "", "no script reads it"
        await page.goto(f"{shown.base}/console/dead-letters")
        await page.wait_for_selector("#replay button")
        await page.check("[aria-label='select files/0/2']")
        await page.click("#replay button")
        await page.wait_for_selector("#result .notice.good")
        assert "1 dead letter replayed, 0 failed." in await page.inner_text("#result")
        row = page.locator("#list tr", has_text="files/0/2")
        await row.get_by_text("1 time", exact=True).wait_for(timeout=5_000)
        assert await page.locator("#list tr", has_text="files/0/3").get_by_text("no", exact=True).count() == 1
        assert await seen.width() <= 360
        await page.click("#leave")
        await page.wait_for_url("**/console/login")
        assert await page.evaluate("localStorage.length") == 0
        await page.goto(f"{shown.base}/console/audit")
        await page.wait_for_url("**/console/login")
    assert len(list((own.parent / "in" / "deid-replay").rglob("*.hl7"))) == 1


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of `eval --html` with one name found, one missed, one found in markup."""
    root = tmp_path_factory.mktemp("eval")
    text = f"Ada Okafor saw Dr. Vane {CANARY}"
    gold = [{"start": 0, "end": 10, "type": "PATIENT"}, {"start": 19, "end": 23, "type": "DOCTOR"}]
    pred = [{"start": 0, "end": 10, "type": "PATIENT"}, {"start": 24, "end": 28, "type": "DOCTOR", "source": CANARY}]
    for name, spans in (("gold", gold), ("pred", pred)):
        line = {"id": "n1", "text": text, "spans": spans}
        (root / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    files = ["--gold", str(root / "gold.jsonl"), "--pred", str(root / "pred.jsonl"), "--html", str(root / "r.html")]
    done = CliRunner().invoke(main, ["eval", *files])
    assert done.exit_code == 0, done.output
    return root / "r.html"


@pytest.mark.parametrize("width", [1200, 360])
async def test_an_evaluation_report_works_alone_and_in_the_console(
    file: Path, report: Path, chromium: str, width: int
) -> None:
    async with world(file, report=report) as shown, browsing(chromium, width=width) as seen:
        for address in (report.as_uri(), f"{shown.base}/console/report"):
            await seen.page.goto(address)
            await seen.page.wait_for_selector("form:visible")
            for folded in await seen.page.query_selector_all("summary"):
                await folded.click()
            assert await seen.page.locator(".m:visible").count() == 2
            assert CANARY in await seen.page.inner_text("main")
            await seen.page.fill("[name=t]", "Vane")
            await seen.page.select_option("[name=k]", "missed")
            assert await seen.page.locator(".m:visible").count() == 1
            assert await seen.width() <= width
            ground = "getComputedStyle(document.body).backgroundColor"
            assert await seen.page.evaluate(ground) == "rgb(245, 247, 249)", "the console's own"
        assert seen.messages == []
        assert {url.partition("/console")[0] for url in seen.requested} == {shown.base, report.as_uri()}


async def test_with_a_token_the_report_opens_only_from_its_page(file: Path, report: Path, chromium: str) -> None:
    async with world(file, AccessSettings(TOKEN), report=report) as shown, browsing(chromium) as seen:
        page = seen.page
        await entered(shown, page)
        seen.messages.clear()  # Chromium's advice on login forms
        await page.goto(f"{shown.base}/console/report")
        await page.wait_for_url("**/console/evaluation")
        async with page.context.expect_page() as opening:
            await page.click("text=Open the report")
        tab = await opening.value
        await tab.wait_for_selector("form:visible")
        assert "DOCTOR: 1 missed, 1 alarm" in await tab.inner_text("main")
        assert await tab.evaluate("origin") == "null", "it is not a page of the console"
        ground = "getComputedStyle(document.body).backgroundColor"
        assert await tab.evaluate(ground) == "rgb(245, 247, 249)"
        await tab.reload()
        await tab.wait_for_url("**/console/evaluation")
        assert seen.messages == []


async def entered(shown: World, page: Page) -> None:
    await page.goto(f"{shown.base}/console/login")
    await page.fill("#token", TOKEN)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(READY[""])


async def test_a_page_of_another_port_can_neither_read_nor_act(file: Path, chromium: str) -> None:
    """A page of another port is of the same site to a browser: its requests bring cookies along."""
    async with console(file) as shown, console(file) as other, browsing(chromium) as seen:
        await seen.page.goto(f"{other.base}/console/login")
        read = f"fetch('{shown.base}/console/api/overview').then((a) => a.status, () => 'shut')"
        assert await seen.page.evaluate(read) == "shut"
        form = f"fetch('{shown.base}/console/api/playground', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})"
        assert await seen.page.evaluate(f"{form}.then((a) => a.type, () => 'shut')") == "shut"


async def test_a_cookie_seen_by_another_port_grants_no_access(file: Path, chromium: str) -> None:
    """The browser requests an address below the cookie's path from it, and sends the cookie but not the page key."""
    met: list[web.BaseRequest] = []

    async def other(request: web.BaseRequest) -> web.Response:
        met.append(request)
        return web.Response(text="<script>document.title = localStorage.length</script>", content_type="text/html")

    server = web.ServerRunner(web.Server(other))
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    try:
        async with console(file, AccessSettings(TOKEN, write=True)) as shown, browsing(chromium) as seen:
            await entered(shown, seen.page)
            await seen.page.goto(f"http://127.0.0.1:{server.addresses[0][1]}/console/x")
            assert await seen.page.title() == "0"
            stolen = met[0].headers["Cookie"]
            assert stolen.startswith("deid-console-") and PAGE_HEADER not in met[0].headers
            for path in ("dead-letters", "audit", "session"):
                assert (await shown.get(f"api/{path}", Cookie=stolen))[0] == 401
            body = {"records": ["files/0/2"]}
            assert (await shown.post("api/replay", body, {"Cookie": stolen} | ACT))[0] == 401
            await seen.page.goto(f"{shown.base}/console/dead-letters")
            await seen.page.wait_for_selector(READY["dead-letters"])
            await seen.page.evaluate("localStorage.clear()")
            await seen.page.goto(f"{shown.base}/console/audit")
            await seen.page.wait_for_url("**/console/login")
    finally:
        await server.cleanup()


async def test_a_key_pressed_on_the_login_page_goes_to_its_field(file: Path, chromium: str) -> None:
    async with console(file, AccessSettings(TOKEN)) as shown, browsing(chromium) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/")
        await page.wait_for_url("**/console/login")
        await page.keyboard.type("abc")
        assert await page.input_value("#token") == "abc", "it has the focus from the start"
        await page.click("footer")
        assert await page.evaluate("document.activeElement.tagName") == "BODY"
        await page.keyboard.type("de f")
        assert await page.input_value("#token") == "abcde f", "and gets it back with the first key"
        await page.focus("#login button")
        await page.keyboard.press("Space")
        await page.wait_for_selector("#problem:has-text('not the token')")
