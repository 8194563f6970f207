"""The wheel must contain rules and models, and must work without a checkout."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRAINING = ("sklearn-crfsuite", "python-crfsuite", "scikit-learn", "scipy", "joblib")
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
    """An environment of the pinned dependencies and the wheel: no checkout, and no library that only training needs."""
    root = tmp_path_factory.mktemp("env")
    venv.create(root, with_pip=True)
    python = root / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=root)
    run(*pip, "--no-deps", wheel, cwd=root)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *TRAINING, cwd=root)
    return root / "bin"


def test_every_rule_and_model_file_is_inside(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("rules", "models"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                assert f"deid_agent/_data/{path.relative_to(ROOT).as_posix()}" in inside
    for path in filter(Path.is_file, (ROOT / "deid_agent" / "web").iterdir()):
        assert f"deid_agent/web/{path.name}" in inside
    assert not any(path.name in name for name in inside for path in (ROOT / "corpus").glob("*-*.txt"))


def test_the_sources_of_the_data_are_named(wheel: Path, tmp_path: Path) -> None:
    notice = (ROOT / "NOTICE").read_bytes()
    packed = zipfile.ZipFile(wheel)
    assert [packed.read(name) for name in packed.namelist() if name.endswith(".dist-info/licenses/NOTICE")] == [notice]
    metadata = next(packed.read(name) for name in packed.namelist() if name.endswith(".dist-info/METADATA")).decode()
    assert "License-File: NOTICE" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: s")]
    assert len(needed) == 2 and all("extra == 'train'" in line for line in needed), needed
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sources:
        (member,) = (name for name in sources.getnames() if name.count("/") == 1 and name.endswith("/NOTICE"))
        file = sources.extractfile(member)
        assert file is not None and file.read() == notice


def test_a_note_and_a_message_are_deidentified(installed: Path, tmp_path: Path) -> None:
    note = b'{"id": "n1", "text": "Seen 03/04/2019, MRN: 4471902, call 740-555-0183."}\n'
    line = json.loads(run(installed / "deid-agent", "text", "--jsonl", "--demo-key", cwd=tmp_path, stdin=note))
    assert {span["type"] for span in line["spans"]} == {"DATE", "MEDICALRECORD", "PHONE"}
    assert not any(value in line["text"] for value in ("03/04/2019", "4471902", "740-555-0183"))

    sample = (ROOT / "deid_agent" / "samples" / "02-oru-discharge.hl7").read_bytes()
    out = run(installed / "deid-agent", "message", "-", "--demo-key", cwd=tmp_path, stdin=sample)
    assert b"Okafor" not in out
    assert out.count(b"\r") == sample.count(b"\r")


def test_the_trained_system_runs_without_the_training_libraries(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Spoke with her neighbor Halvard Quiggins on 03/04/2019.", "utf-8")
    command = (installed / "deid-agent", "text", "--system", "hybrid", "--demo-key", "note.txt")
    assert b"Quiggins" not in run(*command, cwd=tmp_path)
    train = [str(installed / "deid-agent"), "train", "token", "--corpus", str(tmp_path)]
    refused = subprocess.run(train, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert "pip install 'deid-agent[train]'" in refused.stderr


def test_the_demo_runs_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "deid-agent", "demo", "--out", tmp_path / "demo-out", cwd=tmp_path)
    assert b"published" in shown
    verified = run(
        installed / "deid-agent", "audit", "verify", "--unauthenticated", tmp_path / "demo-out" / "audit", cwd=tmp_path
    )
    assert b"sound: 1 segment" in verified
