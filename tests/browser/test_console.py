"""The console in a real browser: every page, by mouse and by keyboard, on a desk and on a phone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from playwright.async_api import Page
from support.browser import Watched, browsing
from support.consoles import ACT, CANARY, OPEN, TOKEN, World, ran, world

from deid_agent import key, policy, resources
from deid_agent.cli import main
from deid_agent.console.assets import PAGES
from deid_agent.console.gate import PAGE_HEADER, Access
from deid_agent.console.room import Room
from deid_agent.console.trying import MOST, Trial
from deid_agent.telemetry import events
from deid_agent.wiring import Workshop

READY = {
    "": "#tiles .tile",
    "letters": "#list td",
    "audit": ".entry",
    "rules": "#rules td",
    "playground": "#state:has-text('Ready')",
    "evaluation": "#models td",
}
"""What is there once a page has what it asked for."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders whose letters and audit hold markup wherever somebody could have brought it in."""
    root = tmp_path_factory.mktemp("agent")
    file = ran(root, sealed=False)
    (root / "dead" / f"files-{CANARY.replace('/', '')}-1.json").write_text("none")
    letter = next((root / "dead").glob("files-0-*2.json"))
    said = json.loads(letter.read_text())
    letter.write_text(json.dumps(said | {"deid.error.where": CANARY}))
    path = root / "audit" / "00000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    forged = lines[2].replace(b'"topic":"files"', b'"topic":' + json.dumps(CANARY).encode())
    remark = {"path": CANARY, "type": CANARY, "method": CANARY, "source": CANARY, "count": 1}
    forged = forged.replace(b'"remarks":[', b'"remarks":[' + json.dumps(remark).encode() + b",")
    odd = b'{"kind":"entry","time":"never","offset":9,"outcome":7,"remarks":["x",{"count":"many"}]}\n'
    path.write_bytes(b"".join([*lines, odd, forged]))
    return file


def room() -> Room:
    rules = resources.folder("rules")
    made = policy.load("pseudonymised", rules)
    return Room(Trial(Workshop(rules=rules, key=key.Key(bytes(32)), policy=made, max_bytes=MOST)), deadline_s=60)


@asynccontextmanager
async def console(file: Path, access: Access = OPEN, every_s: float = 3600) -> AsyncIterator[World]:
    async with world(file, access, room=room(), every_s=every_s) as shown:
        shown.telemetry.emit(events.BatchSettled(CANARY, 0, 20, 18, 0, 2, 0.2))
        shown.telemetry.emit(events.Gauged(CANARY, 0, 4, 7))
        shown.telemetry.emit(events.RecordProcessed("adt/0/1", 0.03, 1, (), (("DATE", 3), (CANARY, 1))))
        shown.sources.history.take()
        yield shown


def kept_to(shown: World, seen: Watched) -> None:
    """No word on the console, no script of a canary, no request to anybody else."""
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith(f"{shown.base}/console/")] == []
    assert seen.asked


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)], ids=["desk", "phone"])
async def test_every_page_shows_what_it_should_and_asks_nobody_else(
    file: Path, chromium: str, width: int, dark: bool
) -> None:
    async with console(file) as shown, browsing(chromium, width=width, dark=dark) as seen:
        for name, title in PAGES.items():
            await seen.page.goto(f"{shown.base}/console/{name}")
            await seen.page.wait_for_selector(READY[name])
            assert await seen.page.inner_text("h1") == title
            if name == "audit":
                await seen.page.click(".entry summary")
                await seen.page.wait_for_selector(".entry table")
                await seen.page.wait_for_selector("#chain .notice.bad")
                await seen.page.locator(".entry summary").nth(1).click()
                await seen.page.wait_for_selector(".entry:nth-child(2) table")
                assert await seen.page.locator(".entry").count() == 6, "one of another form hides no other"
            if name == "":
                for folded in await seen.page.query_selector_all("summary"):
                    await folded.click()
            assert await seen.width() <= width, name
            assert await seen.page.locator("main img").count() == 0, "markup of somebody else became an element"
            if name in {"", "letters", "audit"}:
                assert CANARY in await seen.page.inner_text("main"), f"{name}: shown as the text that it is"
        kept_to(shown, seen)


