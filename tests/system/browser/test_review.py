"""The review of notes in a real browser: by keyboard alone, by mouse, two decisions, faults, hostile notes."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page
from support.browser import Watched, browsing
from support.console_pages import assert_isolated
from support.consoles import CANARY, OPEN, World, world
from support.review_desks import ANNA, BEN, CARA, TEXT, TOKEN_OF, MemoryDesk, proposals, span

from deid_agent.http.review_desk import DeskError, DeskSpan

NOTE, OTHER = "00aa11", "00bb22"
EMOJI = f"😀👩‍⚕️ Ines 😀😀\r\nMr. Okafor\u00a0\u202elived\u200b here 𝒵oe {CANARY}"

ADVICE = ("verbose: [DOM] Password forms", "info: Autofocus processing")
"""Chromium's advice on login forms, which it gives now and then."""


@asynccontextmanager
async def reviewing(
    file: Path, chromium: str, desk: MemoryDesk, name: str = ANNA, width: int = 1200, *, dark: bool = False
) -> AsyncIterator[tuple[World, Watched]]:
    """A console with this desk, and a browser in which a reviewer has logged in by keyboard."""
    async with world(file, OPEN, desk=desk) as shown, browsing(chromium, width=width, dark=dark) as seen:
        await enter(seen.page, shown.base, name)
        base = shown.base
        yield shown, seen
        assert [text for text in seen.messages if not text.startswith(ADVICE)] == []
        assert [url for url in seen.requested if not url.startswith(f"{base}/console/")] == []
        assert await seen.page.title() in {"Review · deid-agent", "Log in · deid-agent"}


async def enter(page: Page, base: str, name: str) -> None:
    await page.goto(f"{base}/console/review")
    await page.wait_for_url("**/console/login")
    await page.keyboard.type(TOKEN_OF[name])
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#queue:visible")


async def keys(page: Page, *pressed: str) -> None:
    for key in pressed:
        await page.keyboard.press(key)


async def labels(page: Page, inside: str = "#text") -> list[str]:
    """The marks with the labels that the style draws."""
    return list(
        await page.eval_on_selector_all(
            f"{inside} mark", "(all) => all.map((one) => one.textContent + '/' + (one.dataset.label ?? ''))"
        )
    )


def triples(spans: tuple[DeskSpan, ...], text: str = TEXT) -> list[tuple[str, str]]:
    return [(text[one.begin : one.end], one.type) for one in spans]


@pytest.mark.smoke
async def test_a_note_is_reviewed_by_keyboard_alone(file: Path, chromium: str) -> None:
    desk = MemoryDesk({NOTE: (TEXT, proposals()), OTHER: (EMOJI, ())})
    async with reviewing(file, chromium, desk) as (shown, seen):
        page = seen.page
        assert "anna" in await page.inner_text("#who")
        await page.focus("#start")
        await keys(page, "Enter")
        await page.wait_for_selector("#text mark.on")
        assert page.url == f"{shown.base}/console/review#{NOTE}"
        assert await labels(page) == [
            "Ines Castellano/DOCTOR", "03/04/2019/DATE", "Okafor/PATIENT ?", "Foley/DOCTOR ?",
        ]  # fmt: skip
        assert "Okafor" in await page.inner_text("#text mark.on"), "the first uncertain span"
        await keys(page, "Enter")
        assert await page.inner_text("#text mark.on") == "Foley"
        await keys(page, "d", "z", "d")
        await keys(page, "p", "p", "Shift+R", "Shift+E", "e", "r", "q", "w")
        assert await labels(page) == ["Ines Castellano/DOCTOR", "03/04/2019/DATE", "Okafor/PATIENT"]
        await keys(page, "n", "n", "t", "d")
        assert (await labels(page))[2] == "Okafor/DOCTOR"
        await keys(page, "t", "p")
        await keys(page, "a", "ArrowRight", "ArrowRight")
        assert await page.inner_text("#text mark.range") == "Zanesville"
        await keys(page, "Enter", "c")
        await keys(page, "/")
        await page.keyboard.type("447190")
        await keys(page, "Enter")
        await page.wait_for_selector("#text mark.range")
        await keys(page, "r", "Enter", "m", "s")
        await page.wait_for_selector("#message:has-text('Saved as a draft')")
        assert not await page.is_visible("#dirty")
        wanted = [
            ("Ines Castellano", "DOCTOR"), ("03/04/2019", "DATE"), ("Okafor", "PATIENT"), ("Zanesville", "CITY"),
            ("4471902", "MEDICALRECORD"),
        ]  # fmt: skip
        assert triples(desk.decided[ANNA, NOTE][0]) == wanted
        await keys(page, "f")
        await page.wait_for_selector(f"#name:has-text('{OTHER}')")
        assert desk.decided[ANNA, NOTE][1] and triples(desk.decided[ANNA, NOTE][0]) == wanted
        assert CANARY in await page.inner_text("#text") and await page.locator("#text img").count() == 0
        await keys(page, "f")
        await page.wait_for_selector("#queue:visible")
        assert "2 of 2 notes finished" in await page.inner_text("#done")
        assert await page.evaluate("[...Object.keys(localStorage), sessionStorage.length, document.cookie].join()") == (
            "deid-console,0,"
        )


