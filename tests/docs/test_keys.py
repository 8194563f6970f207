"""The commands of docs/keys.md run and print the output on the page; a new key changes all surrogates."""

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from deid_agent.agent.dead_letter_keys import generate_keys
from deid_agent.audit.reading import read_entries
from deid_agent.config.secrets import load_key

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("01-adt-a01.hl7", "02-oru-discharge.hl7")
ID = re.compile(r"\b[0-9a-f]{8}\b")


def field(message: Path, segment: str, number: int) -> str:
    """A field of the first segment of that name."""
    lines = message.read_bytes().decode().split("\r")
    return next(line for line in lines if line.startswith(segment)).split("|")[number]


def test_the_page_shows_a_change_of_key(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    environ |= {"DEID_DIRECTORY__WATCH": "false", "DEID_LOG_LEVEL": "warning", "DEID_AGENT__WORKERS": "0"}
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "inbox").mkdir()
    generate_keys(tmp_path / "dead-letters.key")
    for name in SAMPLES:
        (tmp_path / "inbox" / name).write_bytes((ROOT / "deid_agent" / "samples" / name).read_bytes())
    ids: list[str] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "keys.md").read_text("utf-8"), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environ[name] = value
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert ID.sub("ID", done.stdout + done.stderr) == ID.sub("ID", shown), command
            ids += ID.findall(done.stdout)
    new, *audited = ids
    assert audited == [load_key(tmp_path / "old.key", {}).id, new]
    assert new == load_key(tmp_path / "new.key", {}).id
    built = [item["build"]["key"] for item in read_entries(tmp_path / "deid-audit") if isinstance(item["build"], dict)]
    assert [(name, len(list(group))) for name, group in groupby(built)] == [(name, 2) for name in audited]
    for segment, number in (("PID", 3), ("PID", 5), ("PID", 7), ("PID", 11)):
        old, changed = (field(tmp_path / folder / SAMPLES[0], segment, number) for folder in ("outbox", "outbox-new"))
        assert old != changed, "no surrogate of one feed is in the other"
    for folder in ("outbox", "outbox-new"):
        mrns = {field(tmp_path / folder / name, "PID", 3).split("^")[0] for name in SAMPLES}
        assert len(mrns) == 1, "one patient in one feed"
