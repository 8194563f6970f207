"""The health check of a container: responses that count as alive, and those that do not."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from support.kafka_broker import free_port

from deid_agent.agent.health import Health
from deid_agent.http.server import OperatorServer, operator_routes
from deid_agent.probe import main, request_status
from deid_agent.telemetry.emit import Telemetry

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The pages of an agent that has not started, at the port that the environment names."""
    telemetry = Telemetry()
    server = OperatorServer("127.0.0.1", 0, operator_routes(Health(), telemetry.registry), telemetry)
    await server.start()
    monkeypatch.setenv("DEID_HTTP__PORT", str(server.port))
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


@contextlib.asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/healthz"
    finally:
        server.close()


async def probe(*arguments: str) -> int:
    return await asyncio.to_thread(main, list(arguments))


async def test_alive_and_not_ready(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await probe() == 0
    assert capsys.readouterr() == ('200 {"ok": true, "reasons": []}\n', "")
    assert await probe("--ready") == 1
    assert capsys.readouterr() == ("", '503 {"ok": false, "reasons": ["starting"]}\n')
    assert await probe("--url", f"{agent}/metrics") == 0


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("127.0.0.2", "127.0.0.2")],  # noqa: S104
)
def test_the_environment_sets_the_address(
    host: str, asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("DEID_HTTP__HOST", host)
    monkeypatch.setenv("DEID_HTTP__PORT", str(port))
    assert main([]) == 1
    assert capsys.readouterr().err.startswith(f"http://{asked}:{port}/healthz: no answer")


async def test_a_proxy_is_not_used(agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await probe() == 0


async def test_a_closed_port_is_reported() -> None:
    async with served(lambda _reader, _writer: asyncio.sleep(0)) as url:
        pass
    assert await asyncio.to_thread(request_status, url, 5.0) == (False, f"{url}: no answer (ConnectionRefusedError)")


async def test_a_blocked_loop_times_out() -> None:
    released = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    async with served(silent) as url:
        assert await asyncio.to_thread(request_status, url, 0.05) == (False, f"{url}: no answer (TimeoutError)")
        released.set()


async def test_a_response_other_than_http_is_a_failure() -> None:
    async def other(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x0bMSH|^~\\&|\x1c\r")
        writer.close()

    async with served(other) as url:
        ok, message = await asyncio.to_thread(request_status, url, 5.0)
        assert not ok and "no answer" in message


@pytest.mark.parametrize(
    "arguments",
    [("--url", "https://127.0.0.1/"), ("--url", "healthz"), ("--url", "http://h:x/"), ("--timeout", "0"), ("again",)],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2


def test_it_needs_the_standard_library_alone() -> None:
    """It runs every few seconds; slow imports would take CPU time from the workers."""
    program = "import sys, deid_agent.probe; print([name for name in sys.modules if name in {'click', 'pydantic'}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
