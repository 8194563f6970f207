"""Columns of tokens in their two forms."""

from pathlib import Path

from deid_agent.crf.columns import COLUMNS, Spread, View
from deid_agent.dictionary import Dictionaries
from deid_agent.text import Document

RULES = Path(__file__).resolve().parents[3] / "rules"


def test_what_is_made_once_for_each_word_or_list_is_the_column() -> None:
    dictionaries = Dictionaries.load(RULES)
    view = View(Document("Dr. Okafor saw Ada Okafor in Iowa, seen 3/4/2019 in Iowa City by Okafor"), (), dictionaries)
    for name in COLUMNS:
        compact = view.compact(name)
        if isinstance(compact, Spread):
            compact = [compact.values[at] for at in compact.at]
        assert list(compact) == list(view.column(name)), name