async def test_offsets_are_exact_in_a_hostile_note(file: Path, chromium: str) -> None:
    text = EMOJI + "\n" + "x\r\n" * 30_000 + "Zuleika 😀"
    first = (
        span(text, "Ines", "DOCTOR"),
        span(text, "Okafor", "PATIENT", uncertain=True),
        span(text, "𝒵oe", "PATIENT"),
    )
    desk = MemoryDesk({NOTE: (text, first)})
    async with reviewing(file, chromium, desk) as (_, seen):
        page = seen.page
        await page.click("#start")
        await page.wait_for_selector("#text mark.on")
        assert await labels(page) == ["Ines/DOCTOR", "Okafor/PATIENT ?", "𝒵oe/PATIENT"]
        units = len(text.encode("utf-16-le")) // 2
        assert await page.evaluate("document.getElementById('text').textContent.length") == units
        shown = await page.evaluate("document.getElementById('text').textContent")
        assert not set("\u202e\u200d\r") & set(shown) and "◦lived◦ here" in shown
        await keys(page, "s")
        await page.wait_for_selector("#message:has-text('Saved')")
        assert desk.decided[ANNA, NOTE][0] == first
        await keys(page, "p", "Shift+R", "Shift+R", "Shift+Q", "Shift+Q")
        await keys(page, "a", "End", "Enter", "p", "s")
        await page.wait_for_selector("#dirty", state="hidden")
        assert triples(desk.decided[ANNA, NOTE][0], text) == [
            ("️ Ines 😀", "DOCTOR"), ("Okafor", "PATIENT"), ("𝒵oe", "PATIENT"), ("Zuleika", "PATIENT"),
        ]  # fmt: skip


async def test_everything_works_by_mouse(file: Path, chromium: str) -> None:
    desk = MemoryDesk({NOTE: (TEXT, proposals())})
    async with reviewing(file, chromium, desk) as (shown, seen):
        page = seen.page
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#text mark.on")
        await page.evaluate(SELECT, ["welder", -1, 1])
        await page.click("[data-do=add]")
        await page.click("#type-list button:has-text('PROFESSION')")
        await page.click("#text mark:has-text('Foley')")
        await page.click("[data-do=remove]")
        await page.click("#text mark:has-text('Okafor')")
        await page.click("[data-do=accept]")
        await page.click("#text mark:has-text('Ines')")
        await page.check("#fine")
        await page.click("[data-do=begin-right]")
        await page.click("[data-do=undo]")
        await page.uncheck("#fine")
        await page.click("[data-do=begin-right]")
        await page.click("[data-do=finish]")
        await page.wait_for_selector("#queue:visible")
        assert triples(desk.decided[ANNA, NOTE][0]) == [
            ("Castellano", "DOCTOR"), ("03/04/2019", "DATE"), ("Okafor", "PATIENT"), ("welder", "PROFESSION"),
        ]  # fmt: skip
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#message:has-text('cannot change')")
        assert not await page.is_visible("[data-do=finish]") and not await page.is_visible("#tools")
        await page.focus("#text")
        await keys(page, "d", "s", "f")
        assert len(await labels(page)) == 4
        await keys(page, "b")
        await page.wait_for_selector("#queue:visible")
        await page.goto(f"{shown.base}/console/review#ffff00")
        await page.wait_for_selector("#message:has-text('no such note')")
        assert await page.is_visible("#queue"), "an old address is no dead end"
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#text mark.on")
        await page.click("#leave")
        await page.wait_for_url("**/console/login")
        await page.go_back()
        await page.wait_for_url(re.compile(".*/console/login#.*"))
        assert "Okafor" not in await page.content()
        seen.messages[:] = [text for text in seen.messages if "Failed to load resource" not in text]


