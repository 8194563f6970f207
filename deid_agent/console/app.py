"""The console as routes of the operator's server, and what runs behind them while it is open."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from aiohttp import web

from deid_agent.console import assets
from deid_agent.console.aside import aside
from deid_agent.console.gate import PREFIX, Access, DeniedError, Gate, Handler
from deid_agent.console.history import EVERY_S
from deid_agent.console.views import Sources, Views, read_report
from deid_agent.errors import ConfigurationError
from deid_agent.eval.page import policy as report_policy
from deid_agent.operator.server import Limits
from deid_agent.telemetry.emit import Telemetry

LIMITS = Limits(bytes=640 * 1024)
"""What the playground takes, its line ends and quotes escaped."""


@asynccontextmanager
async def console(
    sources: Sources, access: Access, telemetry: Telemetry, every_s: float = EVERY_S
) -> AsyncIterator[Sequence[web.RouteDef]]:
    """The routes below ``/console``; numbers are gathered, and the playground may run, while this is open."""
    gate = Gate(access, telemetry, time.monotonic)
    views = Views(sources, gate, telemetry)
    gathering = asyncio.create_task(_gather(sources, every_s))
    try:
        yield routes(views, gate)
    finally:
        gathering.cancel()
        await views.close()


async def _gather(sources: Sources, every_s: float) -> None:
    while True:
        sources.history.take()
        await asyncio.sleep(every_s)


def routes(views: Views, gate: Gate) -> Sequence[web.RouteDef]:
    """Every address of the console. Whatever is not among them below the prefix is not there."""
    found = assets.load()
    api = f"{PREFIX}/api"
    return (
        web.get(PREFIX, gate.asset(_to(f"{PREFIX}/"))),
        *(web.get(f"{PREFIX}/{name}", gate.page(_html(text))) for name, text in found.pages.items()),
        web.get(f"{PREFIX}/login", gate.asset(_html(found.login))),
        web.get(f"{PREFIX}/report", gate.once(_report(views.sources), "evaluation")),
        *(web.get(f"{PREFIX}/web/{name}", gate.asset(_file(*file))) for name, file in found.files.items()),
        web.get(f"{api}/session", gate.data(views.session)),
        web.get(f"{api}/overview", gate.data(views.overview)),
        web.get(f"{api}/letters", gate.data(views.letters)),
        web.get(f"{api}/replay", gate.data(views.replayed)),
        web.post(f"{api}/replay", gate.act(views.replay, write=True)),
        web.get(f"{api}/audit", gate.data(views.audit)),
        web.get(f"{api}/audit/chain", gate.data(views.chain)),
        web.get(f"{api}/about", gate.data(views.about)),
        web.get(f"{api}/playground", gate.data(views.room)),
        web.post(f"{api}/playground", gate.act(views.try_)),
        web.post(f"{api}/report", gate.act(views.ticket)),
        web.post(f"{api}/login", gate.act(views.login, known=False)),
        web.post(f"{api}/logout", gate.act(views.logout)),
    )


def _to(place: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": place})

    return handler


def _html(text: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html")

    return handler


def _file(data: bytes, media: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, headers={"Content-Type": media})

    return handler


def _report(sources: Sources) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        if sources.report is None:
            raise DeniedError(HTTPStatus.NOT_FOUND, "report", "http.console_report names no page")
        try:
            data = await aside(partial(read_report, sources.report))
        except ConfigurationError as problem:
            raise DeniedError(HTTPStatus.NOT_FOUND, "report", str(problem)) from None
        # A file that somebody made: no origin of ours, and no other style and script than those that we write.
        headers = {"Content-Security-Policy": f"sandbox allow-scripts; {report_policy()}; frame-ancestors 'none'"}
        return web.Response(body=data, headers=headers, content_type="text/html", charset="utf-8")

    return handler
