"""docs/architecture.md describes every package in its layer, and docs/glossary.md is sorted."""

import re
from pathlib import Path

import pytest
from unit.test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SECTION = re.compile(r"^### `deid_agent\.(\w+)`\n\n(.+?)(?=\n\n#)", re.MULTILINE | re.DOTALL)


def test_every_package_has_a_paragraph() -> None:
    found = {path.parent.name for path in (ROOT / "deid_agent").glob("*/__init__.py")}
    found |= {path.stem for path in (ROOT / "deid_agent").glob("[a-z]*.py")}
    described = dict(SECTION.findall(PAGE))
    assert set(described) == found
    assert all(len(paragraph.split()) > 10 for paragraph in described.values())


def test_the_diagram_shows_the_layers() -> None:
    rows = re.findall(r'^    layer\d+\["(.+)"\]$', PAGE, re.MULTILINE)
    drawn = [set(row.split(", ")) for row in reversed(rows)]
    assert drawn == [layer - {"__init__"} for layer in LAYERS]


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for path in re.findall(r"`((?:deid_agent|tests|rules|\.ci)/[\w./-]+\.\w+)(?:::\w+)?`", page.read_text("utf-8")):
        assert (ROOT / path).exists(), path


def test_the_glossary_is_sorted_and_explains_each_term_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)[1:]
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.casefold)
