"""Last month's surrogates are this month's, on every supported Python.

A difference here is a change that the operator must read about in the changelog: published
data would no longer join. Write the file anew only then:
``PYTHONPATH=. python tests/support/surrogate_golden.py > tests/cases/surrogate-golden.json``
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from support.surrogate_golden import VALUES, golden
from support.surrogates import CASES, ROOT

from deid_agent.phi import PhiType

GOLDEN = json.loads((CASES / "surrogate-golden.json").read_text(encoding="utf-8"))


def _interpreter(version: str) -> str | None:
    """That Python from ``DEID_TEST_PYTHONS`` (a path list), else from PATH; None where it does not run."""
    named = [p for p in os.environ.get("DEID_TEST_PYTHONS", "").split(os.pathsep) if p]
    for candidate in (*named, shutil.which(f"python{version}")):
        if candidate is None:
            continue
        ask = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            answer = subprocess.run([candidate, "-c", ask], check=False, capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        if answer.stdout.strip() == version:
            return candidate
    return None


def test_this_python_gives_the_golden_surrogates() -> None:
    assert golden() == GOLDEN
    assert set(VALUES) == set(PhiType)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("seed", ["0", "4711"])
def test_every_python_gives_the_golden_surrogates(version: str, seed: str) -> None:
    python = sys.executable if sys.version_info[:2] == tuple(map(int, version.split("."))) else _interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on PATH: name it in DEID_TEST_PYTHONS to prove surrogates equal there")
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    script = ROOT / "tests" / "support" / "surrogate_golden.py"
    made = subprocess.run([python, str(script)], capture_output=True, env=environment, timeout=120, check=True)
    assert json.loads(made.stdout) == GOLDEN
