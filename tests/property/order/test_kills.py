"""A complete agent on folders with real workers, killed at any point and restarted: every file is committed once."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.jobs import Logged
from support.marks import MARKS
from support.transport_contract import folder_settings

from deid_agent.agent.job import WorkerSettings
from deid_agent.agent.runner import Runner
from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.audit.reading import read_entries, verify_trail
from deid_agent.audit.storage import Signer
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.telemetry.emit import Telemetry
from deid_agent.transport.folder.source import FolderTransport

COUNT = 60
PATIENCE_S = 120.0


async def agent(root: Path) -> None:
    """One run over the folders below ``root``; SIGTERM asks it to stop."""
    telemetry = Telemetry()
    signer = Signer(bytes(32))
    audit = AuditTrail(root / "audit", {}, signer, telemetry, TrailSettings(segment_bytes=4000))
    runner = Runner(
        FolderTransport(folder_settings(root)),
        WorkerPool(Logged(root / "log"), 2, telemetry, WorkerSettings(attempts=2)),
        audit,
        RunnerSettings(poll_limit=4, max_in_flight=8, batch_records=3, linger_s=0),
        marks=MARKS,
        telemetry=telemetry,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.request_stop)
    await runner.run()
    await audit.close()


SCRIPT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_kills import agent
if __name__ == "__main__":
    asyncio.run(agent(Path(sys.argv[1])))
"""


def fill(root: Path) -> None:
    (root / "in").mkdir()
    for number in range(COUNT):
        payload = {17: b"die", 31: b"refuse", 45: b"leave"}.get(number, b"fine %d" % number)
        (root / "in" / f"{number:03}.hl7").write_bytes(payload)
    (root / "run.py").write_text(SCRIPT.format(here=str(Path(__file__).parent)))


def launch(root: Path) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(sys.path)
    return subprocess.Popen([sys.executable, str(root / "run.py"), str(root)], env={**os.environ, "PYTHONPATH": path})


def outputs(root: Path) -> list[Path]:
    return (
        [path for path in (root / "out").iterdir() if not path.name.startswith(".")] if (root / "out").exists() else []
    )


def check(root: Path) -> None:
    whole = {f"{n:03}.hl7": b"FINE %d" % n for n in range(COUNT) if n not in {17, 31, 45}}
    assert {path.name: path.read_bytes() for path in outputs(root)} == whole
    dead_letters = {
        path.stem: json.loads(path.read_text())["deid.error.code"] for path in (root / "letters").glob("*.json")
    }
    assert dead_letters == {"files-0-0000000017": "POISON", "files-0-0000000031": "MALFORMED"}
    finished = [json.loads(line) for line in (root / "state").read_text().splitlines()]
    offsets = [offset for line in finished for offset, _ in line.get("committed", [])]
    assert offsets == list(range(COUNT))
    assert {item["offset"] for item in read_entries(root / "audit")} == set(range(COUNT))
    report = verify_trail(root / "audit", {Signer(bytes(32)).public})
    assert (report.faults, report.warnings) == ([], [])
    assert report.segments > 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_is_killed_and_restarted_commits_every_file_once(tmp_path: Path, how: signal.Signals) -> None:
    fill(tmp_path)
    goal = 0
    for _ in range(COUNT):
        with launch(tmp_path) as process:
            goal += 15
            while process.poll() is None:
                if len(outputs(tmp_path)) >= goal:
                    process.send_signal(how)
                    process.wait(PATIENCE_S)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.01)
            ended = process.returncode
        if how is signal.SIGTERM:
            assert ended == 0
        if ended == 0 and len(outputs(tmp_path)) >= COUNT - 3:
            break
    check(tmp_path)
