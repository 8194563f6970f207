"""How the stages of a tagger hang together, with stages that say what they are told to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deid_agent import systems
from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.recognize import registry
from deid_agent.resolve import Profile, Resolver
from deid_agent.spans import Span
from deid_agent.tagger import Tagger
from deid_agent.text import Document

ROOT = Path(__file__).resolve().parents[2]
DOC = Document("Ada Okafor saw Dr. Lindqvist in Harlow on 3/4/2019")
ADA = Span(0, 10, PhiType.PATIENT, "known:patient-name")
DATE = Span(42, 50, PhiType.DATE, "date-numeric")
DOCTOR = Span(19, 28, PhiType.DOCTOR, "crf:token")
CITY = Span(32, 38, PhiType.CITY, "weak:token")


@dataclass(frozen=True)
class Rules:
    spans: tuple[Span, ...]
    name: str = "rules"

    def recognize(self, doc: Document) -> Iterable[Span]:
        return self.spans


@dataclass
class Said:
    """A model that remembers what it was told of the first pass."""

    spans: tuple[Span, ...]
    told: tuple[Span, ...] = ()
    name: str = "said"

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        self.told = tuple(span for _, first in asked for span in first)
        return [self.spans for _ in asked]


def test_models_see_what_rules_found_but_not_what_the_message_says() -> None:
    model = Said((DOCTOR,))
    found = Tagger((Rules((ADA, DATE)),), Resolver(), (model,)).find(DOC)
    assert model.told == (DATE,)
    assert found == [ADA, DOCTOR, DATE]


def test_documents_together_are_found_as_each_alone() -> None:
    tagger = systems.tagger(registry.load_rules(ROOT / "rules"), ROOT / "models", "hybrid", Profile.RECALL)
    texts = ("", "seen by Ada Okafor RN", "42", "Dr. Lindqvist\n\nHarlow, 3/4/2019 at Mercy Ridge", "ab " * 3000, "Ada")
    docs = [Document(text) for text in texts]
    assert tagger.find_all(docs) == [tagger.find(Document(text)) for text in texts]


def test_a_record_key_is_read_without_models() -> None:
    model = Said((DOCTOR,))
    found = Tagger((Rules((ADA, DATE)),), Resolver(), (model,), beside=frozenset()).without_models().find(DOC)
    assert (found, model.told) == ([ADA, DATE], ())


def test_the_model_speaks_for_rules_that_are_not_named() -> None:
    found = Tagger((Rules((ADA, DATE)),), Resolver(Profile.BALANCED), (Said((DOCTOR,)),), beside=frozenset()).find(DOC)
    assert found == [ADA, DOCTOR]


def test_under_recall_every_rule_stands_in_a_short_value() -> None:
    doc = Document("HALL, TIARA 3/4/2019")
    name = Span(0, 11, PhiType.PATIENT, "patient-header")
    for beside, found in ((frozenset({"date-numeric"}), [name]), (frozenset[str](), [])):
        assert Tagger((Rules((name,)),), Resolver(), (Said(()),), beside=beside).find(doc) == found
    prose = Document(doc.text + " was seen by the team at noon and went home")
    assert Tagger((Rules((name,)),), Resolver(), (Said(()),), beside=frozenset({"date-numeric"})).find(prose) == []


def test_what_a_weak_finding_shares_with_a_sure_one_is_the_sure_ones() -> None:
    wide = Span(29, 38, PhiType.STREET, "weak:token")
    sure = Span(32, 38, PhiType.CITY, "crf:token")
    found = Tagger((), Resolver(), (Said((wide, sure)),)).find(DOC)
    assert [(s.start, s.end, s.type) for s in found] == [(29, 31, PhiType.STREET), (32, 38, PhiType.CITY)]


def test_the_token_model_stands_before_a_rule_of_the_same_place() -> None:
    rule = Span(19, 28, PhiType.PATIENT, "patient-label")
    assert Tagger((Rules((rule,)),), Resolver(), (Said((DOCTOR,)),)).find(DOC) == [DOCTOR]


def test_an_unknown_system_lists_the_names() -> None:
    rules = registry.load_rules(ROOT / "rules")
    with pytest.raises(
        ConfigurationError,
        match="unknown recognizer system magic: one of default, hybrid, features, network, union, token",
    ):
        systems.tagger(rules, ROOT / "models", "magic", Profile.RECALL)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    rules = registry.load_rules(ROOT / "rules")
    with pytest.raises(ConfigurationError, match=r"token\.json: .*train the model"):
        systems.tagger(rules, tmp_path, "hybrid", Profile.RECALL)
