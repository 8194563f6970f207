"""The Containerfile's own steps, entry point and health check as plain processes: no engine builds images here.

The work of a container engine is not tested: the base image, layers, users and mounts of a real container.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.kafka_broker import free_port
from support.keys import KEY
from support.least_rights import as_user, can_unshare, read_only
from support.manifests import ROOT, Instruction, containerfile

from deid_agent.agent.dead_letter_keys import generate_keys

SAMPLES = ROOT / "deid_agent" / "samples"
STEPS = containerfile()
USER = int(next(step.value for step in STEPS if step.name == "USER").split(":")[0])
TRAINING_AND_TESTS = {"scipy", "sklearn", "pycrfsuite", "pytest", "mypy", "hypothesis", "hatchling", "pip"}
CONFIG = """
transport = "directory"
[agent]
workers = 1
[directory]
input = "{root}/in"
output = "{root}/deid/out"
dead_letters = "{root}/deid/refused"
state = "{root}/deid/state"
watch = true
stable_s = 0
[dead_letters]
public_key = "{root}/dead-letters.key.pub"
[audit]
path = "{root}/deid/audit"
"""
PATIENCE_S = 60
pytestmark = pytest.mark.wheel


@dataclass(frozen=True)
class Image:
    """The files of the build stage, below a folder instead of the root."""

    root: Path

    def moved(self, text: str) -> str:
        """A command with the absolute paths of the Containerfile below ``root``."""
        for path in ("/wheels", "/opt/deid-agent", "/build", "/core/"):
            text = text.replace(path, f"{self.root}{path}")
        return text

    def words(self, step: Instruction) -> list[str]:
        return [self.moved(word) for word in step.words]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Every RUN of the build stages, run in the order of the file, over only the files that COPY sends.

    Without cargo the compiled core is left out.
    """
    root = Path(tempfile.mkdtemp(prefix="deid-image-", dir="/tmp"))
    root.chmod(0o755)
    built = Image(root)
    source = root / "src"
    source.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("DEID_", "PYTHON"))}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    left_out = () if shutil.which("cargo") else ("cargo ", "/core/")
    for step in (step for step in STEPS if step.stage in {0, 1}):
        if step.name == "COPY" and not step.value.startswith("--from="):
            *names, target = step.value.split()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, source)
        elif step.name == "RUN" and not any(word in step.value for word in left_out):
            command = ["sh", "-ec", built.moved(step.value)]
            done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (command, done.stderr)
    yield built
    shutil.rmtree(root)


def test_the_image_contains_only_files_that_serving_needs(image: Image) -> None:
    (packages,) = (image.root / "opt/deid-agent/lib").glob("python3*/site-packages")
    inside = {path.name for path in packages.iterdir()}
    assert "deid_agent" in inside and "aiokafka" in inside
    assert inside & TRAINING_AND_TESTS == set()
    assert ("deid_agent_core.abi3.so" in inside) == (shutil.which("cargo") is not None)
    assert (packages / "deid_agent/_data/rules").is_dir() and (packages / "deid_agent/_data/models").is_dir()


@pytest.fixture
def world(image: Image) -> Path:
    """The mounts: messages and secrets to read, and the user's folder to write."""
    root = image.root / "mounted"
    shutil.rmtree(root, ignore_errors=True)
    (root / "in").mkdir(parents=True)
    (root / "deid").mkdir(mode=0o700)
    for name in ("01-adt-a01.hl7", "06-cut-off.json"):
        shutil.copy(SAMPLES / name, root / "in" / name)
    (root / "agent.toml").write_text(CONFIG.format(root=root))
    (root / "deid.key").write_bytes(KEY)
    (root / "deid.key").chmod(0o400)
    generate_keys(root / "dead-letters.key")
    if os.geteuid() == 0:
        for name in ("deid", "deid.key"):
            os.chown(root / name, USER, USER)
    return root


@pytest.mark.skipif(not can_unshare(), reason="only root can mount")
def test_it_starts_reports_health_and_stops(image: Image, world: Path) -> None:
    steps = {step.name: step for step in STEPS if step.stage == 2}
    (entry,) = image.words(steps["ENTRYPOINT"])
    shown = [word.replace("/etc/deid-agent", str(world)) for word in steps["CMD"].words]
    command = read_only(as_user([entry, *shown], USER), world / "deid")
    port = free_port()
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DEID_KEY_FILE": str(world / "deid.key"),
        "DEID_HTTP__HOST": "0.0.0.0",  # noqa: S104 - as a container does
        "DEID_HTTP__PORT": str(port),
    }
    check = [image.moved(word) for word in json.loads(steps["HEALTHCHECK"].value.partition(" CMD ")[2])]
    check = as_user(check, USER)
    assert subprocess.run(check, env=environ, capture_output=True, check=False, timeout=10).returncode == 1
    with subprocess.Popen(command, cwd=world / "deid", env=environ, stderr=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stderr is not None
            for line in agent.stderr:
                if json.loads(line)["event"] == "AgentStarted":
                    break
            else:
                pytest.fail("it ended early")
            until_committed(port, 2)
            healthy = subprocess.run(check, env=environ, capture_output=True, text=True, check=False, timeout=10)
            assert (healthy.returncode, healthy.stdout[:3]) == (0, "200"), healthy.stderr
        finally:
            agent.send_signal(signal.Signals[steps["STOPSIGNAL"].value])
            agent.communicate(timeout=45)
    assert agent.returncode == 0
    assert [path.name for path in (world / "deid/out").iterdir()] == ["01-adt-a01.hl7"]
    assert len(list((world / "deid/refused").glob("*.sealed"))) == 1
    verified = subprocess.run(
        [entry, "audit", "verify", str(world / "deid/audit"), "--key-file", str(world / "deid.key")],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert "sound: 1 segment" in verified.stdout, verified.stdout + verified.stderr


def until_committed(port: int, count: int) -> None:
    """Wait until the agent counts that many committed records."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        if sum(float(line.split()[-1]) for line in lines if line.startswith("deid_messages_total{")) == count:
            return
    pytest.fail("the records were not committed")
