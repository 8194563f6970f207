"""The console: pages and data below ``/console`` on the operator's server."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from html import escape
from http import HTTPStatus

from aiohttp import web

from deid_agent import __version__
from deid_agent.http.access import PREFIX, AccessControl, AccessSettings, DeniedError, Handler, redirect
from deid_agent.http.background import run_in_thread
from deid_agent.http.history import SAMPLE_INTERVAL_S
from deid_agent.http.review_view import ReviewViews
from deid_agent.http.server import ServerLimits
from deid_agent.http.views import ConsoleSources, Views, read_report
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry
from deid_agent.web import read_files, report_policy

PAGES: Mapping[str, str] = {
    "": "Overview",
    "dead-letters": "Dead letters",
    "audit": "Audit",
    "rules": "Rules and models",
    "playground": "Playground",
    "evaluation": "Evaluation",
}
"""The title of each page by its name in the address."""
REVIEW_PAGE = "review"
"""The page of a console with a desk. The names of its files begin with this word."""
_REVIEW_STORES = "writes to the folder of reviewed notes only"
_OLD_PAGES: Mapping[str, str] = {"letters": "dead-letters"}
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}
CONSOLE_LIMITS = ServerLimits(bytes=640 * 1024)
"""Enough for the largest text of the playground with its line ends and quotes escaped as JSON."""


@dataclass(frozen=True, slots=True)
class Assets:
    """``files`` by name with their media types; ``pages`` are HTML documents by their name in the address."""

    files: Mapping[str, tuple[bytes, str]] = field(repr=False)
    pages: Mapping[str, str] = field(repr=False)
    login: str = field(repr=False)


def load_assets(*, review: bool = False) -> Assets:
    """Read the files of ``deid_agent.web`` once. The console serves these and no other file.

    The page and the files of the review are among them only if ``review`` is True.
    """
    files: dict[str, tuple[bytes, str]] = {}
    parts: dict[str, str] = {}
    for name, content in read_files().items():
        stem, _, ending = name.rpartition(".")
        if ending == "html":
            parts[stem] = content.decode("utf-8")
        elif review or not stem.startswith(REVIEW_PAGE):
            files[name] = (content, _MEDIA_TYPES[f".{ending}"])
    titles = {**PAGES, REVIEW_PAGE: "Review"} if review else PAGES
    pages = {name: _build_page(parts, name, titles) for name in titles}
    login = parts["review-login" if review else "login"]
    return Assets(files, pages, _fill_shell(parts["shell"], "Log in", "login", login, ""))


def _build_page(parts: Mapping[str, str], name: str, titles: Mapping[str, str]) -> str:
    links = "".join(
        f'<li><a href="/console/{each}"{" aria-current=page" if each == name else ""}>{escape(text)}</a></li>'
        for each, text in titles.items()
    )
    return _fill_shell(parts["shell"], titles[name], name or "overview", parts[name or "overview"], links)


def _fill_shell(shell: str, title: str, script: str, main: str, links: str) -> str:
    filled = shell.replace("{title}", escape(title)).replace("{script}", script).replace("{links}", links)
    review = script == REVIEW_PAGE
    style = f'\n<link rel="stylesheet" href="/console/web/{REVIEW_PAGE}.css">' if review else ""
    filled = filled.replace("{style}", style).replace("{stores}", _REVIEW_STORES if review else "stores nothing")
    return filled.replace("{version}", escape(__version__)).replace("{main}", main)


@asynccontextmanager
async def console_routes(
    sources: ConsoleSources, settings: AccessSettings, telemetry: Telemetry, interval_s: float = SAMPLE_INTERVAL_S
) -> AsyncIterator[Sequence[web.RouteDef]]:
    """The routes of the console. The metrics are sampled, and the playground's process may run, inside the block."""
    desk = None if sources.desk is None else ReviewViews(sources.desk)
    access = AccessControl(settings, telemetry, time.monotonic, None if desk is None else desk.reviewer_of)
    views = Views(sources, access, telemetry)
    sampling = asyncio.create_task(_sample_metrics(sources, interval_s))
    try:
        yield (*_routes(views, access, load_assets(review=desk is not None)), *_review_routes(desk, access))
    finally:
        sampling.cancel()
        await views.close()


async def _sample_metrics(sources: ConsoleSources, interval_s: float) -> None:
    while True:
        sources.history.take_sample()
        await asyncio.sleep(interval_s)


def _routes(views: Views, access: AccessControl, assets: Assets) -> Sequence[web.RouteDef]:
    """Every address of the console except the data of the review."""
    api = f"{PREFIX}/api"
    return (
        web.get(PREFIX, access.asset(_redirect(""))),
        *(
            web.get(f"{PREFIX}/{name}", (access.review_page if name == REVIEW_PAGE else access.page)(_html(text)))
            for name, text in assets.pages.items()
        ),
        *(web.get(f"{PREFIX}/{old}", access.asset(_redirect(name))) for old, name in _OLD_PAGES.items()),
        web.get(f"{PREFIX}/login", access.asset(_html(assets.login))),
        web.get(f"{PREFIX}/report", access.page_with_ticket(_report(views.sources), "evaluation")),
        *(web.get(f"{PREFIX}/web/{name}", access.asset(_file(*file))) for name, file in assets.files.items()),
        web.get(f"{api}/session", access.data(views.session)),
        web.get(f"{api}/overview", access.data(views.overview)),
        web.get(f"{api}/dead-letters", access.data(views.dead_letters)),
        web.get(f"{api}/replay", access.data(views.replay_result)),
        web.post(f"{api}/replay", access.action(views.start_replay, write=True)),
        web.get(f"{api}/audit", access.data(views.audit)),
        web.get(f"{api}/audit/chain", access.data(views.chain)),
        web.get(f"{api}/inventory", access.data(views.inventory)),
        web.get(f"{api}/playground", access.data(views.playground_state)),
        web.post(f"{api}/playground", access.action(views.playground)),
        web.post(f"{api}/report", access.action(views.report_ticket)),
        web.post(f"{api}/login", access.action(views.login, logged_in=False)),
        web.post(f"{api}/logout", access.logout_action(views.logout)),
    )


def _review_routes(views: ReviewViews | None, access: AccessControl) -> Sequence[web.RouteDef]:
    """The data of the review; none without a desk."""
    if views is None:
        return ()
    api = f"{PREFIX}/api/review"
    return (
        web.get(f"{api}/queue", access.review_data(views.queue)),
        web.get(f"{api}/notes/{{note}}", access.review_data(views.note)),
        web.post(f"{api}/notes/{{note}}", access.review_action(views.save)),
    )


def _redirect(page: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return redirect(page)

    return handler


def _html(text: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html")

    return handler


def _file(data: bytes, media_type: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, headers={"Content-Type": media_type})

    return handler


def _report(sources: ConsoleSources) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        if sources.report is None:
            raise DeniedError(HTTPStatus.NOT_FOUND, "report", "there is no report: set http.console_report")
        try:
            data = await run_in_thread(partial(read_report, sources.report))
        except ConfigurationError as problem:
            raise DeniedError(HTTPStatus.NOT_FOUND, "report", str(problem)) from None
        # Anyone may have written the file, so it gets an opaque origin, and only the style and script of our reports.
        headers = {"Content-Security-Policy": f"sandbox allow-scripts; {report_policy()}; frame-ancestors 'none'"}
        return web.Response(body=data, headers=headers, content_type="text/html", charset="utf-8")

    return handler
