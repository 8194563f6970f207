"""The commands of docs/console.md run and serve the console."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.keys import KEY

from deid_agent.web import read_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "console.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
SERVING = [command for command in COMMANDS if command.startswith("deid-agent")]


def environ() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    return plain | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}", "DEID_KEY": KEY.hex()}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("command", SERVING)
def test_a_serving_command_prints_its_address_and_ends_on_interrupt(command: str, tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for made in ("inbox", "refused"):
        (tmp_path / made).mkdir()
    subprocess.run(
        ["deid-agent", "dead-letters", "keygen", "--out", "dead-letters.key"], cwd=tmp_path, env=environ(), check=True
    )
    make = ["deid-agent", "review", "make", "gold", "--key-file", "review.key", "--reviewers", "anna,ben"]
    if "--review" in command:
        subprocess.run(make, cwd=tmp_path, env=environ(), check=True, capture_output=True)
    port = free_port()
    shell = f"exec {command} --port {port}"
    running = subprocess.Popen(["bash", "-c", shell], cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        line = next(line for line in running.stdout if line.startswith("console:"))
        assert line.strip() == f"console: http://127.0.0.1:{port}/console/  (^C ends it)"
        assert b"<h1>Overview</h1>" in fetch_overview(port)
    finally:
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        running.stdout.close()
    assert running.wait(60) == 0, rest


def fetch_overview(port: int) -> bytes:
    """The first page, once the server listens: the command prints its address a moment earlier."""
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/console/", timeout=30) as answer:
                return bytes(answer.read())
        except ConnectionError:
            continue
        except OSError as problem:
            if "refused" not in str(problem):
                raise


def test_the_command_of_the_page_makes_a_token(tmp_path: Path) -> None:
    (command,) = (command for command in COMMANDS if command not in SERVING)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    token = tmp_path / "console.token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) == 32


def test_every_picture_exists_and_is_small() -> None:
    named = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", PAGE)
    assert len(named) == 5
    for name in named:
        assert 5_000 < (ROOT / "docs" / name).stat().st_size < 150_000, name


def test_every_key_of_the_review_is_in_its_table() -> None:
    script = read_files()["review.js"].decode()
    keys = re.findall(r'^  \["([^"]+)", "[^"]*", "[a-z-]+", "', script, re.MULTILINE)
    assert len(keys) == 20
    table = PAGE.partition("| Key | Action |")[2].partition("\n\n")[0]
    shown = set(re.findall(r"`([^`]+)`", table)) | {word for word in ("Enter", "Escape") if word in table}
    assert set(keys) <= shown
