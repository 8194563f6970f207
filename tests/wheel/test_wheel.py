"""The wheel is what people install: rules and models must be inside, and it must work alone."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.wheel


def run(*command: str | Path, cwd: Path, stdin: bytes = b"") -> bytes:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("DEID_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, input=stdin, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the pinned dependencies and the wheel, and no checkout."""
    root = tmp_path_factory.mktemp("env")
    venv.create(root, with_pip=True)
    python = root / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=root)
    run(*pip, "--no-deps", wheel, cwd=root)
    return root / "bin"


def test_every_rule_and_model_file_is_inside(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("rules", "models"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                assert f"deid_agent/_data/{path.relative_to(ROOT).as_posix()}" in inside
    assert not any(path.name in name for name in inside for path in (ROOT / "corpus").glob("d*.txt"))


def test_a_note_and_a_message_are_deidentified(installed: Path, tmp_path: Path) -> None:
    note = b'{"id": "n1", "text": "Seen 03/04/2019, MRN: 4471902, call 740-555-0183."}\n'
    line = json.loads(run(installed / "deid-agent", "text", "--jsonl", "--demo-key", cwd=tmp_path, stdin=note))
    assert {span["type"] for span in line["spans"]} == {"DATE", "MEDICALRECORD", "PHONE"}
    assert not any(value in line["text"] for value in ("03/04/2019", "4471902", "740-555-0183"))

    sample = (ROOT / "deid_agent" / "samples" / "02-oru-discharge.hl7").read_bytes()
    out = run(installed / "deid-agent", "message", "-", "--demo-key", cwd=tmp_path, stdin=sample)
    assert b"Okafor" not in out
    assert out.count(b"\r") == sample.count(b"\r")


def test_the_demo_runs_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "deid-agent", "demo", "--out", tmp_path / "demo-out", cwd=tmp_path)
    assert b"published" in shown
    assert (tmp_path / "demo-out" / "audit.jsonl").stat().st_size
