"""Which names are remembered, and in which texts of the patient a remembered word is a name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest

from deid_agent.measure import Grammar, Mark, MeasureKind, Veto
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.spans import Source, SourceKind, Span
from deid_agent.model.text import Document, Range
from deid_agent.recognize.name_memory import NameMemory, PatientNames
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.remembered_names import INTRODUCING, MEMORY_SOURCE
from deid_agent.recognize.resolve import Profile
from deid_agent.recognize.tagger import Findings, Tagger
from deid_agent.rules import data_folder

RULES = load_rules(data_folder("rules"))
TAGGER = load_tagger(RULES, data_folder("models"), "rules", Profile.RECALL)
MODEL = Source(SourceKind.TOKEN_MODEL, "token")
TITLE = next(source for source in INTRODUCING if source.id == "patient-title")


def nobody() -> PatientNames:
    return NameMemory(b"a secret of the tests", 1).of_patient("4471")


def learn(
    names: PatientNames,
    text: str,
    name: str,
    source: Source = MODEL,
    type_: PhiType = PhiType.PATIENT,
    *,
    sure: bool = True,
) -> None:
    """Remember ``name`` as a finding in ``text``; ``sure``: with a high probability of a model."""
    doc = Document(text)
    start = text.index(name)
    span = Span(start, start + len(name), type_, source)
    named: list[Range] = [token for token in doc.tokens if sure and span.start <= token[0] < span.end]
    TAGGER.learn_names(names, doc, Findings([span], named))


def knowing(*words: str) -> PatientNames:
    names = nobody()
    for given in words:
        TAGGER.learn_facts(names, [Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "", given)])
    return names


def found(names: PatientNames, text: str, spans: Sequence[Span] = ()) -> list[str]:
    doc = Document(text)
    return [
        text[span.start : span.end]
        for span in TAGGER.find_remembered(names, doc, spans)
        if span.source == MEMORY_SOURCE
    ]


def test_a_listed_name_is_remembered_after_one_note() -> None:
    names = nobody()
    learn(names, "Lives with Keziah.", "Keziah")
    assert found(names, "Keziah 3620 g.") == ["Keziah"]


def test_a_word_of_no_list_is_remembered_after_one_note() -> None:
    names = nobody()
    learn(names, "Lives with Zyblorqua.", "Zyblorqua")
    assert found(names, "Zyblorqua 3620 g.") == ["Zyblorqua"]


def test_a_word_of_another_list_needs_two_notes() -> None:
    names = nobody()
    for number, known in enumerate(([], ["Chisinau"])):
        learn(names, f"Lives with Chisinau, {number}.", "Chisinau")
        assert found(names, "Chisinau 3620 g.") == known


def test_a_finding_that_no_model_is_sure_of_is_not_remembered() -> None:
    names = nobody()
    learn(names, "Lives with Keziah.", "Keziah", sure=False)
    assert found(names, "Keziah 3620 g.") == []


def test_a_title_introduces_a_name_without_a_model() -> None:
    names = nobody()
    learn(names, "Mrs. Zyblorqua came.", "Zyblorqua", TITLE, sure=False)
    assert found(names, "Zyblorqua 3620 g.") == ["Zyblorqua"]


def test_other_types_are_not_remembered() -> None:
    names = nobody()
    learn(names, "Lives in Zyblorqua.", "Zyblorqua", type_=PhiType.CITY)
    assert found(names, "Zyblorqua 3620 g.") == []


def test_every_part_of_a_name_in_a_field_is_remembered_without_titles_and_particles() -> None:
    names = nobody()
    fact = Fact(PhiType.DOCTOR, ValueKind.NAME, Subject.PROVIDER, "", "Dr. Osric van O'Leary-Keziah MD")
    TAGGER.learn_facts(names, [fact, Fact(PhiType.CITY, ValueKind.VALUE, Subject.PATIENT, "", "Harlow")])
    assert found(names, "Leary 1. Keziah 2. Osric 3. Dr 4. van 5. MD 6. Harlow 7.") == ["Leary", "Keziah", "Osric"]


@pytest.mark.parametrize(
    ("remembered", "text", "expected"),
    [
        ("Keziah", "KEZIAH slept.", ["KEZIAH"]),
        ("Keziah", "keziah slept.", []),
        ("keziah", "keziah slept.", ["keziah"]),
        ("José", "Jose slept.", ["Jose"]),
        ("Keziah", "Keziah's cat, Keziahs, 2Keziah, Keziah2", ["Keziah"]),
        ("Jin", "met hye-Jin", ["hye-Jin"]),
        ("Bo", "Bo is up. BO bo", ["Bo"]),
        ("LISA", "LISA x1, Lisa came", ["LISA", "Lisa"]),
        ("Lisa", "s/p LISA x1; mother LISA", ["LISA"]),
        ("J", "J slept", []),
    ],
)
def test_a_word_is_found_capitalized_or_in_the_same_writing(remembered: str, text: str, expected: list[str]) -> None:
    assert found(knowing(remembered), text) == expected


@pytest.mark.parametrize(
    ("remembered", "text", "expected"),
    [
        ("Hope", "Hope for discharge.", []),
        ("Hope", "Daughter Hope for discharge.", ["Hope"]),
        ("Will", "Will help with the form.", []),
        ("Will", "Will denies pain.", ["Will"]),
        ("Rose", "Rose from a chair.", []),
        ("Rose", "Mrs. Rose from Ohio.", ["Rose"]),
        ("will", "she will", []),
        ("Foley", "Foley draining.", []),
        ("Graves", "no Graves or otherwise", []),
        ("Hodgkin", "Hodgkin cells are found", []),
        ("Crohn", "Crohn's disease, stable", []),
    ],
)
def test_an_ordinary_word_or_a_clinical_term_needs_a_person_beside_it(
    remembered: str, text: str, expected: list[str]
) -> None:
    assert found(knowing(remembered), text) == expected


@dataclass(frozen=True)
class FixedGrammar:
    """A grammar that marks "Kelly"."""

    veto: Veto

    def find(self, doc: Document) -> tuple[Mark, ...]:
        start = doc.text.index("Kelly")
        return (Mark(start, start + 5, MeasureKind.INSTRUMENT, self.veto),)


def test_a_word_inside_a_soft_mark_needs_a_person_beside_it() -> None:
    assert found(knowing("Kelly"), "Kelly clamp x2.") == []
    assert found(knowing("Kelly"), "Kelly tired. Mrs. Kelly test.") == ["Kelly", "Kelly"]


@pytest.mark.parametrize(("veto", "expected"), [(Veto.SOFT, 1), (Veto.HARD, 0)])
def test_a_word_inside_a_hard_mark_is_never_a_name(veto: Veto, expected: int) -> None:
    resolver = replace(TAGGER.resolver, grammar=cast(Grammar, FixedGrammar(veto)))
    tagger, doc = replace(TAGGER, resolver=resolver), Document("Mrs. Kelly denies pain.")
    assert len(tagger.find_remembered(knowing("Kelly"), doc, ())) == expected


def test_spans_are_left_as_they_are() -> None:
    text = "Keziah Zyblorqua, Keziah"
    own = (Span(0, 16, PhiType.DOCTOR, MODEL),)
    spans = TAGGER.find_remembered(knowing("Keziah"), Document(text), own)
    assert spans == [*own, Span(18, 24, PhiType.PATIENT, MEMORY_SOURCE)]
    beside = (Span(7, 16, PhiType.PATIENT, MODEL),)
    spans = TAGGER.find_remembered(knowing("Keziah"), Document(text[:16]), beside)
    assert spans == [Span(0, 6, PhiType.PATIENT, MEMORY_SOURCE), *beside], "a joined name would have another surrogate"


def test_nothing_is_remembered_without_word_lists() -> None:
    tagger = load_tagger(RULES, data_folder("models"), "rules-once", Profile.RECALL)
    names = nobody()
    tagger.learn_facts(names, [Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "", "Keziah")])
    assert len(names) == 0
    assert tagger.find_remembered(names, Document("Keziah"), ()) == ()


@dataclass(frozen=True)
class SureModel:
    """A model that is sure of one token of every document."""

    spans: tuple[Span, ...]
    name: str = "sure"

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        return [self.spans for _ in asked]

    def propose_with_names(
        self, asked: Sequence[tuple[Document, Sequence[Span]]]
    ) -> Sequence[tuple[Sequence[Span], Sequence[Range]]]:
        return [(self.spans, [(span.start, span.end) for span in self.spans]) for _ in asked]


def test_a_tagger_reports_the_tokens_that_its_models_are_sure_of() -> None:
    span = Span(0, 6, PhiType.PATIENT, MODEL)
    tagger = Tagger((), TAGGER.resolver, (SureModel((span,)),), TAGGER.consistency)
    doc = Document("Keziah 3620 g.")
    (findings,) = tagger.read_all([doc])
    assert findings == Findings([span], [(0, 6)])
    assert tagger.find_all([doc]) == [[span]]
    names = nobody()
    tagger.learn_names(names, doc, findings)
    assert found(names, "Keziah 3700 g.") == ["Keziah"]


def test_a_page_of_remembered_names_is_read_in_linear_time() -> None:
    """Each word is looked up once, whatever is remembered; the loop ends because no step compares all with all."""
    text = "Keziah 1. " * 20_000
    assert len(found(knowing("Keziah"), text)) == 20_000
