"""Boundary repair: each case has a proposed span and the spans of the guidelines."""

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, parse_source
from deid_agent.recognize.boundaries import repair_boundaries

RULE = parse_source("case")

# A text with the span in angle brackets, and the repaired spans.
CASES = [
    (PhiType.DATE, "<Jan 4 2014\n2006>", ["Jan 4 2014", "2006"]),
    (PhiType.DATE, "on <March \n26th>. He", ["March \n26th"]),
    (PhiType.DATE, "<October\n2018>", ["October\n2018"]),
    (PhiType.IDNUM, "code <'260385009>' =", ["260385009"]),
    (PhiType.DATE, "since <'98>", ["'98"]),
    (
        PhiType.ORGANIZATION,
        "<AeroMesa Air Rescue      FLIGHT RECORD\nFlight>",
        ["AeroMesa Air Rescue", "FLIGHT RECORD\nFlight"],
    ),
    (PhiType.PATIENT, "Plan: <T\n\nCHASE WINTERS> 10/8", ["T", "CHASE WINTERS"]),
    (PhiType.PATIENT, "<Zhang\n   Guoqiang> and", ["Zhang\n   Guoqiang"]),
    (PhiType.STATE, "Lincoln <NE\nELECTRO>", ["NE", "ELECTRO"]),
    (PhiType.STATE, "in <Newfoundland and Labrador>", ["Newfoundland and Labrador"]),
    (PhiType.COUNTRY, "<Peru and Chile>", ["Peru", "Chile"]),
    (PhiType.HOSPITAL, "wants <Gateway or Haymarket>, ", ["Gateway", "Haymarket"]),
    (PhiType.HOSPITAL, "<Norfolk and Norwich> took", ["Norfolk and Norwich"]),
    (PhiType.HOSPITAL, "<Gravesend Pathology Associates, P.C.>", ["Gravesend Pathology Associates, P.C"]),
    (PhiType.HOSPITAL, "<Mercy, St. Luke's> took", ["Mercy", "St. Luke's"]),
    (PhiType.ORGANIZATION, "at <Lakeview Meats, Inc.> since", ["Lakeview Meats, Inc."]),
    (PhiType.DOCTOR, "<Ames / Okafor> saw", ["Ames", "Okafor"]),
    (PhiType.DOCTOR, "with <Ames and Okafor>", ["Ames", "Okafor"]),
    (PhiType.PATIENT, "<Okafor, Ada> was", ["Okafor, Ada"]),
    (PhiType.USERNAME, "user <nts/bq14> signed", ["nts/bq14"]),
    (PhiType.PROFESSION, "<tool and die maker>, ", ["tool and die maker"]),
    (PhiType.PROFESSION, "<welder, roofer>", ["welder", "roofer"]),
    (PhiType.AGE, "sons <6 and 3>", ["6", "3"]),
    (PhiType.AGE, "<four and a half> years", ["four and a half"]),
    (PhiType.DATE, "from <3/4/19 - 3/9/19>", ["3/4/19", "3/9/19"]),
    (PhiType.DATE, "on <March 3, 2071>.", ["March 3, 2071"]),
    (PhiType.DATE, "<15 Aug\n1957>", ["15 Aug\n1957"]),
    (PhiType.MEDICALRECORD, "MRN <4471902\n12>", ["4471902", "12"]),
    (PhiType.SSN, "SSN <219-09-\r\n9999> on", ["219-09-\r\n9999"]),
    (PhiType.SSN, "SSN <219-09-9999\n12>", ["219-09-9999", "12"]),
    (PhiType.PHONE, "at <07700\n900162> now", ["07700\n900162"]),
    (PhiType.DOCTOR, "by P. D'Angelo-<Reyes> at", ["P. D'Angelo-Reyes"]),
    (PhiType.DOCTOR, "Pharmacy <Kyung>-ae says", ["Kyung-ae"]),
    (PhiType.DOCTOR, "Regards\n<C Thorne>-Wanganeen, Rural", ["C Thorne-Wanganeen"]),
    (PhiType.DOCTOR, "<Okafor>-led clinic", ["Okafor-led"]),
    (PhiType.DOCTOR, "ECHO\n\nB. <Kasprzak>, 72", ["B. Kasprzak"]),
    (PhiType.DOCTOR, "M. K. <Haché> saw", ["M. K. Haché"]),
    (PhiType.DOCTOR, "M.S.W. <Justina Obiekwe>", ["Justina Obiekwe"]),
    (PhiType.PATIENT, "P.O. <Verret>", ["Verret"]),
    (PhiType.PATIENT, "Vit. D. <dean> ", ["dean"]),
    (PhiType.CITY, "B. <Salem>, ", ["Salem"]),
    (PhiType.ORGANIZATION, "agree <St. Aldhelm>'s overflow", ["St. Aldhelm's"]),
    (PhiType.ORGANIZATION, "the <Aldhelm>'s barn", ["Aldhelm"]),
    (PhiType.PATIENT, "Mr <St. Clair>'s wife", ["St. Clair"]),
    (PhiType.PATIENT, "<   >", []),
    (PhiType.PATIENT, "<Minh Do> lives", ["Minh Do"]),
    (PhiType.PATIENT, "<Kim Ot> came", ["Kim Ot"]),
    (PhiType.DOCTOR, "<Ada Okafor, DO>", ["Ada Okafor"]),
    (PhiType.DOCTOR, "<Ada Okafor d.o.>", ["Ada Okafor"]),
    (PhiType.DOCTOR, "<Ada Okafor Md>", ["Ada Okafor"]),
]


