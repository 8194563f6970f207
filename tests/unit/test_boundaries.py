"""Where findings begin and end: every case names what was found and what the guidelines count as found."""

import pytest

from deid_agent.boundaries import bounded
from deid_agent.phi import PhiType
from deid_agent.spans import Span

# Text with the finding in angle brackets, and what it becomes.
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
def test_a_finding_becomes_what_the_guidelines_count(kind: PhiType, marked: str, expected: list[str]) -> None:
    start = marked.index("<")
    end = marked.index(">") - 1
    text = marked.replace("<", "").replace(">", "")
    assert [text[s.start : s.end] for s in bounded(Span(start, end, kind, "case"), text)] == expected


def test_a_finding_keeps_type_and_source() -> None:
    (found,) = bounded(Span(0, 4, PhiType.DOCTOR, "crf:token"), "Ames-Bell")
    assert found == Span(0, 9, PhiType.DOCTOR, "crf:token")


@pytest.mark.parametrize("filling", ["\r", "\u00a0", " ", "\n", "a/", ", ", "or ", "-a", "A. "])
def test_a_long_finding_is_read_once(filling: str) -> None:
    """A hundred thousand characters of one kind: what was quadratic here would not end."""
    text = "A" + filling * (100_000 // len(filling)) + "B"
    for kind in (PhiType.DOCTOR, PhiType.CITY, PhiType.HOSPITAL, PhiType.DATE, PhiType.IDNUM):
        assert all(0 <= s.start < s.end <= len(text) for s in bounded(Span(0, len(text), kind, "case"), text))


@pytest.mark.parametrize(("name", "rest"), [("MINH DO", "MINH"), ("Md Rahman", "Rahman"), ("Miss Ann", "Ann")])
def test_what_the_message_names_loses_no_word_that_is_a_title_or_credential_too(name: str, rest: str) -> None:
    text = f"{name} lives alone"
    (known,) = bounded(Span(0, len(name), PhiType.PATIENT, "known:patient-name"), text)
    (read,) = bounded(Span(0, len(name), PhiType.PATIENT, "crf:token"), text)
    assert (text[known.start : known.end], text[read.start : read.end]) == (name, rest)
