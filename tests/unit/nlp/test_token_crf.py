"""The shipped token model: its findings in invented notes, and its guarantees for any text."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import is_disjoint
from deid_agent.model.text import Document
from deid_agent.nlp.crf import load_crf
from deid_agent.nlp.crf_taggers import LOW_CONFIDENCE, TOKEN_SOURCE, TokenCrf
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.resolve import Profile
from deid_agent.recognize.tagger import Tagger
from deid_agent.rules.dictionaries import Dictionaries

ROOT = Path(__file__).resolve().parents[3]
RULES = load_rules(ROOT / "rules")
NOTE = """Pt was brought in by her neighbor Halvard Quiggins from the bakery. Works nights as a welder for
Tarrant Steel, lives in Dubuque, Iowa with husband Osric. Spoke w Ingeborg at Mercy Ridge re: f/u Tues.
"""


@pytest.fixture(scope="module")
def model() -> TokenCrf:
    return TokenCrf(load_crf(ROOT / "models", "token"), Dictionaries.load(ROOT / "rules"))


def _found(tagger: Tagger, text: str) -> dict[str, PhiType]:
    return {text[span.start : span.end]: span.type for span in tagger.find(Document(text))}


def test_hybrid_finds_names_without_a_cue() -> None:
    hybrid = load_tagger(RULES, ROOT / "models", "hybrid", Profile.BALANCED)
    rules = load_tagger(RULES, ROOT / "models", "rules", Profile.BALANCED)
    found = _found(hybrid, NOTE)
    assert found["Halvard Quiggins"] is PhiType.PATIENT
    assert found["welder"] is PhiType.PROFESSION
    assert found["Iowa"] is PhiType.STATE
    assert found["Tues"] is PhiType.DATE
    assert len(found) > len(_found(rules, NOTE))


def test_recall_finds_no_less_than_balanced() -> None:
    taggers = [load_tagger(RULES, ROOT / "models", "hybrid", p) for p in (Profile.BALANCED, Profile.RECALL)]
    few, many = (
        {at for span in tagger.find(Document(NOTE)) for at in range(span.start, span.end)} for tagger in taggers
    )
    assert few <= many


def test_low_confidence_spans_are_returned_with_the_others(model: TokenCrf) -> None:
    spans = list(model.propose(Document(NOTE), ()))
    assert {span.source for span in spans} <= {TOKEN_SOURCE, LOW_CONFIDENCE}
    assert is_disjoint(sorted(spans, key=lambda span: span.start))
    alone = TokenCrf(model.model, model.dictionaries).propose(Document(NOTE), ())
    assert {at for span in alone for at in range(span.start, span.end)} <= {
        at for span in spans for at in range(span.start, span.end)
    }


@settings(max_examples=60)
@given(text=st.text(max_size=200) | st.text("AB ab1.,:\n\té́", max_size=200))
def test_spans_lie_inside_any_text(text: str, model: TokenCrf) -> None:
    for span in model.propose(Document(text), ()):
        assert 0 <= span.start < span.end <= len(text)


def test_a_text_of_a_million_characters_is_read(model: TokenCrf) -> None:
    """One word and many: memory and time are linear, because a chain is cut into pieces."""
    for text in ("x" * 1_000_000, "ab " * 100_000):
        assert all(span.end <= len(text) for span in model.propose(Document(text), ()))


def test_a_batch_of_documents_gives_the_results_of_single_documents(model: TokenCrf) -> None:
    """Documents of a batch do not affect each other: edges separate them, and long ones make batches."""
    texts = ("Ada", "", NOTE, "Mercy", "welder for Tarrant Steel", NOTE * 40, "Osric")
    asked = [(Document(text), ()) for text in texts]
    assert model.propose_all(asked) == [list(model.propose(doc, first)) for doc, first in asked]


def test_the_tokens_that_are_certainly_names_are_returned_with_the_spans(model: TokenCrf) -> None:
    asked = [(Document(text), ()) for text in (NOTE, "", "Take one tablet daily.")]
    sure = TokenCrf(model.model, model.dictionaries, lean=4.0)
    spans, named = zip(*sure.propose_with_names(asked), strict=True)
    assert list(spans) == sure.propose_all(asked)
    words = [[NOTE[start:end] for start, end in named[0]], *named[1:]]
    assert words[1:] == [[], []]
    assert {"Halvard", "Quiggins"} <= set(words[0]) <= {"Halvard", "Quiggins", "Osric", "Ingeborg"}
