"""Messages per second over MLLP: our listener and sender, beside a bare listener that answers and does nothing.

    python tests/bench/bench_mllp.py [messages]

Four lines, in turns within one run: a sender that waits for each answer, and eight that do; each against the bare
listener, and against our agent without recognition (policy `keep`) that sends on to the bare listener and writes its
audit. The client is the same plain socket in all of them.
"""

import asyncio
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.mllp_world import block, message

from deid_agent.agent.outcomes import OutputMarks
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.app import WorkerFactory
from deid_agent.audit.storage import Signer
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.config import MllpOutSettings, MllpSettings
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry.emit import Telemetry
from deid_agent.transport.mllp.sender import MllpSink
from deid_agent.transport.mllp.source import MllpTransport

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
ROUNDS, SENDERS = 3, 8
BODY = b"".join(rb"OBX|%d|NM|2345-7^Glucose^LN||%d|mg/dL|70-99|N|||F" % (n, 80 + n) + b"\r" for n in range(20))
ANSWER = block(b"MSH|^~\\&|B|B|A|A|20240318||ACK|1|P|2.5\rMSA|AA|%s\r")


async def bare(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every block with AA."""
    try:
        while True:
            data = await reader.readuntil(b"\x1c\r")
            writer.write(ANSWER % data.split(b"|", 10)[9])
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def send(port: int, senders: int, first: int) -> float:
    """Seconds for ``COUNT`` messages over so many connections, each waiting for every answer."""

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for index in range(number, COUNT, senders):
            writer.write(block(message(b"%d" % (first + index), BODY)))
            if b"|AA|%d\r" % (first + index) not in await reader.readuntil(b"\x1c\r"):
                raise RuntimeError("not accepted")
        writer.close()
        await writer.wait_closed()

    begin = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(senders)))
    return time.perf_counter() - begin


async def main() -> None:
    server = await asyncio.start_server(bare, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rules = data_folder("rules", None)
    parts = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("keep", rules), system="patterns")
    telemetry = Telemetry()
    with tempfile.TemporaryDirectory() as where:
        audit = AuditTrail(Path(where) / "audit", {"version": "bench"}, Signer(bytes(32)), telemetry, TrailSettings())
        sink = MllpSink(MllpOutSettings(host="127.0.0.1", port=port, connections=SENDERS))
        transport = MllpTransport(MllpSettings(port=0, dead_letters=Path(where) / "letters"), sink, telemetry=telemetry)
        pool = WorkerPool(parts, 2, telemetry)
        runner = Runner(transport, pool, audit, RunnerSettings(linger_s=0.0), marks=OutputMarks(bytes(32)))
        running = asyncio.create_task(runner.run())
        while transport.port == 0 and not running.done():  # noqa: ASYNC110  there is no notification
            await asyncio.sleep(0.05)
        if running.done():
            await running
        seconds: dict[tuple[str, int], list[float]] = {}
        for number in range(ROUNDS):
            for senders in (1, SENDERS):
                for name, at in (("bare", port), ("agent", transport.port)):
                    seconds.setdefault((name, senders), []).append(await send(at, senders, number * COUNT))
        runner.request_stop()
        await running
        await audit.close()
    server.close()
    rate = {key: COUNT / statistics.median(values) for key, values in seconds.items()}
    sys.stdout.write(
        f"{platform.python_version()} {platform.machine()}, messages of {len(message(b'1', BODY)):,} bytes, "
        f"each answered before the next:\n"
        + "".join(
            f"  {senders} sender{'s' if senders > 1 else ' '}  bare listener {rate['bare', senders]:,.0f}/s, "
            f"agent {rate['agent', senders]:,.0f}/s ({1000 / rate['agent', senders]:.2f} ms a message)\n"
            for senders in (1, SENDERS)
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
