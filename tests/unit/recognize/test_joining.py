"""Resolved spans that are one value are joined, and their ends completed."""

from pathlib import Path

import pytest

from deid_agent.eval.markup import read_corpus
from deid_agent.model import parse_annotated
from deid_agent.recognize.joining import complete_spans

CORPUS = Path(__file__).resolve().parents[3] / "corpus"
CHANGED = 62
"""Annotations of the corpus that the repairs would change, of 102,000. Never raise it."""


@pytest.mark.parametrize(
    ("proposed", "marked"),
    [
        ("[[PATIENT|Okafor]], [[PATIENT|Ada M]]\n", "[[PATIENT|Okafor, Ada M]]\n"),
        ("Name: [[PATIENT|Okafor]], [[PATIENT|Ada]]  DOB", "Name: [[PATIENT|Okafor, Ada]]  DOB"),
        ("Nurses: [[DOCTOR|Okafor]], [[DOCTOR|Ada]]\n", "Nurses: [[DOCTOR|Okafor]], [[DOCTOR|Ada]]\n"),
        ("saw [[PATIENT|Ada]], [[PATIENT|Bo]] and", "saw [[PATIENT|Ada]], [[PATIENT|Bo]] and"),
        ("[[DATE|March 3,]]\n[[DATE|2019]]", "[[DATE|March 3,\n2019]]"),
        ("[[DATE|March]]\n[[DATE|2019]]", "[[DATE|March]]\n[[DATE|2019]]"),
        ("[[HOSPITAL|Mercy Hospital]] of [[CITY|Troy]]", "[[HOSPITAL|Mercy Hospital of Troy]]"),
        ("seen at [[HOSPITAL|Mercy]] for Sepsis", "seen at [[HOSPITAL|Mercy]] for Sepsis"),
        ("[[HOSPITAL|Clinic]] for Sick Children today", "[[HOSPITAL|Clinic for Sick Children]] today"),
        ("[[PATIENT|Vane Jr]]. came", "[[PATIENT|Vane Jr.]] came"),
        ("[[PATIENT|Vane Jr]]. Came", "[[PATIENT|Vane Jr]]. Came"),
        ("daughter [[PATIENT|Ma]]-\nria will come", "daughter [[PATIENT|Ma-\nria]] will come"),
        ("daughter [[PATIENT|Ma-]]\nria will come", "daughter [[PATIENT|Ma-\nria]] will come"),
        ("'[[PATIENT|Ofa]] came", "[[PATIENT|'Ofa]] came"),
        ("[[MEDICALRECORD|MRN 4471]]", "MRN [[MEDICALRECORD|4471]]"),
    ],
)
def test_repairs(proposed: str, marked: str) -> None:
    got, want = parse_annotated(proposed), parse_annotated(marked)
    spans = complete_spans(got.spans, got.text)
    assert [(s.start, s.end, s.type) for s in spans] == [(s.start, s.end, s.type) for s in want.spans]


def test_the_repairs_leave_annotations_as_they_are() -> None:
    changed = 0
    for note in read_corpus(CORPUS):
        gold = note.annotated.spans
        repaired = {(s.start, s.end) for s in complete_spans(gold, note.annotated.text)}
        changed += sum((s.start, s.end) not in repaired for s in gold)
    assert changed <= CHANGED
