"""Exceptions that no handler catches are logged without their text, and the process leaves no core file."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CANARY = "Okonkwo"
STORM = """
import asyncio, gc, logging, threading, warnings
from deid_agent.cli.service import _set_up_logging
from deid_agent.telemetry.emit import Telemetry
from deid_agent.telemetry.emit import quiet, quiet_loop

CANARY = "Okonkwo"

class Dying:
    def __del__(self):
        raise ValueError(CANARY)

class Full:
    def write(self, text):
        raise OSError(28, "No space left on device")

    def flush(self):
        pass

class Unprintable:
    def __str__(self):
        raise ValueError(CANARY)

def fail(*_):
    raise KeyError(CANARY)

async def main(telemetry):
    loop = asyncio.get_running_loop()
    quiet_loop(loop, telemetry)
    loop.call_soon(fail)
    loop.create_task(asyncio.to_thread(fail))
    forgotten = loop.create_future()
    forgotten.set_exception(OSError(CANARY))
    del forgotten
    thread = threading.Thread(target=fail, name=CANARY)
    thread.start()
    await asyncio.to_thread(thread.join)
    for _ in range(3):
        await asyncio.sleep(0)

_set_up_logging("debug")
telemetry = Telemetry()
with quiet(telemetry):
    asyncio.run(main(telemetry), debug=True)
    Dying()
    gc.collect()
    warnings.warn("name " + CANARY)
    for name in ("aiokafka", "aiohttp.server", "asyncio", "any.other"):
        logging.getLogger(name).error("key %s", CANARY)
        logging.getLogger(name).error("too %s many %s", CANARY)
        logging.getLogger(name).error("%s", Unprintable())
    try:
        fail()
    except KeyError:
        logging.getLogger("aiokafka").exception("fetch of %s", CANARY)
    (handler,) = logging.getLogger().handlers
    stream = handler.setStream(Full())
    logging.getLogger("aiokafka").error("key %s", CANARY)
    handler.setStream(stream)
"""
FAULT = """
import sys
from deid_agent.cli import main, service

def fail(*_):
    raise KeyError("Okonkwo")

service.make_worker_factory = fail
main(["run", "--demo-key", "--config", sys.argv[1]])
"""


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-W", "always", "-c", script, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_an_uncaught_exception_does_not_show_its_text() -> None:
    done = run(STORM)
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    uncaught = {(line["source"], line["error"].split(" ")[0]) for line in lines if line["event"] == "Uncaught"}
    assert uncaught == {("loop", "KeyError"), ("loop", "OSError"), ("thread", "KeyError"), ("finalizer", "ValueError")}
    foreign = [line["logger"] for line in lines if line["event"] == "Foreign"]
    assert {"py.warnings", "aiokafka", "aiohttp.server", "asyncio", "any.other"} <= set(foreign)
    assert foreign.count("aiokafka") == 4


def test_a_fault_of_a_command_is_one_line_without_its_text(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        'transport = "directory"\n[directory]\ninput = "in"\noutput = "out"\ndead_letters = "dead"\nstate = "state"\n'
        '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
    )
    done = run(FAULT, str(file))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("deid-agent: stopped: unexpected error in the agent (KeyError at ")
    assert CANARY not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_core_dumps_and_debuggers_are_disabled() -> None:
    done = run(
        "import ctypes, os, resource\n"
        "from deid_agent.telemetry.emit import no_core\n"
        "no_core()\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    assert done.stdout == ("(0, 0) 0\n" if sys.platform == "linux" else "(0, 0) -1\n")