SELECT = """([word, before, after]) => {
  const walker = document.createTreeWalker(document.getElementById("text"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const at = walker.currentNode.data.indexOf(word);
    if (at < 0) continue;
    getSelection().setBaseAndExtent(walker.currentNode, at + before, walker.currentNode, at + word.length + after - 1);
    return;
  }
}"""


async def test_two_decisions_are_adjudicated(file: Path, chromium: str) -> None:
    common = span(TEXT, "03/04/2019", "DATE")
    decided = {
        (ANNA, NOTE): ((span(TEXT, "Ines Castellano", "DOCTOR"), common, span(TEXT, "Okafor", "PATIENT")), True),
        (BEN, NOTE): (
            (span(TEXT, "Castellano", "DOCTOR"), common, span(TEXT, "Okafor", "DOCTOR"), span(TEXT, "Foley", "DOCTOR")),
            True,
        ),
    }
    desk = MemoryDesk({NOTE: (TEXT, proposals())}, decided=dict(decided))
    async with reviewing(file, chromium, desk, CARA) as (_, seen):
        page = seen.page
        assert "disputed" in await page.inner_text("#notes")
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#both:visible")
        assert await page.locator("#sides h3").all_inner_texts() == ["1: anna", "2: ben"]
        assert await labels(page, "#sides") == [
            "Ines Castellano/DOCTOR ≠", "03/04/2019/DATE", "Okafor/PATIENT ≠",
            "Castellano/DOCTOR ≠", "03/04/2019/DATE", "Okafor/DOCTOR ≠", "Foley/DOCTOR ≠",
        ]  # fmt: skip
        assert await labels(page) == [
            "Ines Castellano/DOCTOR ?", "03/04/2019/DATE", "Okafor/PATIENT ?", "Foley/DOCTOR ?",
        ]  # fmt: skip
        assert await page.locator("#differences tbody tr").count() == 3
        await keys(page, "2")
        await keys(page, "f")
        await page.wait_for_selector("#message:has-text('2 uncertain spans are not accepted')")
        await keys(page, "1", "1")
        assert await labels(page) == ["Castellano/DOCTOR", "03/04/2019/DATE", "Okafor/PATIENT"]
        assert (await page.inner_text("#differences")).count("decided") == 3
        await keys(page, "s", "b")
        await page.wait_for_selector("#queue:visible")
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#both:visible")
        assert await labels(page) == ["Castellano/DOCTOR ?", "03/04/2019/DATE", "Okafor/PATIENT ?"], "to be confirmed"
        await page.click("text=Take all of ben")
        assert len(await labels(page)) == 4
        await page.click("[aria-label='Difference 3: take anna']")
        await keys(page, "f")
        await page.wait_for_selector("#queue:visible")
    assert triples(desk.gold[NOTE]) == [("Castellano", "DOCTOR"), ("03/04/2019", "DATE"), ("Okafor", "DOCTOR")]


async def test_unsaved_work_survives_a_lost_session_another_reviewer_and_a_full_disk(file: Path, chromium: str) -> None:
    desk = MemoryDesk({NOTE: (TEXT, proposals())})
    async with reviewing(file, chromium, desk) as (shown, seen):
        page = seen.page
        await page.click("#start")
        await page.wait_for_selector("#text mark.on")
        await keys(page, "Enter", "d")
        desk.fault = OSError(28, "full")
        await keys(page, "s")
        await page.wait_for_selector("#message:has-text('still on this page')")
        await page.context.clear_cookies()
        await keys(page, "s")
        await page.wait_for_selector("#again:has-text('Your session has ended')")
        assert len(await labels(page)) == 3
        await page.keyboard.type(TOKEN_OF[BEN])
        await keys(page, "Enter")
        await page.wait_for_selector("#again:has-text('Another reviewer has logged in')")
        assert desk.decided == {}
        await page.keyboard.type("wrong token that is long enough")
        await keys(page, "Enter")
        await page.wait_for_selector("#again:has-text('not the token')")
        await page.fill("#token", TOKEN_OF[ANNA])
        await keys(page, "Enter")
        await page.wait_for_selector("#message:has-text('Saved as a draft')")
        assert await page.is_hidden("#again")
        assert triples(desk.decided[ANNA, NOTE][0]) == triples(proposals()[:3])
        await keys(page, "p", "d")
        await page.evaluate("history.back()")
        await page.wait_for_selector("#message:has-text('not saved')")
        assert page.url.endswith(f"#{NOTE}") and len(await labels(page)) == 2
        await keys(page, "b")
        assert await page.is_visible("#desk")
        desk.fault = DeskError("finished", "you have finished this note")
        await keys(page, "s")
        await page.wait_for_selector("#message:has-text('see what was saved')")
        await keys(page, "b")
        await page.click(f"a[href='#{NOTE}']")
        await page.wait_for_selector("#text mark.on")
        await keys(page, "d")
        await shown.server.stop()
        await keys(page, "s")
        await page.wait_for_selector("#message:has-text('does not respond')")
        assert len(await labels(page)) == 2 and await page.is_visible("#dirty")
        seen.messages[:] = [text for text in seen.messages if "Failed to load resource" not in text]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)], ids=["desk", "phone"])
