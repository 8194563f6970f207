"""tests/SPEC.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "tests" / "SPEC.md").read_text("utf-8")
LINE = re.compile(r"\| \d+ \| .+ \| `([^`]+)::(\w+)` \|")


def test_every_requirement_names_a_test_that_exists() -> None:
    rows = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) > 10
    for row in rows:
        named = LINE.fullmatch(row)
        assert named is not None, row
        source = ROOT / named[1]
        assert source.is_file(), row
        assert f"def {named[2]}(" in source.read_text(), row


def test_the_numbers_are_unique() -> None:
    numbers = re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)
    assert len(numbers) == len(set(numbers))
