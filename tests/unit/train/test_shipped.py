"""The shipped models were trained with the rules and the corpus of this tree."""

import json
from pathlib import Path

import pytest

from deid_agent.eval import CorpusPart, select_part
from deid_agent.eval.markup import read_corpus
from deid_agent.rules import digest_features
from deid_agent.train.card import digest_notes
from deid_agent.train.recipes import SHIPPED

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_was_trained_with_these_rules_and_notes(name: str) -> None:
    """If this fails after a change of the rules that models read, or of the corpus, run ``make models``."""
    card = json.loads((ROOT / "models" / f"{name}.json").read_text("utf-8"))
    assert card["rules"] == digest_features(ROOT / "rules")
    assert card["corpus"]["sha256"] == digest_notes(select_part(read_corpus(ROOT / "corpus"), CorpusPart.TRAIN))
