"""A run without a broker must report that, and must fail if a broker was required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.broker\ndef test_it(): pytest.skip('no java here')\n\ndef test_other(): pass\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = broker: needs one\n")
    env = {k: v for k, v in os.environ.items() if k != "DEID_REQUIRE_BROKER"} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])  # the module that conftest.py imports
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_a_skipped_broker_test_is_announced_and_fails_if_required(tmp_path: Path, required: str, code: int) -> None:
    done = run(tmp_path, DEID_REQUIRE_BROKER=required)
    assert "NOT TESTED AGAINST KAFKA" in done.stdout
    assert "no java here" in done.stdout
    assert done.returncode == code
