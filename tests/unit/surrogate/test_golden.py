"""Last month's surrogates are this month's, on every supported Python.

The gate runs this file under each interpreter (``make test-pythons``). A difference here is a
change that the operator must read about in the changelog: published data would no longer join.
Write the file anew only then:
``PYTHONPATH=. python tests/support/surrogate_golden.py > tests/cases/surrogate-golden.json``
"""

import json
import subprocess
import sys

import pytest
from support.surrogate_golden import VALUES, golden
from support.surrogates import CASES, ROOT

from deid_agent.model.phi import PhiType

GOLDEN = json.loads((CASES / "surrogate-golden.json").read_text(encoding="utf-8"))


def test_this_python_gives_the_golden_surrogates() -> None:
    assert golden() == GOLDEN
    assert set(VALUES) == set(PhiType)


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_surrogates_do_not_depend_on_the_hash_seed(seed: str) -> None:
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    script = ROOT / "tests" / "support" / "surrogate_golden.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, env=environment, timeout=120, check=True)
    assert json.loads(made.stdout) == GOLDEN
