"""Docstrings, comments and pages keep to the style guide, and identifiers and test names to the vocabulary."""

from functools import cache
from pathlib import Path

import pytest
from support.wording import (
    UNWANTED_IN_TESTS,
    WORDS,
    bare_letters,
    count_file,
    count_words,
    page_prose,
    rates,
    unclear_tests,
    unwanted_names,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "deid_agent"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/SPEC.md", "corpus/README.md", "corpus/GUIDELINES.md")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in FRONT)]

# Per 1,000 words. Lower a limit when the text allows it, never raise one.
LIMITS = {
    "package": (MODULES, {"where": 2.0, "stand": 0.2, "tell": 0.5, "what": 1.0}),
    "tests": (TESTS, {"where": 0.3, "stand": 0.1, "tell": 0.2, "what": 0.3}),
    "pages": (PAGES, {"where": 0.3, "stand": 0.1, "tell": 0.2, "what": 0.3}),
}
# Tests about records: a letter there is a dead letter. In the others it is one of an alphabet.
RECORDS = {"agent", "audit", "broker", "chaos", "cli", "http", "messages", "telemetry", "transport"}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("part", LIMITS)
def test_prose_keeps_the_style_guide(part: str, word: str) -> None:
    limits = LIMITS[part][1]
    assert rates_of(part)[word] <= limits[word], "run: python tests/support/wording.py deid_agent tests docs README.md"


@cache
def rates_of(part: str) -> dict[str, float]:
    files = LIMITS[part][0]
    assert files
    return rates(files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_page_keeps_the_style_guide(page: Path) -> None:
    """The rate over all pages would hide one bad page."""
    counts = count_file(page)
    assert all(counts[word] <= 2 for word in WORDS)


def test_identifiers_of_the_package_keep_the_vocabulary() -> None:
    found = {str(path.relative_to(ROOT)): unwanted_names(path.read_text("utf-8")) for path in MODULES}
    assert not {path: names for path, names in found.items() if names}


def test_identifiers_of_tests_keep_the_vocabulary() -> None:
    found = {}
    for path in TESTS:
        source = path.read_text("utf-8")
        found[str(path.relative_to(ROOT))] = unwanted_names(source, UNWANTED_IN_TESTS) | unclear_tests(source)
    assert not {path: names for path, names in found.items() if names}


def test_dead_letters_are_never_called_letters() -> None:
    about = [path for path in TESTS if RECORDS & set(path.relative_to(ROOT).parts)]
    assert about
    found = {str(path.relative_to(ROOT)): bare_letters(path.read_text("utf-8")) for path in about}
    assert not {path: names for path, names in found.items() if names}


def test_words_of_docstrings_and_comments_are_counted() -> None:
    source = '"""Where it stands."""\n\n\ndef f():\n    """What it says."""\n    return 1  # told, and stood\n'
    assert count_words(source) == {"total": 9, "where": 1, "stand": 2, "tell": 2, "what": 1}


def test_code_is_not_counted() -> None:
    source = '"""Use ``where`` and `what`."""\nwhat = "where it stands"  # noqa: F841\n'
    assert count_words(source) == {"total": 2, "where": 0, "stand": 0, "tell": 0, "what": 0}


def test_the_text_of_a_page_is_counted_without_code_and_addresses() -> None:
    page = "# What\n\nSee [this](what.md) and `where`.\n\n```console\n$ what\n```\n\n<!-- told -->\nIt stands.\n"
    assert page_prose(page).split() == ["#", "What", "See", "[this]", "and", ".", "It", "stands."]


def test_unwanted_names_are_found_at_their_definition() -> None:
    source = (
        "class Pile:\n    lane_id: int\n\n    def f(self, told):\n        self.outlet = 1\n\n"
        "def mournAll():\n    said = island = letterboxes = lanes()\n"
    )
    assert unwanted_names(source) == {"Pile", "lane_id", "told", "outlet", "mournAll", "said"}


def test_unclear_names_of_tests_are_found() -> None:
    names = ["test_what_is_seen", "test_a_trail_goes_on", "test_it_is_no_key", "test_somewhat_noted", "helper_what"]
    assert unclear_tests("".join(f"def {name}(): ...\n" for name in names)) == set(names[:3])
    source = "def test_a_record_is_settled(): ...\n"
    assert unwanted_names(source, UNWANTED_IN_TESTS) == {"test_a_record_is_settled"}


def test_bare_letters_are_found() -> None:
    names = ["test_a_letter_opens", "letters", "dead_letter", "test_sealed_dead_letters_open", "letterhead"]
    assert bare_letters("".join(f"def {name}(): ...\n" for name in names)) == {"test_a_letter_opens", "letters"}
