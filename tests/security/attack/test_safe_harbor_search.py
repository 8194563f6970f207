"""The attacker searches outputs of the policy ``safe-harbor`` for identifiers.

Outputs of the annotated corpus and of public messages are searched by expressions of this test and by the tagger;
findings are listed.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.safe_harbor import MAY_STAY, deidentifier, text
from support.shared import shared
from support.surrogates import ROOT

from deid_agent.eval.markup import read_corpus
from deid_agent.model.errors import MessageError
from deid_agent.model.phi import PhiType
from deid_agent.nlp.crf_taggers import LOW_CONFIDENCE
from deid_agent.pipeline.facts import facts_from_context

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
SEARCHED: dict[str, str] = {
    "SSN": r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])",
    "PHONE": r"(?<![\d-])(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?!\d)",
    "EMAIL": r"[\w.+-]+@[\w-]+\.[a-z]{2,}",
    "URL": r"https?://\S+|\bwww\.\S+",
    "IPADDRESS": r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])",
    "DATE": r"(?i)(?<![\d/.-])(?:0?[1-9]|1[0-2])/(?:0?[1-9]|[12]\d|3[01])/(?:\d{4}|\d\d)(?![\d/])"
    rf"|(?<!\d)(?:19|20)\d\d-[01]\d-[0-3]\d|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? (?:19|20)\d\d"
    rf"|\b\d{{1,2}} {_MONTH} (?:19|20)\d\d",
    "WEEKDAY": r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
    "AGE": r"(?i)\b(?:9[1-9]|1[01]\d)[- ]?(?:y/?o|yrs?|years?)[- .]?(?:old)?\b",
    "ZIP": r"\b[A-Z]{2} \d{5}(?:-\d{4})?\b",
    "VEHICLE": r"\b(?=\w*[A-Z])(?=\w*\d)[A-HJ-NPR-Z0-9]{17}\b",
    "ID": r"(?i)\b(?:mrn|ssn|acct|account|member id|policy)\b[ #:no.]{0,6}\d{4,}",
}
# Findings in the notes of the authors da to dl, with the reason why each is not, or not yet, removed.
KNOWN = {
    ("da-06-3", "ZIP"): "LC 04417, the catalogue number of an implant",
    ("da-13-1", "DATE"): "glued to the next word, 8/18/2018Arrival: MISSED",
    ("db-02-1", "ZIP"): "NE-EI 20773, a certificate whose first letters are masked: MISSED",
    ("dc-15-3", "WEEKDAY"): "Monday to Friday, the days of fractions of radiation",
    ("dh-01-3", "WEEKDAY"): "each Sunday, the day of a weekly dose",
    ("dc-12-2", "DATE"): "11/14/1750, minutes of a schedule",
    ("dh-20-3", "DATE"): "glued to the next word, 5/5/15IM: MISSED",
    ("dj-07-1", "DATE"): "a range in Afrikaans, 14-19 Junie 2019: MISSED",
}
# Degrees behind a mask ("[**DOCTOR**], M.D."): the network expects more of the name there.
_DEGREE = re.compile(r"(?:M\.?D|P\.?A|[MD]|MA|M\.S|O\.?D|C|R|RDH?|FNP|R\.T|Psy\.D|MB ChB|CSW-PIP)\.?")
# The most findings of the tagger in an output that are not in the note: 3 digits of a ZIP code, titles of
# relatives and elders, regions kept beside a city; and missed names: a cousin's and an interpreter's first name.
AGAIN = {
    **{"PATIENT": 17, "DOCTOR": 17, "ORGANIZATION": 6, "HOSPITAL": 3, "CITY": 3, "ACCOUNT": 2, "IDNUM": 2, "STREET": 2},
    **{"LICENSE": 1, "PHONE": 1},
}
_YEAR = re.compile(r"[A-Za-z ]{0,4}(?:(?:19|20)\d\d)(?:[/ -](?:\d{4}|\d\d?:?\d\d))?|\d{4} (?:19|20)\d\d")


def of_corpus() -> Iterator[tuple[str, str]]:
    """The notes of the first twelve authors, de-identified with the known facts about their patients."""
    for note in read_corpus(ROOT / "corpus"):
        if note.author <= "dl":
            known = facts_from_context(note.profile)
            yield note.id, deidentifier().text(note.annotated.text, facts=known, document=note.id).text


@pytest.mark.full
def test_no_note_of_the_corpus_shows_an_identifier() -> None:
    found: set[tuple[str, str]] = set()
    again: Counter[str] = Counter()
    for name, out in of_corpus():
        found |= {(name, type_) for type_, pattern in SEARCHED.items() if re.search(pattern, out)}
        for span in deidentifier().text(out, document=name).spans:
            value = out[span.start : span.end]
            short = span.type is PhiType.ZIP and len(value) == 3
            degree = (
                span.type is PhiType.DOCTOR and "**]" in out[span.start - 8 : span.start] and _DEGREE.fullmatch(value)
            )
            if span.source == LOW_CONFIDENCE or _YEAR.fullmatch(value) or short or degree:
                continue
            if span.type not in {*MAY_STAY, PhiType.DATE, PhiType.AGE}:
                again[span.type] += 1
            assert span.type is not PhiType.AGE or not re.search(r"(?<!\d)(?:9[1-9]|1[01]\d)(?!\d)", value), name
    assert found <= set(KNOWN)
    assert not again - Counter(AGAIN)


def test_the_search_would_find_one() -> None:
    note = (
        "Seen Monday 3/4/2019 and March 9, 2019. SSN 123-45-6789, MRN 4471902, (614) 867-5309, a.b@clinic.org, "
        "https://clinic.org/x, 10.44.7.212 . A 93-year-old of OH 45801. VIN 1M8GDM9AXKP042788."
    )
    assert [name for name, pattern in SEARCHED.items() if not re.search(pattern, note)] == []
    out = text(note)
    assert [name for name, pattern in SEARCHED.items() if re.search(pattern, out)] == []


# Values in messages that identify nobody: New Year in a typed field that needs a day, the mail address that replaces
# none, versions of C-CDA templates and of code systems.
NOBODYS = re.compile(r'-01-01|@redacted\.invalid|extension="20|\^20\d\d-\d\d-01\||\^07/31/2012\^')


@pytest.mark.parametrize("folder", ["hl7", "hl7-odd", "fhir", "ccda"])
def test_no_public_message_shows_an_identifier(folder: str) -> None:
    """Every eighth file."""
    found: Counter[str] = Counter()
    for path in sorted(p for p in shared("messages", folder).rglob("*") if p.is_file())[::8]:
        with suppress(MessageError):
            out = deidentifier().message(path.read_bytes()).payload.decode("utf-8", "replace")
            for name in ("SSN", "PHONE", "EMAIL", "AGE", "VEHICLE", "ID", "DATE"):
                for hit in re.finditer(SEARCHED[name], out):
                    found[name] += not NOBODYS.search(out[max(0, hit.start() - 12) : hit.end() + 18])
    assert not +found
