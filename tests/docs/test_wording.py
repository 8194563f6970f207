"""Comments and docstrings of the package keep to the style guide, and its identifiers to the vocabulary."""

from pathlib import Path

import pytest
from support.wording import WORDS, count_words, rates, unwanted_names

PACKAGE = Path(__file__).resolve().parents[2] / "deid_agent"
MODULES = sorted(PACKAGE.rglob("*.py"))
# Per 1,000 words. Lower a limit when the package allows it, never raise one.
LIMITS = {"where": 2.0, "stand": 0.2, "tell": 0.5, "what": 1.0}


@pytest.mark.parametrize("word", WORDS)
def test_the_package_keeps_the_style_guide(word: str) -> None:
    assert rates(MODULES)[word] <= LIMITS[word], "run: python tests/support/wording.py"


def test_identifiers_keep_the_vocabulary() -> None:
    found = {str(path.relative_to(PACKAGE)): unwanted_names(path.read_text("utf-8")) for path in MODULES}
    found = {path: names for path, names in found.items() if names}
    assert not found


def test_words_of_docstrings_and_comments_are_counted() -> None:
    source = '"""Where it stands."""\n\n\ndef f():\n    """What it says."""\n    return 1  # told, and stood\n'
    assert count_words(source) == {"total": 9, "where": 1, "stand": 2, "tell": 2, "what": 1}


def test_code_is_not_counted() -> None:
    source = '"""Use ``where`` and `what`."""\nwhat = "where it stands"  # noqa: F841\n'
    assert count_words(source) == {"total": 2, "where": 0, "stand": 0, "tell": 0, "what": 0}


def test_unwanted_names_are_found_at_their_definition() -> None:
    source = (
        "class Pile:\n    lane_id: int\n\n    def f(self, told):\n        self.outlet = 1\n\n"
        "def mournAll():\n    said = island = letterboxes = lanes()\n"
    )
    assert unwanted_names(source) == {"Pile", "lane_id", "told", "outlet", "mournAll", "said"}
