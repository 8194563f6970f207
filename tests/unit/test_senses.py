"""Senses of words: what is loaded, and what is refused."""

from pathlib import Path

import pytest

from deid_agent import senses
from deid_agent.errors import ConfigurationError

RULES = Path(__file__).resolve().parents[2] / "rules"


def test_words_that_are_used_alike_share_a_sense() -> None:
    known = senses.load(RULES)
    assert known["nephrology"] == known["cardiology"]
    assert known["nephrology"] != known["welder"]
    assert {len(set(level)) for level in zip(*known.values(), strict=True)} == {1024, 256, 64}


def test_a_sense_has_one_group_and_one_field() -> None:
    above = {(sense, group, field) for field, group, sense in senses.load(RULES).values()}
    assert len(above) == 1024


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("1/2/3 word\nword\n", "senses.txt:2: write field/group/sense and words"),
        ("1/2 word\n", "senses.txt:1: write"),
        ("1/2/3\n", "senses.txt:1: write"),
        ("# head\n1/2/3 word\n1/2/4 other word\n", "senses.txt:3: a word of this line stands twice"),
        ("1/2/3 word word\n", "senses.txt:1: a word of this line stands twice"),
    ],
)
def test_a_faulty_file_says_where(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "senses.txt").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=where):
        senses.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"senses\.txt: cannot be read"):
        senses.load(tmp_path)
