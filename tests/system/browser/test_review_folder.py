"""The whole review over a sealed folder in a real browser: two reviewers, a dispute, its adjudication, the gold."""

from pathlib import Path

from playwright.async_api import Page
from support.browser import browsing
from support.consoles import OPEN, world

from deid_agent.config import SecretKey
from deid_agent.http import DeskItem
from deid_agent.model import ANNOTATION, PhiType, Span
from deid_agent.review import ReviewFolder, load_review_key, make_key_file, open_desk, read_gold
from deid_agent.review.records import Proposal, QueueEntry, ReviewIndex, ReviewNote

NOTE = "0a" * 10
TEXT = "😀 Mr. Okafor\u00a0saw Dr. Vane.\r\nFoley removed."


def made(folder: Path, key: SecretKey) -> dict[str, str]:
    """A folder with one note and two proposals, of which one is wrong; the tokens of its reviewers."""
    opened, tokens = ReviewFolder.make(folder, key, ["anna", "ben", "cara"])
    spans = [(TEXT.index(value), len(value), kind) for value, kind in (("Okafor", "PATIENT"), ("Foley", "DOCTOR"))]
    proposals = tuple(
        Proposal(Span(begin, begin + size, PhiType(kind), ANNOTATION), kind == "DOCTOR") for begin, size, kind in spans
    )
    with opened.locked():
        opened.write_note(ReviewNote(NOTE, "p1", "note", TEXT, proposals=proposals))
        opened.write_index(ReviewIndex((QueueEntry(NOTE, ("random",), len(TEXT)),)))
    return tokens


async def enter(page: Page, base: str, token: str) -> None:
    await page.goto(f"{base}/console/login")
    await page.fill("#token", token)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f"a[href='#{NOTE}']")
    await page.click(f"a[href='#{NOTE}']")
    await page.wait_for_selector("#text mark.on")


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def test_two_reviewers_and_an_adjudicator_make_gold_of_a_sealed_folder(
    file: Path, tmp_path: Path, chromium: str
) -> None:
    make_key_file(tmp_path / "review.key")
    key = load_review_key(tmp_path / "review.key")
    tokens = made(tmp_path / "gold", key)
    desk = open_desk(tmp_path / "gold", tmp_path / "review.key")
    async with world(file, OPEN, desk=desk) as shown, browsing(chromium) as seen:
        page = seen.page
        await enter(page, shown.base, tokens["anna"])
        await press(page, "d", "/")
        await page.keyboard.type("vane")
        await press(page, "Enter", "Enter", "d", "f")
        await page.wait_for_selector("#message:has-text('Finished.')")
        await enter(page, shown.base, tokens["ben"])
        assert await page.locator("#text mark").count() == 2, "the proposals, and nothing of the other reviewer"
        await press(page, "d", "f")
        await page.wait_for_selector("#message:has-text('the other reviewer differs')")
        await enter(page, shown.base, tokens["cara"])
        await press(page, "Enter", "s")
        await page.wait_for_selector("#message:has-text('Saved as a draft')")
        await enter(page, shown.base, tokens["cara"])
        assert await page.inner_text("#state") == "draft"
        assert await page.locator("#differences tbody tr").count() == 1
        await press(page, "1", "f")
        await page.wait_for_selector("#message:has-text('the decision is gold')")
    (item,) = desk.queue("anna")
    assert item == DeskItem(NOTE, item.state, ("random",), len(TEXT)) and item.state == "agreed"
    (gold,) = read_gold(tmp_path / "gold", key)
    found = [(gold.annotated.text[span.start : span.end], str(span.type)) for span in gold.annotated.spans]
    assert found == [("Okafor", "PATIENT"), ("Vane", "DOCTOR")]
