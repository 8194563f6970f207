"""The console in a real browser: every page, with mouse and keyboard, on a desktop and on a phone."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.browser import browsing
from support.console_pages import READY, assert_isolated, console
from support.consoles import CANARY

from deid_agent.http.console import PAGES


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)], ids=["desk", "phone"])
@pytest.mark.smoke
async def test_every_page_shows_its_content_and_contacts_no_other_host(
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
                assert await seen.page.locator(".entry").count() == 6, "an entry of another form hides no other"
            if name == "":
                for folded in await seen.page.query_selector_all("summary"):
                    await folded.click()
            assert await seen.width() <= width, name
            assert await seen.page.locator("main img").count() == 0, "untrusted markup became an element"
            if name in {"", "dead-letters", "audit"}:
                assert CANARY in await seen.page.inner_text("main"), f"{name}: must be shown as text"
        assert_isolated(shown, seen)


async def test_the_playground_shows_before_and_after_with_causes(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium) as seen:
        page = seen.page
        await page.goto(f"{shown.base}/console/playground")
        await page.wait_for_selector(READY["playground"])
        await page.fill("#text", f"Plan {CANARY} unchanged. Seen by Dr. Ines Castellano on 03/04/2019. MRN: 4471902.")
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
        assert "?" not in page.url and "Castellano" not in "".join(seen.requested)
        stored = "[localStorage.length, sessionStorage.length, document.cookie]"
        assert await page.evaluate(stored) == [0, 0, ""]
        await page.goto(f"{shown.base}/console/rules")
        await page.go_back()
        await page.wait_for_selector(READY["playground"])
        assert await page.input_value("#text") == "", "the browser history restores nothing"
        assert_isolated(shown, seen)


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
        assert_isolated(shown, seen)


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
        await page.focus("nav a[href='/console/dead-letters']")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(READY["dead-letters"])
        assert_isolated(shown, seen)


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


async def test_plots_follow_the_numbers(file: Path, chromium: str) -> None:
    async with console(file, interval_s=0.2) as shown, browsing(chromium) as seen:
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
        assert_isolated(shown, seen)


async def test_old_addresses_of_the_dead_letters_redirect_to_the_new_ones(file: Path, chromium: str) -> None:
    async with console(file) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/letters")
        await seen.page.wait_for_selector(READY["dead-letters"])
        assert seen.page.url == f"{shown.base}/console/dead-letters"
        assert_isolated(shown, seen)


async def test_all_times_are_iso_8601_in_utc(file: Path, chromium: str) -> None:
    """Whatever the zone and the language of the browser."""
    async with console(file) as shown, browsing(chromium, zone="America/New_York", language="de-DE") as seen:
        shown.sources.history.take_sample()
        shown.sources.history.take_sample()
        for name in ("", "dead-letters", "audit"):
            await seen.page.goto(f"{shown.base}/console/{name}")
            await seen.page.wait_for_selector(READY[name])
            await seen.page.wait_for_selector("main time")
            if name == "":
                await seen.page.click("#throughput summary")
                await seen.page.wait_for_selector("#throughput td time")
            times = seen.page.locator("main time")
            texts = await times.all_inner_texts()
            valid = [text for text in texts if re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)]
            assert len(valid) >= 2 and set(texts) - set(valid) <= {"-"}, "a dash only for the forged time"
            assert await times.evaluate_all("(all) => all.every((one) => one.dateTime === one.textContent)")
            now = datetime.fromisoformat(max(valid))
            assert abs((datetime.now(UTC) - now).total_seconds()) < 600, "not shifted by the zone"
        assert_isolated(shown, seen)


async def test_counts_of_one_are_singular(own: Path, chromium: str) -> None:
    next((own.parent / "dead").glob("files-0-*2.json")).unlink()
    async with console(own) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/dead-letters")
        await seen.page.wait_for_selector(READY["dead-letters"])
        assert (await seen.page.inner_text("#list caption")).startswith("1 dead letter.")
        await seen.page.goto(f"{shown.base}/console/audit?x")
        await seen.page.fill("[name=offset]", "1")
        await seen.page.click("#search button")
        await seen.page.wait_for_selector("#found:has-text('1 entry, newest first.')")
