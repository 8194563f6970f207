"""The rules page in a real browser: hundreds of rules, searched and turned by keyboard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Page, Route
from support.browser import Watched, browsing
from support.console_pages import READY, assert_isolated, console
from support.consoles import CANARY, World


def many_rules(body: dict[str, Any], count: int) -> dict[str, Any]:
    """The response for the rules page with so many rules."""
    rules = [
        {"id": f"rule-{n:03}", "kind": "veto" if n % 10 == 0 else "pattern", "types": ["DATE"], "confidence": "high"}
        | {"why": "a drug" if n % 100 == 7 else "a date", "digest": f"{n:016x}"}
        for n in range(1, count + 1)
    ]
    return body | {"found": body["found"] | {"rules": rules}}


@asynccontextmanager
async def rules_page(file: Path, chromium: str, count: int = 420) -> AsyncIterator[tuple[World, Watched]]:
    async with console(file) as shown, browsing(chromium) as seen:
        await shown.finished("api/inventory")

        async def answer(route: Route) -> None:
            response = await route.fetch()
            await route.fulfill(response=response, json=many_rules(await response.json(), count))

        await seen.page.route("**/api/inventory", answer)
        await seen.page.goto(f"{shown.base}/console/rules")
        await seen.page.wait_for_selector(READY["rules"])
        yield shown, seen
        assert_isolated(shown, seen)


async def first_rule(page: Page) -> str:
    return await page.locator("#rules tbody tr").first.locator("td").first.inner_text()


async def test_hundreds_of_rules_are_paginated(file: Path, chromium: str) -> None:
    async with rules_page(file, chromium) as (_, seen):
        page = seen.page
        assert await page.locator("#rules tbody tr").count() == 50
        assert await page.inner_text("#count") == "Rules 1 to 50 of 420."
        assert await page.is_disabled("#previous")
        await page.click("#next")
        assert await first_rule(page) == "rule-051"
        assert page.url.endswith("/console/rules?page=2")
        for _ in range(7):
            await page.click("#next")
        assert await page.inner_text("#count") == "Rules 401 to 420 of 420."
        assert await page.is_disabled("#next")
        await page.click("#previous")
        assert await page.inner_text("#page") == "Page 8 of 9"


async def test_rules_are_searched_by_keyboard_and_the_address_keeps_the_search(file: Path, chromium: str) -> None:
    async with rules_page(file, chromium) as (_, seen):
        page = seen.page
        await page.click("#next")
        await page.focus("[name=text]")
        await page.keyboard.type("drug")
        assert await page.inner_text("#count") == "5 rules found, 420 in total."
        assert await first_rule(page) == "rule-007"
        assert not await page.is_visible("#pages")
        await page.keyboard.press("Enter")
        assert page.url.endswith("/console/rules?text=drug"), "the search starts at the first page"
        await page.reload()
        await page.wait_for_selector(READY["rules"])
        assert await page.inner_text("#count") == "5 rules found, 420 in total."
        await page.fill("[name=text]", "rule-419")
        assert await page.inner_text("#count") == "1 rule found, 420 in total."
        await page.fill("[name=text]", "")
        await page.select_option("[name=kind]", "veto")
        assert await page.inner_text("#count") == "42 rules found, 420 in total."
        await page.fill("[name=text]", CANARY)
        assert await page.inner_text("#rules") == "No rule matches."
        await page.goto(page.url.split("?")[0] + "?page=9&kind=x")
        await page.wait_for_selector("#page:has-text('Page 9 of 9')")


async def test_the_pages_of_rules_are_turned_by_keyboard(file: Path, chromium: str) -> None:
    async with rules_page(file, chromium, count=70) as (_, seen):
        page = seen.page
        await page.focus("#next")
        await page.keyboard.press("Enter")
        assert await page.inner_text("#page") == "Page 2 of 2"
        assert await page.evaluate("document.activeElement.id") == "previous", "the button that can still be pressed"
        await page.keyboard.press("Space")
        assert await page.inner_text("#page") == "Page 1 of 2"
        assert await page.evaluate("document.activeElement.id") == "next"