@pytest.mark.parametrize(("kind", "marked", "expected"), CASES)
def test_boundaries_follow_the_guidelines(kind: PhiType, marked: str, expected: list[str]) -> None:
    start = marked.index("<")
    end = marked.index(">") - 1
    text = marked.replace("<", "").replace(">", "")
    assert [text[s.start : s.end] for s in repair_boundaries(Span(start, end, kind, RULE), text)] == expected


def test_a_repaired_span_keeps_type_and_source() -> None:
    (found,) = repair_boundaries(Span(0, 4, PhiType.DOCTOR, parse_source("crf:token")), "Ames-Bell")
    assert found == Span(0, 9, PhiType.DOCTOR, parse_source("crf:token"))


@pytest.mark.parametrize("filling", ["\r", "\u00a0", " ", "\n", "a/", ", ", "or ", "-a", "A. "])
def test_a_long_span_takes_linear_time(filling: str) -> None:
    """Quadratic time would not finish for a hundred thousand characters."""
    text = "A" + filling * (100_000 // len(filling)) + "B"
    for kind in (PhiType.DOCTOR, PhiType.CITY, PhiType.HOSPITAL, PhiType.DATE, PhiType.IDNUM):
        assert all(0 <= s.start < s.end <= len(text) for s in repair_boundaries(Span(0, len(text), kind, RULE), text))


@pytest.mark.parametrize(("name", "rest"), [("MINH DO", "MINH"), ("Md Rahman", "Rahman"), ("Miss Ann", "Ann")])
def test_known_phi_keeps_words_that_look_like_titles_and_credentials(name: str, rest: str) -> None:
    text = f"{name} lives alone"
    (known,) = repair_boundaries(Span(0, len(name), PhiType.PATIENT, parse_source("known:patient-name")), text)
    (read,) = repair_boundaries(Span(0, len(name), PhiType.PATIENT, parse_source("crf:token")), text)
    assert (text[known.start : known.end], text[read.start : read.end]) == (name, rest)


@pytest.mark.parametrize(
    ("number", "kind"), [("94", PhiType.AGE), ("2928823333", PhiType.IDNUM), ("1931", PhiType.IDNUM)]
)
def test_a_long_number_is_not_an_age(number: str, kind: PhiType) -> None:
    (repaired,) = repair_boundaries(Span(4, 4 + len(number), PhiType.AGE, RULE), f"Son {number} aware")
    assert repaired.type is kind


def test_a_heading_on_the_next_line_is_not_an_initial() -> None:
    (repaired,) = repair_boundaries(Span(0, 6, PhiType.DOCTOR, RULE), "Hale\nA: sepsis")
    assert (repaired.start, repaired.end) == (0, 4)
