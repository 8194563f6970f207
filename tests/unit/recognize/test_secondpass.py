"""The second pass: what it repeats, what it leaves alone, and where its spans end."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.dictionary import Dictionaries
from deid_agent.markup import parse
from deid_agent.phi import PhiType
from deid_agent.recognize.secondpass import SecondPass
from deid_agent.spans import Span, is_disjoint
from deid_agent.text import Document

RULES = Path(__file__).resolve().parents[3] / "rules"
PIECES = ["Ada", "Okafor", "okafor", "-", ",", ".", "A", "Tucson", "00417-88", "\n", "José", "Jose\u0301", "III"]
AGAIN = SecondPass(Dictionaries.load(RULES), frozenset({"guess"}))


def found(marked: str, *others: str, source: str = "sure") -> list[str]:
    """``TYPE:text`` of what is added where the markup says what the first pass found."""
    first = parse(marked)
    spans = [Span(s.start, s.end, s.type, source) for s in first.spans]
    more = [(Document(parse(o).text), parse(o).spans) for o in others]
    return [f"{s.type}:{first.text[s.start : s.end]}" for s in AGAIN.second_pass(Document(first.text), spans, more)]


@pytest.mark.parametrize(
    ("marked", "wanted"),
    [
        ("Ms. [[PATIENT|Ada Okafor]] came. Okafor says", ["PATIENT:Okafor"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. OKAFOR says", ["PATIENT:OKAFOR"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. okafor says", ["PATIENT:okafor"]),
        ("Ms. [[PATIENT|Ada Okafor]] came. Okafors say", []),
        ("Dr. [[DOCTOR|Okafor]] came.\nJ. Okafor\n", ["DOCTOR:J. Okafor"]),
        ("Dr. [[DOCTOR|Okafor]] came. Ruth Okafor-Lind", ["DOCTOR:Ruth Okafor-Lind"]),
        ("Dr. [[DOCTOR|Okafor]] came. Okafor, Ruth; Lind", ["DOCTOR:Okafor, Ruth"]),
        ("Dr. [[DOCTOR|Okafor]] came. [[PATIENT|Ruth]] Okafor", ["DOCTOR:Okafor"]),
        ("Mr. [[PATIENT|Will Young]] will go, young and old. Will Young", ["PATIENT:Will Young"]),
        ("Dr. [[DOCTOR|Foley]] placed a Foley", []),
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
def test_what_is_found_again(marked: str, wanted: list[str]) -> None:
    assert found(marked) == wanted


def test_unsure_findings_are_not_repeated() -> None:
    assert found("Ms. [[PATIENT|Okafor]] came. Okafor", source="guess") == []


def test_other_documents_of_the_patient_help() -> None:
    assert found("Okafor came", "Ms. [[PATIENT|Ada Okafor]]") == ["PATIENT:Okafor"]


def test_the_type_with_most_votes_counts() -> None:
    text = "[[PATIENT|Okafor]] [[DOCTOR|Okafor]] [[DOCTOR|Okafor]] and Okafor"
    assert found(text) == ["DOCTOR:Okafor"]


def test_the_source_names_the_type_and_no_text() -> None:
    text = "Okafor and Okafor"
    spans = AGAIN.second_pass(Document(text), [Span(0, 6, PhiType.PATIENT, "sure")])
    assert spans == [Span(11, 17, PhiType.PATIENT, "again:PATIENT")]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.data())
def test_spans_are_disjoint_and_new_and_stable(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    doc = Document(text)
    spans: list[Span] = []
    for start, end in doc.words[::3]:
        kind = data.draw(st.sampled_from([PhiType.PATIENT, PhiType.CITY, PhiType.MEDICALRECORD]))
        spans.append(Span(start, end, kind, "sure"))
    added = AGAIN.second_pass(doc, spans)
    both = sorted([*spans, *added], key=lambda s: s.start)
    assert is_disjoint(both)
    assert all(s.end <= len(text) for s in added)
    assert AGAIN.second_pass(doc, list(reversed(spans))) == added


def test_time_grows_with_the_text_only() -> None:
    text = "Okafor A. " * 40_000
    doc = Document(text)
    spans = [Span(a, a + 6, PhiType.PATIENT, "sure") for a in range(0, len(text), 20)]
    assert len(AGAIN.second_pass(doc, spans)) == 20_000
