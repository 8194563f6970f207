"""The contract of a recognizer: inherit ``RecognizerContract`` with ``sources`` and a ``recognizer`` fixture.

For any text the spans are inside the text, the same each time, and have declared sources. No ``repr`` contains text.
The texts include input that would stall a backtracking matcher.
"""

import re
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.text import Document
from deid_agent.recognize.tagger import Recognizer

FACTS = (
    Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "PID-5", "Zylstra-Okonjo"),
    Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "PID-5", "Wilhelmina"),
    Fact(PhiType.MEDICALRECORD, ValueKind.VALUE, Subject.PATIENT, "PID-3", "0044719"),
    Fact(PhiType.DATE, ValueKind.VALUE, Subject.PATIENT, "PID-7", "19410917"),
    Fact(PhiType.STREET, ValueKind.VALUE, Subject.PATIENT, "PID-11", "218 Tannery Row"),
)
NOTE = (
    "Dr. Ada Vane saw Ms. Zylstra-Okonjo (MRN 44719, DOB 9/17/41) of 218 Tannery Row on March 3, 2014.\n"
    "Call 555-010-7788. A 72-year-old woman; her son, Anders, 44, lives in Troy, NY 12180.\n"
    "signed by azylstra2\nAttendingDrHolmbergNote follows; Annelise agrees\n"
)
HARD = {
    "empty": "",
    "blank": " \n\t ",
    "one megabyte without a blank": "aB3-" * 250_000,
    "one megabyte of digits": "1234567890" * 100_000,
    "capital words": "Dr. Ab Cd " * 10_000,
    "open brackets": "([{<" * 10_000,
    "dates": "3/4/19 " * 10_000,
    "right to left": "הערה \u202eמטופל\u202c Dr. כהן 3/4/2014 \u0645\u0631\u064a\u0636",
    "combining": "Dr. Jose\u0301 Montan\u0303o\u0301\u0301\u0301, 3/4/2014",
    "lone surrogate": "Dr. Vane \ud800 3/4/2014 \udfff",
    "controls": "Dr.\x00Vane\x0b3/4/2014\x85\u2028MRN\u00a044719",
    "wide": "患者 中村 2014-02-06 MRN 44719 🙂 Dr. Vane",
}
TEXTS = st.text(st.characters() | st.sampled_from("Dr. Vane MRN 44719 3/4/14 @x.org 72yo"), max_size=80)


class RecognizerContract:
    """Inherit as ``class TestX(RecognizerContract)``; ``sources`` is a pattern of the written sources."""

    sources: ClassVar[str]

    @pytest.fixture
    def recognizer(self) -> Recognizer:
        raise NotImplementedError  # abstract: each test class that inherits the contract provides its recognizer

    def test_it_finds_something(self, recognizer: Recognizer) -> None:
        assert list(recognizer.recognize(Document(NOTE, FACTS)))

    def test_it_has_a_name(self, recognizer: Recognizer) -> None:
        assert re.fullmatch(r"[a-z][a-z-]{1,30}", recognizer.name)

    @pytest.mark.parametrize("text", HARD.values(), ids=HARD.keys())
    def test_hard_texts(self, recognizer: Recognizer, text: str) -> None:
        self.check(recognizer, Document(text, FACTS))

    @settings(
        max_examples=60,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.function_scoped_fixture],
    )
    @given(TEXTS)
    def test_any_text(self, recognizer: Recognizer, text: str) -> None:
        self.check(recognizer, Document(text, FACTS))

    def test_the_same_each_time(self, recognizer: Recognizer) -> None:
        first = list(recognizer.recognize(Document(NOTE, FACTS)))
        assert first == list(recognizer.recognize(Document(NOTE, FACTS)))

    def test_no_state_of_another_document_remains(self, recognizer: Recognizer) -> None:
        before = list(recognizer.recognize(Document(NOTE)))
        list(recognizer.recognize(Document(NOTE, FACTS)))
        assert before == list(recognizer.recognize(Document(NOTE)))

    def test_no_text_is_shown(self, recognizer: Recognizer) -> None:
        shown = repr(recognizer) + repr(list(recognizer.recognize(Document(NOTE, FACTS))))
        assert not re.search(r"Zylstra|Wilhelmina|44719|Tannery|Vane", shown)

    def check(self, recognizer: Recognizer, doc: Document) -> None:
        spans, declared = list(recognizer.recognize(doc)), recognizer.sources
        for span in spans:
            assert span.end <= len(doc.text)
            assert doc.text[span.start : span.end].strip()
            assert isinstance(span.type, PhiType)
            assert re.fullmatch(self.sources, str(span.source))
            assert span.source in declared