async def test_the_playground_shows_before_and_after_with_what_stands_behind(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/playground")
        await page.wait_for_selector(READY["playground"])
        await page.fill("#text", f"Seen by Dr. Ines Castellano on 03/04/2019. {CANARY} MRN: 4471902.")
        await page.click("button[type=submit]")
        marks = page.locator("#result .pair > div").nth(0).locator("mark")
        await marks.first.wait_for()
        assert await marks.all_inner_texts() == ["Ines CastellanoDOCTOR", "03/04/2019DATE", "4471902MEDICALRECORD"]
        assert [await mark.get_attribute("class") for mark in await marks.all()] == ["c-NAME", "c-DATE", "c-ID"]
        after = await page.locator("#result .pair > div").nth(1).inner_text()
        assert CANARY in after and "Castellano" not in after and "4471902" not in after
        await marks.first.focus()
        assert "rule doctor-title" in await page.inner_text(".detail")
        await page.click("#result summary")
        assert "mrn-labelled" in await page.inner_text("#result table")
        assert await page.locator("main img").count() == 0
        assert "?" not in page.url and "Castellano" not in "".join(seen.asked)
        stored = "[localStorage.length, sessionStorage.length, document.cookie]"
        assert await page.evaluate(stored) == [0, 0, ""]
        await page.goto(f"{shown.base}/console/rules")
        await page.go_back()
        await page.wait_for_selector(READY["playground"])
        assert await page.input_value("#text") == "", "nothing comes back with the history"
        kept_to(shown, seen)


async def test_a_message_keeps_its_segments(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium, width=360) as seen:
        await seen.page.goto(f"{shown.base}/console/playground")
        await seen.page.wait_for_selector(READY["playground"])
        await seen.page.click("#hl7")
        await seen.page.click("button[type=submit]")
        before = await seen.page.locator("#result pre").nth(0).inner_text()
        after = await seen.page.locator("#result pre").nth(1).inner_text()
        assert before.count("\n") == after.count("\n") == 5
        assert "OKAFOR" in before and "OKAFOR" not in after and "Okafor" not in after
        assert await seen.width() <= 360
        kept_to(shown, seen)


async def test_the_keyboard_reaches_everything(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/")
        await page.wait_for_selector(READY[""])
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        assert await page.evaluate("document.activeElement.getBoundingClientRect().left >= 0"), "seen once it has focus"
        met = set()
        for _ in range(40):
            await page.keyboard.press("Tab")
            met.add(await page.evaluate(NAMED))
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.evaluate(f"document.activeElement === document.body || {outline} !== 'none'")
        assert {f"a {title}" for title in PAGES.values()} <= met
        assert {"button 5 min", "button 1 hour", "svg ", "summary Numbers"} <= met
        await page.locator("#throughput svg.plot").focus()
        await page.keyboard.press("Home")
        assert await page.locator("#throughput .readout").get_attribute("aria-live") == "polite"
        await page.focus("nav a[href='/console/letters']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(READY["letters"])
        kept_to(shown, seen)


NAMED = """(() => { const at = document.activeElement;
  return at.tagName.toLowerCase() + " " + (at.tagName === "svg" ? "" : at.textContent.trim()) })()"""


async def test_every_control_has_a_name(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium) as seen:
        for name in PAGES:
            await seen.page.goto(f"{shown.base}/console/{name}")
            await seen.page.wait_for_selector(READY[name])
            assert await seen.page.evaluate(NAMELESS) == []
            assert await seen.page.evaluate("document.documentElement.lang") == "en"


NAMELESS = """[...document.querySelectorAll("input, select, textarea, button, svg[role=img], img, nav")]
  .filter((node) => !(node.labels?.length || node.getAttribute("aria-label") || node.hasAttribute("alt")
    || (node.tagName === "BUTTON" && node.textContent.trim())))
  .map((node) => node.outerHTML.slice(0, 80))"""


async def test_plots_move_with_the_numbers(file: Path, chromium: str) -> None:
    async with console(file, every_s=0.2) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/")
        await seen.page.wait_for_selector("#throughput path.area")
        await seen.page.click("#throughput summary")
        await seen.page.wait_for_selector("#throughput td")
        assert await seen.page.locator("#throughput thead th").all_inner_texts() == [
            "time", "published", "dead lettered", "suppressed",
        ]  # fmt: skip
        first = await seen.page.inner_text("#since")
        await seen.page.wait_for_function(
            "(first) => document.getElementById('since').textContent !== first", arg=first
        )
        kept_to(shown, seen)


async def test_a_replay_is_refused_without_a_token(file: Path, chromium: str) -> None:
    """The page offers none, and the agent refuses one that the page is made to send."""
    async with console(file) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/letters")
        await seen.page.wait_for_selector(READY["letters"])
        assert not await seen.page.is_visible("#replay")
        assert await seen.page.is_visible("#readonly")
        assert await seen.page.evaluate(SENT) == [403, "write"]


SENT = """fetch("/console/api/replay", {method: "POST", body: JSON.stringify({records: ["files/0/2"]}),
  headers: {"Content-Type": "application/json", "X-Deid-Console": "1"}})
  .then(async (answer) => [answer.status, (await answer.json()).error])"""


async def test_with_a_token_one_logs_in_puts_a_letter_back_and_logs_out(own: Path, chromium: str) -> None:
    async with console(own, Access(TOKEN, write=True)) as shown, browsing(chromium, width=360) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/letters")
        await page.wait_for_url("**/console/login")
        await page.fill("#token", "not the token, but long")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#said:has-text('not the token')")
        await page.fill("#token", TOKEN)
        await page.keyboard.press("Enter")
        await page.wait_for_selector(READY[""])
        assert await page.evaluate("document.cookie") == "", "no script reads it"
        await page.goto(f"{shown.base}/console/letters")
        await page.wait_for_selector("#replay button")
        await page.check("[aria-label='choose files/0/2']")
        await page.click("#replay button")
        await page.wait_for_selector("#done .notice.good")
        assert "1 put back, 0 not." in await page.inner_text("#done")
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
async def test_the_report_of_an_evaluation_works_alone_and_in_the_console(
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
        assert seen.said == []
        assert {url.partition("/console")[0] for url in seen.asked} == {shown.base, report.as_uri()}


async def test_with_a_token_the_report_opens_from_its_page_and_from_no_address(
    file: Path, report: Path, chromium: str
) -> None:
    async with world(file, Access(TOKEN), report=report) as shown, browsing(chromium) as seen:
        page = seen.page
        await entered(shown, page)
        seen.said.clear()  # Chromium's advice on login forms
        await page.goto(f"{shown.base}/console/report")
        await page.wait_for_url("**/console/evaluation")
        async with page.context.expect_page() as opening:
            await page.click("text=Open the report")
        tab = await opening.value
        await tab.wait_for_selector("form:visible")
        assert "DOCTOR: 1 missed, 1 alarm" in await tab.inner_text("main")
        assert await tab.evaluate("origin") == "null", "it is no page of the console"
        ground = "getComputedStyle(document.body).backgroundColor"
        assert await tab.evaluate(ground) == "rgb(245, 247, 249)"
        await tab.reload()
        await tab.wait_for_url("**/console/evaluation")
        assert seen.said == []


async def entered(shown: World, page: Page) -> None:
    await page.goto(f"{shown.base}/console/login")
    await page.fill("#token", TOKEN)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(READY[""])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return ran(tmp_path, sealed=False)


async def test_another_port_of_this_machine_learns_and_does_nothing(file: Path, chromium: str) -> None:
    """A page of another port is of the same site to a browser: its requests bring cookies along."""
    async with console(file) as shown, console(file) as other, browsing(chromium) as seen:
        await seen.page.goto(f"{other.base}/console/login")
        read = f"fetch('{shown.base}/console/api/overview').then((a) => a.status, () => 'shut')"
        assert await seen.page.evaluate(read) == "shut"
        form = f"fetch('{shown.base}/console/api/playground', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})"
        assert await seen.page.evaluate(f"{form}.then((a) => a.type, () => 'shut')") == "shut"


async def test_a_server_of_another_port_gets_the_cookie_and_nothing_for_it(file: Path, chromium: str) -> None:
    """It has the browser ask it for an address below the cookie's path. What the pages keep is not sent to it."""
    met: list[web.BaseRequest] = []

    async def other(request: web.BaseRequest) -> web.Response:
        met.append(request)
        return web.Response(text="<script>document.title = localStorage.length</script>", content_type="text/html")

    server = web.ServerRunner(web.Server(other))
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    try:
        async with console(file, Access(TOKEN, write=True)) as shown, browsing(chromium) as seen:
            await entered(shown, seen.page)
            await seen.page.goto(f"http://127.0.0.1:{server.addresses[0][1]}/console/x")
            assert await seen.page.title() == "0"
            stolen = met[0].headers["Cookie"]
            assert stolen.startswith("deid-console-") and PAGE_HEADER not in met[0].headers
            for place in ("letters", "audit", "session"):
                assert (await shown.get(f"api/{place}", Cookie=stolen))[0] == 401
            body = {"records": ["files/0/2"]}
            assert (await shown.post("api/replay", body, {"Cookie": stolen} | ACT))[0] == 401
            await seen.page.goto(f"{shown.base}/console/letters")
            await seen.page.wait_for_selector(READY["letters"])
            await seen.page.evaluate("localStorage.clear()")
            await seen.page.goto(f"{shown.base}/console/audit")
            await seen.page.wait_for_url("**/console/login")
    finally:
        await server.cleanup()