async def test_spans_are_readable_without_colour_and_every_control_has_a_name(
    file: Path, chromium: str, width: int, dark: bool
) -> None:
    kinds = ("PATIENT", "PROFESSION", "CITY", "AGE", "DATE", "PHONE", "SSN")
    text = " ".join(f"value{n}" for n in range(len(kinds)))
    desk = MemoryDesk({NOTE: (text, tuple(span(text, f"value{n}", kind) for n, kind in enumerate(kinds)))})
    async with reviewing(file, chromium, desk, width=width, dark=dark) as (shown, seen):
        page = seen.page
        await page.click("#start")
        await page.wait_for_selector("#text mark.on")
        await keys(page, "a")
        assert await page.evaluate(CONTRAST) >= 4.5
        assert await seen.width() <= width
        await keys(page, "Escape", "n")
        assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == (
            "PROFESSION, value1, span 2 of 7"
        )
        for opened, closed in (("?", "#no-help"), ("/", "#no-search")):
            await keys(page, opened)
            assert await page.evaluate(NAMELESS) == []
            await page.click(closed)
        await keys(page, "t")
        assert await page.locator("#type-list button").count() == 28
        assert await page.evaluate(CONTRAST) >= 4.5
        await keys(page, "Escape", "b")
        await page.wait_for_selector("#queue:visible")
        assert await page.evaluate(NAMELESS) == []
        assert await seen.width() <= width
        assert_isolated_requests(shown, seen)


def assert_isolated_requests(shown: World, seen: Watched) -> None:
    seen.messages.clear()
    assert_isolated(shown, seen)


CONTRAST = """(() => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratios = [...document.querySelectorAll("#text mark, #type-list button")].map((one) => {
    const style = getComputedStyle(one);
    const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
  return Math.min(...ratios);
})()"""
NAMELESS = """[...document.querySelectorAll("input, button, dialog, progress, [role=application], [role=group], a")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim()))
  .map((node) => node.outerHTML.slice(0, 80))"""


async def test_every_sign_of_a_search_is_plain_text(file: Path, chromium: str) -> None:
    words = ("Mei-Lin", "a+b*", "[c]", "{2}", "x|y/z", "^q$", "(p?", "u\\d", "3.5")
    desk = MemoryDesk({NOTE: ("\n".join(("x", *words)), ())})
    async with reviewing(file, chromium, desk) as (_, seen):
        page = seen.page
        await page.click("#start")
        await page.wait_for_selector("#text:not(:empty)")
        for word in words:
            await keys(page, "/")
            await page.fill("#wanted", word)
            await keys(page, "Enter")
            assert await page.inner_text("#text mark.range") == word
            await keys(page, "Escape")


async def test_the_functions_on_texts_and_spans(file: Path, chromium: str) -> None:
    async with world(file, OPEN, desk=MemoryDesk({})) as shown, browsing(chromium) as seen:
        await seen.page.goto(f"{shown.base}/console/login")
        assert await seen.page.evaluate(FUNCTIONS) == []


