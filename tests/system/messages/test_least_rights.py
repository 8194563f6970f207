"""The agent as a container runs it: an unknown user, a root file system that cannot be written, no home, no temp."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.keys import KEY
from support.least_rights import as_user, can_unshare, read_only

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "deid_agent" / "samples"
NOBODY = 65534
CANARIES = ("Okafor", "Adaeze", "4471902")
OURS = ("out", "dead", "state", "audit")
CONFIG = """
transport = "directory"
log_level = "debug"
[http]
port = 0
[agent]
workers = 1
[directory]
input = "{root}/in"
output = "{root}/out"
dead_letters = "{root}/dead"
state = "{root}/state/state"
watch = true
stable_s = 0
[dead_letters]
plain = true
[audit]
path = "{root}/audit/trail"
"""
# Runs in the agent and in its workers: notes every path that is opened for writing or changed.
NOTE = """
import os, sys
_log = os.open(os.environ["NOTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}

def _note(event, arguments):
    writing = event in _CHANGING or (event == "open" and (arguments[2] or 0) & _WRITING)
    if writing and not isinstance(arguments[0], int):  # a number is a file that is open already
        os.write(_log, os.fsencode(os.fspath(arguments[0])) + b"\\n")

sys.addaudithook(_note)
"""


@pytest.fixture
def world() -> Iterator[Path]:
    """Folders readable by everyone; those of the agent belong to its user."""
    root = Path(tempfile.mkdtemp(prefix="deid-least-", dir="/tmp"))
    root.chmod(0o755)
    for name in (*OURS, "in", "noted", "hook"):
        (root / name).mkdir(mode=0o755)
    for name in ("01-adt-a01.hl7", "05-bundle.json", "06-cut-off.json"):
        shutil.copy(SAMPLES / name, root / "in" / name)
        (root / "in" / name).chmod(0o644)
    (root / "hook" / "sitecustomize.py").write_text(NOTE)
    (root / "agent.toml").write_text(CONFIG.format(root=root))
    key = root / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    if os.geteuid() == 0:
        for path in (key, *(root / name for name in (*OURS, "noted"))):
            os.chown(path, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


def command(root: Path, *, root_is_read_only: bool) -> list[str]:
    """The agent's command, as nobody."""
    agent = as_user([sys.executable, "-m", "deid_agent", "run", "--config", str(root / "agent.toml")], NOBODY)
    return read_only(agent, root) if root_is_read_only else agent


@pytest.mark.parametrize(
    "root_is_read_only",
    [False, pytest.param(True, marks=pytest.mark.skipif(not can_unshare(), reason="only root can mount"))],
)
def test_the_agent_needs_only_its_own_folders(world: Path, root_is_read_only: bool) -> None:
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("only setpriv can make root nobody")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{world / 'hook'}:{ROOT}",
        "HOME": "/nonexistent",
        "TMPDIR": "/nonexistent",
        "NOTED": str(world / "noted" / "paths"),
        "DEID_KEY_FILE": str(world / "key"),
    }
    with subprocess.Popen(
        command(world, root_is_read_only=root_is_read_only), cwd="/", env=environ, stderr=subprocess.PIPE, text=True
    ) as agent:
        lines = []
        try:
            assert agent.stderr is not None
            for line in agent.stderr:
                lines.append(json.loads(line))
                if sum(line["event"] == "RecordFinished" for line in lines) == 3:
                    break
            else:
                pytest.fail(f"it ended early: {lines}")
            (port,) = [line["port"] for line in lines if line["event"] == "Listening"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                assert json.load(answer)["ok"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                metrics = answer.read().decode()
            if os.geteuid() == 0:
                threads = Path(f"/proc/{agent.pid}/task").glob("*/children")
                workers = [int(pid) for thread in threads for pid in thread.read_text().split()]
                assert len(workers) >= 1
                for pid in (agent.pid, *workers):
                    look(pid)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate(timeout=30)
        assert agent.returncode == 0
    assert len(list((world / "out").glob("*.*"))) == 2
    assert len(list((world / "dead").glob("*.payload"))) == 1
    assert 'deid_messages_total{outcome="published",topic="files"} 2.0' in metrics
    assert 'deid_dlq_total{code="MALFORMED"} 1.0' in metrics
    assert not any(canary in metrics + json.dumps(lines) for canary in CANARIES)
    noted = set((world / "noted" / "paths").read_text().splitlines())
    allowed = tuple(f"{world}/{name}" for name in OURS)
    # Byte code is written if the folder permits it, and is not required otherwise.
    assert [p for p in noted if not p.startswith(allowed) and p != os.devnull and "__pycache__" not in p] == []
    assert any(path.startswith(f"{world}/out") for path in noted), "the hook sees written files"


def look(pid: int) -> None:
    """The process of an unprivileged user, without write access and without a core file."""
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in status
    assert "CapEff:\t0000000000000004" in status  # CAP_DAC_READ_SEARCH, and no other
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert ["0", "0"] in [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size")]
