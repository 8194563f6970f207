"""Chromium through Playwright, which records console messages and requests. Tests expect none to another host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Page, async_playwright


@dataclass
class Watched:
    """A page, the messages on its console and the addresses that it requested."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    async def width(self) -> int:
        """The width of the document in pixels. If it exceeds the window, the page has a horizontal scroll bar."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth"))


@asynccontextmanager
async def browsing(
    executable: str,
    *,
    width: int = 1200,
    height: int = 800,
    dark: bool = False,
    scale: float = 1,
    zone: str = "UTC",
    language: str = "en-GB",
) -> AsyncIterator[Watched]:
    """A browser with a fresh profile and without animations. Chromium cannot use its sandbox as root in a container."""
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-lcd-text"])
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            device_scale_factor=scale,
            timezone_id=zone,
            locale=language,
        )
        context.set_default_timeout(60_000)
        watched = Watched(await context.new_page())
        page = watched.page
        page.on("console", lambda message: watched.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: watched.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: watched.messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: watched.requested.append(request.url))
        try:
            yield watched
        finally:
            await browser.close()
