"""docs/conformance.md names a test that exists for each requirement that is met, and a reason for each other one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+) \| (yes|no) \| (.+) \|$", re.sub(r" <!--.*?-->", "", PAGE), re.MULTILINE)


def test_each_guide_has_its_table() -> None:
    assert re.findall(r"^## Requirements of (.+)$", PAGE, re.MULTILINE) == [
        "DARTS",
        "DAPL",
        "the MII module of pseudonymization",
    ]
    assert len(ROWS) > 30


@pytest.mark.parametrize(("requirement", "met", "proof"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_a_row_has_a_test_or_a_reason(requirement: str, met: str, proof: str) -> None:
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", proof)
    assert named or met == "no"
    assert named or len(proof) > 15
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text("utf-8")
