"""Every line of the threat model names a test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)` \|$")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_line_names_a_test_that_exists(row: str) -> None:
    named = TEST.search(row)
    assert named is not None, row
    assert f"def {named[2]}(" in (ROOT / named[1]).read_text("utf-8")


def test_lines_are_numbered_consecutively() -> None:
    assert [int(row.split("|")[1]) for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 40
