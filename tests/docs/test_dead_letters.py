"""The commands of docs/dead-letters.md run and print the output on the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.keys import KEY

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("01-adt-a01.hl7", "02-oru-discharge.hl7")
VARYING = re.compile(r"\b[0-9a-f]{8}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_the_page_shows_the_output_of_its_commands(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    environ |= {
        "DEID_KEY": KEY.hex(),
        "DEID_DIRECTORY__WATCH": "false",
        "DEID_LOG_LEVEL": "error",
        "DEID_AGENT__WORKERS": "0",
        "DEID_AGENT__MAX_MESSAGE_BYTES": "1024",
    }
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "inbox").mkdir()
    for name in SAMPLES:
        (tmp_path / "inbox" / name).write_bytes((ROOT / "deid_agent" / "samples" / name).read_bytes())
    ran = []
    page = (ROOT / "docs" / "dead-letters.md").read_text("utf-8")
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environ[name] = value
                continue
            done = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert VARYING.sub("X", done.stdout) == VARYING.sub("X", shown), command
            ran.append(done.returncode)
    assert ran == [0, 1, 0, 0, 0, 0, 0, 0, 0], "the first run refuses one message, all other commands succeed"
    assert sorted(path.name for path in (tmp_path / "outbox").iterdir()) == list(SAMPLES)
