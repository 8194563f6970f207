"""The pages for health and metrics, and the limits that keep a client from stalling the agent."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from deid_agent.agent.health import Health
from deid_agent.agent.ports import Partition
from deid_agent.http.server import OperatorServer, ServerLimits, operator_routes
from deid_agent.model.errors import ConfigurationError
from deid_agent.telemetry import events
from deid_agent.telemetry.emit import Telemetry

CANARY = "Okonkwo"
PATIENCE_S = 10
Serve = Callable[..., OperatorServer]


class World:
    """One server with its health and telemetry, and a plain client."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.telemetry, self.health = Telemetry(), Health()
        self.server = OperatorServer(
            "127.0.0.1", 0, operator_routes(self.health, self.telemetry.registry), self.telemetry, limits
        )

    async def ask(self, request: str | bytes) -> tuple[int, str, str]:
        """Status, head and body of the answer to a request, or to a GET of a path."""
        if isinstance(request, str):
            request = f"GET {request} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await self.open()
            writer.write(request)
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
        return int(head.split()[1]), head, body

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.server.start()
    yield world
    await world.server.stop()


async def test_health_names_the_reason(world: World) -> None:
    assert await answer(world, "/healthz") == (200, {"ok": True, "reasons": []})
    assert await answer(world, "/readyz") == (503, {"ok": False, "reasons": ["starting"]})
    world.health.started()
    assert await answer(world, "/readyz") == (503, {"ok": False, "reasons": ["unassigned", "workers"]})
    world.health.assigned(Partition("adt", 0))
    world.health.workers(2, 2)
    assert await answer(world, "/readyz") == (200, {"ok": True, "reasons": []})
    world.health.stopping()
    assert await answer(world, "/readyz") == (503, {"ok": False, "reasons": ["stopping"]})


async def answer(world: World, path: str) -> tuple[int, object]:
    status, head, body = await world.ask(path)
    assert "application/json" in head
    return status, json.loads(body)


async def test_metrics_are_prometheus_text_with_types_and_escapes(world: World) -> None:
    world.telemetry.emit(events.Gauged('a"d\\t\n', 0, 3, 9))
    world.telemetry.emit(events.RecordProcessed("adt/0/1", 0.003, 1, (("parse", 0.5),), (("DATE", 2),)))
    world.telemetry.emit(events.Built("0.1", "r", "m", "p:d", "python"))
    status, head, body = await world.ask("/metrics")
    assert status == 200
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    for line in (
        "# TYPE deid_consumer_lag gauge",
        r'deid_consumer_lag{partition="0",topic="a\"d\\t\n"} 9.0',
        "# TYPE deid_phi_total counter",
        'deid_phi_total{type="DATE"} 2.0',
        "# TYPE deid_stage_duration_seconds histogram",
        'deid_stage_duration_seconds_bucket{le="0.25",stage="parse"} 0.0',
        'deid_stage_duration_seconds_bucket{le="0.5",stage="parse"} 1.0',
        'deid_stage_duration_seconds_bucket{le="+Inf",stage="parse"} 1.0',
        'deid_stage_duration_seconds_sum{stage="parse"} 0.5',
        'deid_stage_duration_seconds_count{stage="parse"} 1.0',
        'deid_build_info{bound="",core="python",models="m",policy="p:d",rules="r",site="",version="0.1"} 1.0',
        "deid_worker_restarts_total 0.0",
    ):
        assert line in body.splitlines()
    assert "python_info" not in body, "no global registry"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"/{CANARY}?name={CANARY}", 404),
        (f"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{CANARY}".encode(), 405),
        (f"{CANARY}\r\n\r\n".encode(), 400),
        (f"GET /healthz HTTP/1.1\r\n{CANARY}: {'x' * 5000}\r\n\r\n".encode(), 400),
        ((f"GET /healthz HTTP/1.1\r\n{CANARY}: x\r\n" + f"a: {CANARY}\r\n" * 100 + "\r\n").encode(), 400),
        (b"\x16\x03\x01\x00\xee\x01\r\n\r\n", 400),
    ],
)
async def test_no_input_is_echoed_and_no_version_is_revealed(
    world: World, request_: str | bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        found, head, body = await world.ask(request_)
    assert found == status
    assert CANARY not in head + body
    assert CANARY not in caplog.text
    assert re.findall(r"(?im)^server:.*$", head) == ["Server: deid-agent\r"]
    assert not re.search(r"(?i)aiohttp|python", head + body)


async def test_many_unfinished_requests_do_not_block_a_probe() -> None:
    """More connections than the limit, each with half a request; the loop stays free."""
    world = World(ServerLimits(lifetime_s=600))
    await world.server.start()
    loop, gaps, ended = asyncio.get_running_loop(), [0.0], asyncio.Event()

    async def beat() -> None:
        last = loop.time()
        while not ended.is_set():
            await asyncio.sleep(0)
            gaps.append(loop.time() - last)
            last = loop.time()

    beating = asyncio.create_task(beat())
    crowd = []
    for _ in range(3 * ServerLimits().connections):
        crowd.append(await world.open())
        crowd[-1][1].write(b"GET /healthz HTTP/1.1\r\nX: y")
    assert await answer(world, "/healthz") == (200, {"ok": True, "reasons": []})
    async with asyncio.timeout(PATIENCE_S):
        assert await crowd[0][0].read() == b"", "the oldest was ended"
    ended.set()
    await beating
    assert max(gaps) < 2
    for _, writer in crowd:
        writer.close()
    await world.server.stop()


async def test_an_endless_request_is_ended() -> None:
    world = World(ServerLimits(lifetime_s=0.05))
    await world.server.start()
    reader, writer = await world.open()
    writer.write(b"GET /healthz HTTP/1.1\r\nX: y")
    async with asyncio.timeout(PATIENCE_S):
        assert await ended(reader)
    writer.close()
    await world.server.stop()


@pytest.mark.parametrize(
    "endless",
    [
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + bytes(1 << 20),
        b"GET /healthz HTTP/1.1\r\n" + (b"a: " + b"x" * 4000 + b"\r\n") * 20,
        b"GET /" + b"x" * 100_000,
    ],
    ids=["body", "headers", "path"],
)
async def test_a_request_without_an_end_is_ended(endless: bytes) -> None:
    world = World(ServerLimits(lifetime_s=600))
    await world.server.start()
    reader, writer = await world.open()
    writer.write(endless)
    async with asyncio.timeout(PATIENCE_S):
        assert await ended(reader)
    writer.close()
    await world.server.stop()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        await reader.read()
    except ConnectionError:
        return True
    return reader.at_eof()


async def test_a_port_in_use_names_the_setting(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"http\.port: \d+ is in use on 127\.0\.0\.1.*DEID_HTTP__PORT"):
        await OperatorServer("127.0.0.1", world.server.port, (), Telemetry()).start()


async def test_an_address_of_another_host_names_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"http\.host: '192\.0\.2\.1' cannot be listened on"):
        await OperatorServer("192.0.2.1", 0, (), Telemetry()).start()


async def test_it_stops_with_connected_clients_and_frees_the_port() -> None:
    world = World()
    await world.server.start()
    port = world.server.port
    reader, writer = await world.open()
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await world.server.stop()
        await world.server.stop()
        assert await ended(reader)
    writer.close()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))
