"""Chromium through Playwright, and what every page of ours must keep to: no word on its console, no other host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Page, async_playwright


@dataclass
class Watched:
    """A page, what it said, and where it asked."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def width(self) -> int:
        """How wide the document is; more than the window is a scroll bar."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth"))


@asynccontextmanager
async def browsing(
    executable: str, *, width: int = 1200, height: int = 800, dark: bool = False, scale: float = 1
) -> AsyncIterator[Watched]:
    """A fresh profile, without motion. The sandbox of Chromium cannot be had as root in a container."""
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-lcd-text"])
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            device_scale_factor=scale,
            timezone_id="UTC",
            locale="en-GB",
        )
        context.set_default_timeout(60_000)
        watched = Watched(await context.new_page())
        page = watched.page
        page.on("console", lambda message: watched.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: watched.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: watched.said.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: watched.asked.append(request.url))
        try:
            yield watched
        finally:
            await browser.close()
