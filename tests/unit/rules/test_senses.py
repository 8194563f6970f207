"""Word senses: loading and invalid files."""

from pathlib import Path

import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.rules.files import load_senses

RULES = Path(__file__).resolve().parents[3] / "rules"


def test_words_with_a_similar_use_share_a_sense() -> None:
    known = load_senses(RULES)
    assert known["nephrology"] == known["cardiology"]
    assert known["nephrology"] != known["welder"]
    assert {len(set(level)) for level in zip(*known.values(), strict=True)} == {1024, 256, 64}


def test_a_sense_has_one_group_and_one_field() -> None:
    above = {(sense, group, field) for field, group, sense in load_senses(RULES).values()}
    assert len(above) == 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1/2/3 word\nword\n", "senses.txt:2: write field/group/sense and words"),
        ("1/2 word\n", "senses.txt:1: write"),
        ("1/2/3\n", "senses.txt:1: write"),
        ("1/2/3 \n", "senses.txt:1: write"),
        ("1/2/3 word  word\n", "senses.txt:1: write"),
        ("1/2/3 word \n", "senses.txt:1: write"),
        (" 1/2/3 word\n", "senses.txt:1: write"),
        ("1/2/3\tword\n", "senses.txt:1: write"),
        ("1/2/3 word\n\n", "senses.txt:2: write"),
        ("# head\n1/2/3 word\n1/2/4 other word\n", "senses.txt:3: a word of this line occurs twice"),
        ("1/2/3 word word\n", "senses.txt:1: a word of this line occurs twice"),
    ],
)
def test_an_invalid_file_is_reported_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "senses.txt").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=expected):
        load_senses(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"senses\.txt: cannot be read"):
        load_senses(tmp_path)
