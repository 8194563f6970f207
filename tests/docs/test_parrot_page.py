"""The tables of docs/parrot.md are those of the results of its bench."""

import json

import pytest
from support.parrot_page import PAGE, RESULTS, tables


@pytest.mark.parametrize("name", ["labels", "software", "rehearsed", "recall", "threats"])
def test_a_table_is_that_of_the_results(name: str) -> None:
    table = f"<!-- table: {name} -->\n{tables()[name]}\n<!-- end -->"
    assert table in PAGE.read_text("utf-8"), "run: PYTHONPATH=tests python -m support.parrot_page"


def test_the_sentences_about_the_tables_are_true() -> None:
    found = json.loads(RESULTS.read_text("utf-8"))
    for part in ("dev", "sites"):
        control, real = found[part]["marks, labels"], found[part]["surrogates, labels"]
        assert control["signals"][0]["share_of_leaks"]["value"] > 0.95
        assert 0.5 < real["published_rule"]["share_of_leaks"]["value"] < 0.8
        assert 4 < real["published_rule"]["precision"]["value"] / real["chance"] < 8
        planted = found[part]["planted, labels"]["signals"][0]
        assert planted["share_of_leaks"]["value"] < 0.12
        software = found[part]["surrogates, software"]
        assert software["signals"][0]["precision"]["value"] < 0.1
        assert all(row["holds"] is not False for row in found[part]["threats"])
