"""The commands of docs/mllp.md run and print the output on the page; its codes and settings exist."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from deid_agent.config import MllpOutSettings, MllpSettings
from deid_agent.transport.mllp.protocol import RefusalCode

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "mllp.md").read_text("utf-8")
VARYING = re.compile(r"\bkey [0-9a-f]{8}\b|\d{16}")
PATIENCE_S = 60


def test_the_page_shows_the_output_of_its_commands(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    environ |= {"DEID_MLLP__PORT": port, "DEID_HTTP__PORT": "0", "DEID_AGENT__WORKERS": "0"}
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "demo-out").mkdir()
    (tmp_path / "demo-out" / "input").symlink_to(ROOT / "deid_agent" / "samples")
    running: list[subprocess.Popen[bytes]] = []
    ran = 0
    try:
        for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                ran += 1
                if command.startswith("export "):
                    name, _, value = command.removeprefix("export ").partition("=")
                    environ[name] = value
                elif command.startswith("deid-agent run"):
                    log = (tmp_path / "log").open("wb")
                    with log:
                        running.append(
                            subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=tmp_path, env=environ, stderr=log)
                        )
                    wait_until_started(tmp_path / "log", running[-1])
                else:
                    done = subprocess.run(
                        ["bash", "-c", command.replace("2575", port)],
                        cwd=tmp_path,
                        env=environ,
                        capture_output=True,
                        text=True,
                        timeout=PATIENCE_S,
                        check=False,
                    )
                    printed, expected = (VARYING.sub("X", text.replace(port, "2575")) for text in (done.stdout, shown))
                    assert (done.returncode, printed) == (0, expected), (command, done.stderr)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    assert ran == 9
    (output,) = (tmp_path / "outbox").iterdir()
    assert b"Okafor" not in output.read_bytes()


def wait_until_started(log: Path, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    while "AgentStarted" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue


def test_the_page_names_every_code() -> None:
    assert all(f"`{why}`" in PAGE for why in RefusalCode)


def test_the_page_names_existing_settings() -> None:
    for section, model in (("mllp", MllpSettings), ("mllp_out", MllpOutSettings)):
        named = re.findall(rf"`{section}\.(\w+)`", PAGE)
        assert named
        assert set(named) <= set(model.model_fields)
