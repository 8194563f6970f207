"""The commands of deploy/console.md run and serve what the page says."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "deploy" / "console.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
SERVING = [command for command in COMMANDS if command.startswith("deid-agent")]


def environ() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    return plain | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}", "DEID_KEY": "ab" * 32}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("command", SERVING)
def test_a_command_that_serves_says_where_and_ends_when_told(command: str, tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for made in ("inbox", "refused"):
        (tmp_path / made).mkdir()
    subprocess.run(["deid-agent", "letters", "keygen", "--out", "letters.key"], cwd=tmp_path, env=environ(), check=True)
    port = free_port()
    shell = f"exec {command} --port {port}"
    running = subprocess.Popen(["bash", "-c", shell], cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        line = next(line for line in running.stdout if line.startswith("console:"))
        assert line.strip() == f"console: http://127.0.0.1:{port}/console/  (^C ends it)"
        assert b"<h1>Overview</h1>" in answered(port)
    finally:
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        running.stdout.close()
    assert running.wait(60) == 0, rest


def answered(port: int) -> bytes:
    """The first page, once it is there: the address is told a moment before it is listened at."""
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/console/", timeout=30) as answer:
                return bytes(answer.read())
        except ConnectionError:
            continue
        except OSError as problem:
            if "refused" not in str(problem):
                raise


def test_the_token_is_made_as_the_page_says(tmp_path: Path) -> None:
    (command,) = (command for command in COMMANDS if command not in SERVING)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    token = tmp_path / "console.token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) == 32


def test_every_picture_is_there_and_small() -> None:
    named = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", PAGE)
    assert len(named) == 4
    for name in named:
        assert 5_000 < (ROOT / "deploy" / name).stat().st_size < 150_000, name
