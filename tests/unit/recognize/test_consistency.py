"""The document-level consistency pass: further mentions, and their boundaries."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, is_disjoint, parse_annotated, parse_source
from deid_agent.model.text import Document
from deid_agent.recognize import load_rules
from deid_agent.recognize.consistency import ConsistencyPass
from deid_agent.recognize.name_contexts import PersonContexts
from deid_agent.rules.dictionaries import Dictionaries

RULES = Path(__file__).resolve().parents[3] / "rules"
PIECES = ["Ada", "Okafor", "okafor", "-", ",", ".", "A", "Tucson", "00417-88", "\n", "José", "Jose\u0301", "III"]
CONSISTENCY = ConsistencyPass(
    Dictionaries.load(RULES), PersonContexts.of(load_rules(RULES)), frozenset({parse_source("guess")})
)


def found(marked: str, *others: str, source: str = "sure") -> list[str]:
    """``TYPE:text`` of the added spans, if the markup has the resolved spans."""
    first = parse_annotated(marked)
    spans = [Span(s.start, s.end, s.type, parse_source(source)) for s in first.spans]
    more = [(Document(parse_annotated(o).text), parse_annotated(o).spans) for o in others]
    return [
        f"{s.type}:{first.text[s.start : s.end]}" for s in CONSISTENCY.find_mentions(Document(first.text), spans, more)
    ]


@pytest.mark.parametrize(
    ("marked", "wanted"),
    [
        ("Ms. [[PATIENT|Ada Okafor]] came. Okafor says", ["PATIENT:Okafor"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. OKAFOR says", ["PATIENT:OKAFOR"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. okafor says", ["PATIENT:okafor"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. Okafors say", ["PATIENT:Okafors"]),
        ("Dr. [[DOCTOR|Okafor]] came.\nJ. Okafor\n", ["DOCTOR:J. Okafor"]),
        ("Dr. [[DOCTOR|Okafor]] came. Ruth Okafor-Lind", ["DOCTOR:Ruth Okafor-Lind"]),
        ("Dr. [[DOCTOR|Okafor]] came. Okafor, Ruth; Lind", ["DOCTOR:Okafor, Ruth"]),
        ("Dr. [[DOCTOR|Okafor]] came. [[PATIENT|Ruth]] Okafor", ["DOCTOR:Okafor"]),
        ("Mr. [[PATIENT|Will Young]] will go, young and old. Will Young", ["PATIENT:Will Young"]),
        ("Dr. [[DOCTOR|Foley]] placed a Foley", []),
        ("Mr [[PATIENT|Marsh]] left. Letter sent to Marsh", ["PATIENT:Marsh"]),
        ("Dr [[DOCTOR|Case]] rang. As Case wrote, this case", ["DOCTOR:Case"]),
        ("Mr [[PATIENT|Button]] ate. Button is well. Button battery", ["PATIENT:Button"]),
        ("[[DOCTOR|ROP]] seen; no ROP", []),
        ("Dr. [[DOCTOR|Li]] gave Li", []),
        ("at [[HOSPITAL|Elm Tree Clinic]], later Elm\nTree Clinic", ["HOSPITAL:Elm\nTree Clinic"]),
        ("at [[HOSPITAL|Elm Tree Clinic]], an elm tree, Elm", []),
        ("at [[HOSPITAL|QVRH]], from QVRH to qvrh", ["HOSPITAL:QVRH"]),
        ("at [[HOSPITAL|Clinic]], from Clinic", []),
        ("in [[CITY|Tucson]], then Tucson.", ["CITY:Tucson"]),
        ("in [[CITY|Tucson]], then Tucson Transit", []),
        ("MRN [[MEDICALRECORD|00417-88]] (00417-88, 00417-889, 100417-88)", ["MEDICALRECORD:00417-88"]),
        ("MRN [[MEDICALRECORD|417]]: 417 steps", []),
        ("on [[DATE|3/4/2019]], 3/4/2019; age [[AGE|47]], 47", []),
    ],
)
def test_further_mentions(marked: str, wanted: list[str]) -> None:
    assert found(marked) == wanted


@pytest.mark.parametrize(
    ("marked", "wanted"),
    [
        ("contact [[PATIENT|Okafor]] Tsvetelin 0188", ["PATIENT:Tsvetelin"]),
        ("policy of Myfanwyn [[PATIENT|Okafor]]", ["PATIENT:Myfanwyn"]),
        ("about [[PATIENT|Okafor]] Tsvetelin-Bo", []),
        ("Fever in [[PATIENT|Okafor]] Monday", []),
        ("[[PATIENT|OKAFOR]] Tsvetelin", []),
    ],
)
def test_an_unknown_word_beside_a_known_name_is_a_name(marked: str, wanted: list[str]) -> None:
    assert found(marked, source="known:patient-name") == wanted
    assert found(marked) == []


@pytest.mark.parametrize(
    ("marked", "kind", "wanted"),
    [
        ("Wife [[PATIENT|Kundryx]] agrees", "patient-kin", ["Kundryx"]),
        ("Wife [[PATIENT|Kundryx]] agrees", "crf:token", []),
        ("Wife [[PATIENT|Brunhilde]] agrees", "crf:token", ["Brunhilde"]),
        ("Wife [[PATIENT|Kundryx]] agrees", "guess", []),
        ("Dr. [[DOCTOR|Foley]] agrees", "doctor-title", []),
    ],
)
def test_names_of_one_text_are_found_in_the_other_texts_of_its_message(
    marked: str, kind: str, wanted: list[str]
) -> None:
    first = parse_annotated(marked)
    spans = [Span(s.start, s.end, s.type, parse_source(kind)) for s in first.spans]
    other = "Bring Kundryx and Brunhilde; Foley stays"
    own, further = CONSISTENCY.find_names_across([first.text, other], [spans, []])
    assert own == []
    assert [other[s.start : s.end] for s in further] == wanted


def test_low_confidence_spans_are_not_repeated() -> None:
    assert found("Ms. [[PATIENT|Okafor]] came. Okafor", source="guess") == []


def test_other_documents_of_the_patient_help() -> None:
    assert found("Okafor came", "Ms. [[PATIENT|Ada Okafor]]") == ["PATIENT:Okafor"]


def test_the_type_with_most_votes_counts() -> None:
    text = "[[PATIENT|Okafor]] [[DOCTOR|Okafor]] [[DOCTOR|Okafor]] and Okafor"
    assert found(text) == ["DOCTOR:Okafor"]


def test_the_source_names_the_type_and_no_text() -> None:
    text = "Okafor and Okafor"
    spans = CONSISTENCY.find_mentions(Document(text), [Span(0, 6, PhiType.PATIENT, parse_source("sure"))])
    assert spans == [Span(11, 17, PhiType.PATIENT, parse_source("again:PATIENT"))]


@settings(max_examples=80)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.data())
def test_spans_are_disjoint_and_new_and_stable(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    doc = Document(text)
    spans: list[Span] = []
    for start, end in doc.words[::3]:
        kind = data.draw(st.sampled_from([PhiType.PATIENT, PhiType.CITY, PhiType.MEDICALRECORD]))
        spans.append(Span(start, end, kind, parse_source("sure")))
    added = CONSISTENCY.find_mentions(doc, spans)
    both = sorted([*spans, *added], key=lambda s: s.start)
    assert is_disjoint(both)
    assert all(s.end <= len(text) for s in added)
    assert CONSISTENCY.find_mentions(doc, list(reversed(spans))) == added


def test_time_grows_with_the_text_only() -> None:
    text = "Okafor A. " * 40_000
    doc = Document(text)
    spans = [Span(a, a + 6, PhiType.PATIENT, parse_source("sure")) for a in range(0, len(text), 20)]
    assert len(CONSISTENCY.find_mentions(doc, spans)) == 20_000
