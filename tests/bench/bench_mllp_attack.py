"""Honest senders beside clients that hold connections of the MLLP listener: refused attempts and waiting times.

    python tests/bench/bench_mllp_attack.py [seconds]

One line for each attack, all at once against a listener with 32 connections and 45 s each by default. The attackers
open a new connection as soon as one is closed. An honest attempt (four a second) connects, sends one message, waits at
most 10 s for AA, and closes. It counts as refused if it gets no AA.

`bytes`: a byte every two seconds inside a block. `silent`: connected, nothing sent. `fillers`: line ends between
blocks. `fast enough`: 600 bytes a second inside a block that does not end. `burst`: a megabyte, then a byte now and
then. `proven`: a whole message first, then bytes. `reconnect`: a new connection every 20 ms. The clients of
`other address` are those of `fast enough`, from another address than the honest senders.
"""

import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.mllp_agent import Agent, make_settings
from support.mllp_listener import ScriptedSink
from support.mllp_world import block, message

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
CLIENTS, EACH_S, PATIENCE_S = 32, 0.25, 10.0
BODY = b"OBX|1|TX|||" + b"resting comfortably " * 50
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _repeat(writer: asyncio.StreamWriter, data: bytes, every_s: float) -> None:
    while not writer.is_closing():
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(every_s)


async def send_bytes(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x0bMSH|^~\\&|")
    await _repeat(writer, b"x", 2.0)


async def send_nothing(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def send_fillers(writer: asyncio.StreamWriter) -> None:
    await _repeat(writer, b"\r", 0.5)


async def send_fast_enough(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x0bMSH|^~\\&|")
    await _repeat(writer, b"x" * 600, 1.0)


async def send_burst(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x0bMSH|^~\\&|" + b"x" * 1_000_000)
    await _repeat(writer, b"x", 2.0)


async def send_message_first(writer: asyncio.StreamWriter) -> None:
    writer.write(block(message(b"first", BODY)))
    await send_bytes(writer)


async def reconnect(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x0bMSH|^~\\&|")
    await asyncio.sleep(0.02)
    writer.transport.abort()


@dataclass(slots=True)
class Count:
    attempts: int = 0
    refused: int = 0
    waits_s: list[float] = field(default_factory=list)


async def attack(port: int, address: str, act: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Keep one hostile connection open for ever."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            ended = asyncio.create_task(reader.read())
            acting = asyncio.ensure_future(act(writer))
            try:
                await asyncio.wait({ended, acting}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (ended, acting):
                    task.cancel()
                await asyncio.gather(ended, acting, return_exceptions=True)
                writer.transport.abort()
        await asyncio.sleep(0.001)


async def attempt(port: int, number: int, count: Count) -> None:
    """One honest sender."""
    loop = asyncio.get_running_loop()
    begin, count.attempts = loop.time(), count.attempts + 1
    answer = b""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.1", 0))
            try:
                writer.write(block(message(b"h%d" % number, BODY)))
                answer = await reader.readuntil(b"\x1c\r")
            finally:
                writer.close()
    if b"MSA|AA|" in answer:
        count.waits_s.append(loop.time() - begin)
    else:
        count.refused += 1


async def measure(act: Callable[[asyncio.StreamWriter], Awaitable[None]], address: str, seconds: float) -> Count:
    """Honest attempts while the attack goes on."""
    count = Count()
    with tempfile.TemporaryDirectory() as where:
        agent = await Agent(ScriptedSink(), Path(where) / "letters", make_settings(max_connections=32)).start()
        hostile = [asyncio.create_task(attack(agent.transport.port, address, act)) for _ in range(CLIENTS)]
        await asyncio.sleep(0.5)
        honest = []
        for number in itertools.takewhile(lambda number: number * EACH_S < seconds, itertools.count()):
            honest.append(asyncio.create_task(attempt(agent.transport.port, number, count)))
            await asyncio.sleep(EACH_S)
        await asyncio.gather(*honest)
        for task in hostile:
            task.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)
        await agent.end()
    return count


ATTACKS: dict[str, tuple[Callable[[asyncio.StreamWriter], Awaitable[None]], str]] = {
    "bytes": (send_bytes, "127.0.0.1"),
    "silent": (send_nothing, "127.0.0.1"),
    "fillers": (send_fillers, "127.0.0.1"),
    "fast enough": (send_fast_enough, "127.0.0.1"),
    "burst": (send_burst, "127.0.0.1"),
    "proven": (send_message_first, "127.0.0.1"),
    "reconnect": (reconnect, "127.0.0.1"),
    "other address": (send_fast_enough, "127.0.0.2"),
}


async def main() -> None:
    counts = await asyncio.gather(*(measure(act, address, SECONDS) for act, address in ATTACKS.values()))
    for name, count in zip(ATTACKS, counts, strict=True):
        waits = sorted(count.waits_s) or [float("nan")]
        sys.stdout.write(
            f"{name:14} {count.refused:4} of {count.attempts} refused, "
            f"wait: median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s\n"
        )


if __name__ == "__main__":
    asyncio.run(main())
