"""Every command of README.md runs as it stands, and shows what README shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.pages import apart

ROOT = Path(__file__).resolve().parents[2]
ID = re.compile(r"\bkey [0-9a-f]{8}\b")  # of a key that was made just now
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
# Commands that run elsewhere, and where.
ELSEWHERE = {
    "make demo": "the gate runs it",
    ". .venv/bin/activate": "here the folder of this Python is on the PATH",
    "deid-agent check --config deploy/kafka.toml": "tests/broker/test_agent.py, on a real broker",
    "deid-agent run --config deploy/kafka.toml": "tests/broker/test_agent.py, on a real broker",
}


def commands() -> Iterator[tuple[str, str]]:
    """Each command with the output that README shows for it."""
    for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield apart(part)


def test_readme_shows_what_its_commands_print(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    # A folder that is watched has no end: here it is read once, and only faults are told.
    environ |= {"DEID_DIRECTORY__WATCH": "false", "DEID_LOG_LEVEL": "warning", "DEID_HTTP__PORT": "0"}
    ran = 0
    for command, shown in commands():
        if command in ELSEWHERE:
            continue
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            environ[name] = str(tmp_path / value)
            continue
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        refused = "demo-out/input" in command  # one of those files is no message
        assert done.returncode == (1 if refused else 0), (command, done.stderr)
        assert "Traceback" not in done.stderr
        warnings = [line for line in done.stderr.splitlines() if "demonstration key" not in line]
        told = done.stdout + "".join(f"{line}\n" for line in warnings)
        assert ID.sub("key", told) == ID.sub("key", shown), command
        ran += 1
    assert ran >= 6


def test_what_is_run_elsewhere_still_stands_in_readme() -> None:
    assert set(ELSEWHERE) <= {command for command, _ in commands()}


def test_every_file_that_readme_names_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target
