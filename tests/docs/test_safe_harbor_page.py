"""docs/safe-harbor.md has one row for each of the 18 identifiers, and each row names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "safe-harbor.md").read_text("utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_identifier_has_a_row_with_its_own_test() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if re.match(r"\| [A-R] \|", line)
    ]
    assert "".join(row[0] for row in rows) == "ABCDEFGHIJKLMNOPQR"
    for letter, _, structured, narrative, proof in rows:
        assert structured and narrative
        found = TEST.fullmatch(proof)
        assert found and found[2].startswith(f"test_{letter.lower()}_")


def test_the_page_names_tests_that_exist() -> None:
    named = TEST.findall(PAGE)
    assert len(named) == 21
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), name
