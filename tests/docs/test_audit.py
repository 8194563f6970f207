"""The commands and the program of docs/audit.md work as described."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trails import OTHER, SIGNER, entry, written

from deid_agent.audit.trail import TrailSettings
from deid_agent.audit.faults import FaultCode

CLOCK = re.compile(r"\d+(?= lines| checkpoints)")
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text("utf-8")


def test_the_commands_run_as_shown(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    (block,) = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # The number of checkpoints depends on the clock.
        printed, expected = (CLOCK.sub("N", text) for text in (done.stdout, shown))
        assert (done.returncode, printed) == (0, expected), (command, done.stderr)
    assert len((tmp_path / "events.ndjson").read_bytes().splitlines()) == 6


def test_every_code_is_explained() -> None:
    assert all(f"| `{code}` |" in TEXT for code in FaultCode)


def leave_unchanged(folder: Path) -> None:
    """No manipulation."""


def change_outcome(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    path.write_bytes(path.read_bytes().replace(b"published", b"suppressed", 1))


def drop_a_segment(folder: Path) -> None:
    (folder / "00000002.jsonl").unlink()


def cut_off_end(folder: Path) -> None:
    max(folder.glob("*.jsonl")).unlink()


async def test_the_program_verifies_a_trail_by_itself(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(program.splitlines()) <= 25
    (tmp_path / "program.py").write_text(program)
    for name, damage, public, message in CASES:
        folder = tmp_path / name
        settings = TrailSettings(checkpoint_s=3600, segment_bytes=2500)
        await written(folder, [[entry(n), entry(n + 1)] for n in range(0, 24, 2)], settings)
        damage(folder)
        code, error = run(tmp_path / "program.py", folder, public)
        assert (code, message in error) == (1 if message else 0, True), (name, error)


CASES: tuple[tuple[str, Callable[[Path], None], str, str], ...] = (
    ("unchanged", leave_unchanged, SIGNER.public, ""),
    ("changed", change_outcome, SIGNER.public, "00000002.jsonl: line 15 of the trail"),
    ("segment-missing", drop_a_segment, SIGNER.public, "00000003.jsonl: a segment before it is missing"),
    ("cut-off", cut_off_end, SIGNER.public, "cut off"),
    ("another-key", leave_unchanged, OTHER.public, "BadSignatureError"),
)


def run(program: Path, folder: Path, public: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(program), str(folder), public],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("word", ["checkpoint_s", "segment_bytes", "topic", "path"])
def test_the_page_names_the_settings(word: str) -> None:
    assert f"audit.{word}" in TEXT