FUNCTIONS = r"""import("/console/web/review-spans.js").then((s) => {
  const wrong = [];
  const is = (name, got, wanted) => JSON.stringify(got) === JSON.stringify(wanted) || wrong.push([name, got, wanted]);
  const text = "a😀b \ud83d Zoë-Ann, x";
  const at = s.positions(text);
  is("points", at.points, [...text].length);
  is("there and back", [...text].map((_, i) => at.toPoints(at.toUnits(i))), [...text].map((_, i) => i));
  const count = at.points;
  const odd = [[0, 99]], empty = [[3, 3]], outside = [[-1, 2]], nested = [[0, 3], [2, 4]], half = [[0.5, 2]];
  const wrongSpans = [odd, empty, outside, nested, half].map((spans) => [count, spans]);
  for (const [n, spans] of [[9, []], [17, []], ...wrongSpans]) {
    let thrown = false;
    try { s.fromServer(text, n, spans.map(([begin, end]) => ({ begin, end }))); } catch { thrown = true; }
    is(`refused ${n} ${spans}`, thrown, true);
  }
  const span = (begin, end, type = "DATE") => ({ begin, end, type, source: "", uncertain: false });
  is("round trip", s.toServer(text, s.fromServer(text, at.points, [span(1, 2), span(6, 9)])), [span(1, 2), span(6, 9)]);
  for (const odd of ["\r", "\r\n", "\u202e", "\u{e0041}", "\0", "\x7f", "\ud83d", "\u2028", "\ufeff", "\u3164"]) {
    is(`length ${escape(odd)}`, s.forScreen(`a${odd}b`).length, odd.length + 2);
    is(`changed ${escape(odd)}`, s.forScreen(odd) !== odd, true);
  }
  is("kept", s.forScreen("é \t\n\u00a0😀שلا"), "é \t\n\u00a0😀שلا");
  is("pair", [s.forward("😀", 0), s.backward("😀", 2), s.forward("x", 1), s.backward("x", 0)], [2, 0, 1, 0]);
  const note = "Dr. Ines Castellano, ok";
  is("shrink to the word before", s.moveEdge(note, [span(4, 19)], 0, "end", -1, "word"), span(4, 8));
  is("shrink to the word after", s.moveEdge(note, [span(4, 19)], 0, "begin", 1, "word"), span(9, 19));
  is("extend to the right", s.moveEdge(note, [span(4, 8)], 0, "end", 1, "word"), span(4, 19));
  is("extend to the left", s.moveEdge(note, [span(4, 8)], 0, "begin", -1, "word"), span(0, 8));
  is("never empty", s.moveEdge(note, [span(4, 5)], 0, "end", -1, "character"), null);
  is("not over a neighbour", s.moveEdge(note, [span(0, 2), span(4, 8)], 1, "begin", -1, "word"), span(2, 8));
  is("not over the end", s.moveEdge(note, [span(21, 23)], 0, "end", 1, "word"), null);
  is("trimmed", s.trimmed(" 😀 ", 2, 4), { begin: 1, end: 3 });
  is("only blanks", s.trimmed("a  b", 1, 3), null);
  const three = [span(0, 2), span(3, 5), span(8, 9)];
  is("in place of others", s.withSpan(three, span(1, 4)), { spans: [span(1, 4), span(8, 9)], index: 0, replaced: 2 });
  const regions = s.differences([span(0, 2), span(4, 9)], [span(0, 2), span(4, 6), span(7, 9), span(20, 21)]);
  is("regions", regions.map((r) => [r.begin, r.end, r.sides.map((x) => x.length)]), [[4, 9, [1, 2]], [20, 21, [0, 1]]]);
  is("a type differs", s.differences([span(0, 2)], [span(0, 2, "AGE")]).length, 1);
  const merged = s.merged([span(0, 2), span(4, 9)], [span(0, 2), span(20, 21)]);
  is("no span is lost", merged.map((x) => [x.begin, x.uncertain]), [[0, false], [4, true], [20, true]]);
  is("nothing chosen", s.withSide(merged, { begin: 20, end: 21, sides: [[], [span(20, 21)]] }, 0).length, 2);
  const parts = [[0, 1, -1, false], [1, 2, 0, false], [2, 3, 0, true], [3, 5, -1, true], [5, 6, -1, false]];
  is("pieces", s.pieces(6, [span(1, 3)], { begin: 2, end: 5 }), parts);
  is("no word", [s.wordAt("  ", 0), s.wordAt("", 0), s.wordBefore(" a", 0)], [null, null, null]);
  is("word", [s.wordAt("ab cd", 1), s.wordAt("ab cd ", 6)], [{ begin: 0, end: 2 }, { begin: 3, end: 5 }]);
  return wrong;
})"""
