"""Every command of README.md runs and prints the output in README."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.pages import split_command

ROOT = Path(__file__).resolve().parents[2]
ID = re.compile(r"\bkey [0-9a-f]{8}\b")  # of a new key
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
# Commands that other tests run.
ELSEWHERE = {
    "make demo": "CI runs it",
    ". .venv/bin/activate": "the folder of this Python is on the PATH in this test",
    "deid-agent check --config deploy/kafka.toml": "tests/system/broker/test_agent.py, on a real broker",
    "deid-agent run --config deploy/kafka.toml": "tests/system/broker/test_agent.py, on a real broker",
}


def commands() -> Iterator[tuple[str, str]]:
    """Each command with its output in README."""
    for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield split_command(part)


def test_readme_shows_the_output_of_its_commands(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    # A watched folder has no end: this test reads it once and logs only faults.
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
        refused = "demo-out/input" in command  # one of these files is not a message
        assert done.returncode == (1 if refused else 0), (command, done.stderr)
        assert "Traceback" not in done.stderr
        warnings = [line for line in done.stderr.splitlines() if "demonstration key" not in line]
        printed = done.stdout + "".join(f"{line}\n" for line in warnings)
        assert ID.sub("key", printed) == ID.sub("key", shown), command
        ran += 1
    assert ran >= 6


def test_commands_that_other_tests_run_are_in_readme() -> None:
    assert set(ELSEWHERE) <= {command for command, _ in commands()}


def test_every_file_that_readme_names_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target
