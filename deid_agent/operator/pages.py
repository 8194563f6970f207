"""The pages: is it alive, is it at work, and its numbers. None holds a value of a message."""

import json
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from deid_agent.agent.health import Health, Verdict
from deid_agent.operator.exposition import CONTENT_TYPE, Exposition
from deid_agent.telemetry.metrics import Registry

Handler = Callable[[web.Request], Awaitable[web.Response]]


def routes(health: Health, registry: Registry) -> Sequence[web.RouteDef]:
    """``/healthz``, ``/readyz`` and ``/metrics``.

    A loop that is blocked answers none of them: the probe's own time limit is what tells then.
    """
    exposition = Exposition(registry)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    return (
        web.get("/healthz", _verdict(health.live)),
        web.get("/readyz", _verdict(health.ready)),
        web.get("/metrics", metrics),
    )


def _verdict(ask: Callable[[], Verdict]) -> Handler:
    async def handler(_request: web.Request) -> web.Response:
        verdict = ask()
        body = json.dumps({"ok": verdict.ok, "reasons": verdict.reasons})
        return web.Response(text=body, status=200 if verdict.ok else 503, content_type="application/json")

    return handler
