"""tests/SPEC.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"\| \d+ \| .*MUST|\| (\d+) \| .+ \| `([^`]+)::(\w+)` \|")


def test_every_sentence_names_a_test_that_exists() -> None:
    rows = [m for m in map(LINE.fullmatch, (ROOT / "tests" / "SPEC.md").read_text().splitlines()) if m and m[1]]
    assert len(rows) > 10
    for row in rows:
        source = ROOT / row[2]
        assert source.is_file(), row[2]
        assert f"def {row[3]}(" in source.read_text(), row[0]


def test_the_numbers_are_unique() -> None:
    numbers = re.findall(r"^\| (\d+) \|", (ROOT / "tests" / "SPEC.md").read_text(), re.MULTILINE)
    assert len(numbers) == len(set(numbers))
