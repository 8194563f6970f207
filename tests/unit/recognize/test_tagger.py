"""The stages of a tagger, with recognizers and models that give fixed spans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import BesideModels, Source, SourceKind, SourceTraits, Span, parse_source
from deid_agent.model.text import Document
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.recognize.tagger import Tagger

ROOT = Path(__file__).resolve().parents[3]
DOC = Document("Ada Okafor saw Dr. Lindqvist in Harlow on 3/4/2019")
ADA = Span(0, 10, PhiType.PATIENT, parse_source("known:patient-name"))
DATE = Span(42, 50, PhiType.DATE, parse_source("date-numeric"))
DOCTOR = Span(19, 28, PhiType.DOCTOR, parse_source("crf:token"))
CITY = Span(32, 38, PhiType.CITY, parse_source("weak:token"))


@dataclass(frozen=True)
class Rules:
    """A recognizer that proposes these spans in every document."""

    spans: tuple[Span, ...]
    beside_models: BesideModels = BesideModels.NEVER
    name: str = "rules"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        traits = SourceTraits(beside_models=self.beside_models)
        return {span.source: SourceTraits() if span.source.kind is SourceKind.KNOWN else traits for span in self.spans}

    def recognize(self, doc: Document) -> Iterable[Span]:
        return self.spans


@dataclass
class FixedModel:
    """A model that proposes fixed spans and records the first-pass spans that it sees."""

    spans: tuple[Span, ...]
    seen: tuple[Span, ...] = ()
    name: str = "said"

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        self.seen = tuple(span for _, first in asked for span in first)
        return [self.spans for _ in asked]


def test_models_see_the_spans_that_they_may_overrule() -> None:
    model = FixedModel((DOCTOR,))
    found = Tagger((Rules((ADA, DATE)),), Resolver(), (model,)).find(DOC)
    assert model.seen == (DATE,)
    assert found == [ADA, DOCTOR, DATE]


def test_a_batch_gives_the_spans_of_each_document_alone() -> None:
    tagger = load_tagger(load_rules(ROOT / "rules"), ROOT / "models", "hybrid", Profile.RECALL)
    texts = ("", "seen by Ada Okafor RN", "42", "Dr. Lindqvist\n\nHarlow, 3/4/2019 at Mercy Ridge", "ab " * 3000, "Ada")
    docs = [Document(text) for text in texts]
    assert tagger.find_all(docs) == [tagger.find(Document(text)) for text in texts]


def test_a_record_key_is_read_without_models() -> None:
    model = FixedModel((DOCTOR,))
    found = Tagger((Rules((ADA, DATE)),), Resolver(), (model,), models_decide=True).without_models().find(DOC)
    assert (found, model.seen) == ([ADA, DATE], ())


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("beside_models", BesideModels)
def test_models_overrule_a_span_only_if_its_source_permits_it(profile: Profile, beside_models: BesideModels) -> None:
    rules = Rules((ADA, DATE), beside_models)
    found = Tagger((rules,), Resolver(profile), (FixedModel((DOCTOR,)),), models_decide=True).find(DOC)
    kept = {BesideModels.ALWAYS, BesideModels.RECALL} if profile is Profile.RECALL else {BesideModels.ALWAYS}
    assert found == ([ADA, DOCTOR, DATE] if beside_models in kept else [ADA, DOCTOR])


def test_under_recall_models_overrule_nothing_in_a_short_value() -> None:
    doc = Document("HALL, TIARA 3/4/2019")
    name = Span(0, 11, PhiType.PATIENT, parse_source("patient-header"))
    for profile, found in ((Profile.RECALL, [name]), (Profile.BALANCED, []), (Profile.PRECISION, [])):
        assert Tagger((Rules((name,)),), Resolver(profile), (FixedModel(()),), models_decide=True).find(doc) == found
    prose = Document(doc.text + " was seen by the team at noon and went home")
    assert Tagger((Rules((name,)),), Resolver(), (FixedModel(()),), models_decide=True).find(prose) == []


def test_a_low_confidence_span_keeps_only_its_own_part() -> None:
    wide = Span(29, 38, PhiType.STREET, parse_source("weak:token"))
    sure = Span(32, 38, PhiType.CITY, parse_source("crf:token"))
    found = Tagger((), Resolver(), (FixedModel((wide, sure)),)).find(DOC)
    assert [(s.start, s.end, s.type) for s in found] == [(29, 31, PhiType.STREET), (32, 38, PhiType.CITY)]


def test_the_token_model_ranks_before_a_rule_at_the_same_span() -> None:
    rule = Span(19, 28, PhiType.PATIENT, parse_source("patient-label"))
    assert Tagger((Rules((rule,)),), Resolver(), (FixedModel((DOCTOR,)),)).find(DOC) == [DOCTOR]


def test_an_unknown_system_lists_the_names() -> None:
    rules = load_rules(ROOT / "rules")
    with pytest.raises(
        ConfigurationError,
        match="unknown recognizer system magic: one of default, hybrid, features, network, union, token",
    ):
        load_tagger(rules, ROOT / "models", "magic", Profile.RECALL)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    rules = load_rules(ROOT / "rules")
    with pytest.raises(
        ConfigurationError, match=r"system hybrid needs token and network, .*: run deid-agent train token"
    ):
        load_tagger(rules, tmp_path, "hybrid", Profile.RECALL)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("PENICILLIN, ORAL", False),
        ("STENT, DES", False),
        ("CARCINOMA, DUCTAL", False),
        ("LITHIUM, CARBONATE", False),
        ("WARFARIN, COUMADIN", False),
        ("AMOXICILLIN, SUSP", False),
        ("ILIEVA, RADOSTINA", True),
        ("STENT, JOHANNA", True),
        ("YOUNG, GRACE", True),
        ("ZYTHAN, QUORLE", True),
    ],
)
def test_models_overrule_the_form_of_a_name_in_a_clinical_term(text: str, named: bool) -> None:
    found = load_tagger(load_rules(ROOT / "rules"), ROOT / "models", "hybrid", Profile.RECALL).find(Document(text))
    assert bool(found) is named
