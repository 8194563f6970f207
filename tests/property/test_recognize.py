"""Recognition of any text: disjoint spans inside the text, and linear time."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.spans import Span, is_disjoint
from deid_agent.model.text import Document
from deid_agent.recognize.registry import assemble_recognizers, load_rules
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.rules.ruleset import WINDOW

RULES = load_rules(Path(__file__).resolve().parents[2] / "rules")
RECOGNIZERS = assemble_recognizers(RULES, "default")
NAMES = ["Dr. ", "Mr. ", "Ada ", "Vane", ", MD", "wife ", "’s", "St. ", "Hospital"]
NUMBERS = [
    "3/4",
    "/2019",
    "March ",
    "12, ",
    "2014",
    "'98",
    "72-year-old ",
    "MRN: ",
    "H-4471902",
    "SSN 123-45-6789",
    "0",
]
PLACES = ["555-010-7788", "x3310", "fax ", "a@b.org", "41 Elm Ave.", "Troy, NY ", "12180"]
SIGNS = ["\n", "  ", "(", ")", "é", "中", "\u202e", "\ud800"]
PIECES = st.sampled_from(NAMES) | st.sampled_from(NUMBERS) | st.sampled_from(PLACES) | st.sampled_from(SIGNS)
NOTES = st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join)
FACTS = (
    Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "Vane"),
    Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "g", "Ada May"),
    Fact(PhiType.MEDICALRECORD, ValueKind.VALUE, Subject.PATIENT, "g", "H-4471902"),
    Fact(PhiType.ZIP, ValueKind.VALUE, Subject.PATIENT, "g", "12180"),
)


def spans_of(doc: Document) -> list[Span]:
    return [span for recognizer in RECOGNIZERS for span in recognizer.recognize(doc)]


@settings(max_examples=150)
@given(NOTES, st.sampled_from(Profile))
def test_resolved_spans_are_disjoint_and_inside_the_text(text: str, profile: Profile) -> None:
    doc = Document(text, FACTS)
    spans = Resolver(profile, RULES).resolve(spans_of(doc), doc)
    assert is_disjoint(spans)
    for span in spans:
        inside = text[span.start : span.end]
        assert len(inside) == len(span)
        assert any(c.isalnum() for c in inside)
        assert inside == inside.strip()


@settings(max_examples=100)
@given(NOTES)
def test_recall_covers_balanced_and_balanced_covers_precision(text: str) -> None:
    doc = Document(text, FACTS)
    proposals = spans_of(doc)
    covered = [
        {
            at
            for s in Resolver(profile, RULES).resolve(proposals, doc)
            for at in range(s.start, s.end)
            if text[at].isalnum()
        }
        for profile in (Profile.PRECISION, Profile.BALANCED, Profile.RECALL)
    ]
    assert covered[0] <= covered[1] <= covered[2]


@settings(max_examples=60)
@given(NOTES, NOTES)
def test_a_distant_paragraph_changes_nothing(first: str, second: str) -> None:
    """Matches and their context windows are short, so distant text cannot change a span."""
    rules = RECOGNIZERS[1:]
    far = "\n" + "-- \n" * (WINDOW * 10)

    def found(text: str, offset: int, end: int) -> set[tuple[int, int, str]]:
        spans = (s for r in rules for s in r.recognize(Document(text)))
        return {(s.start - offset, s.end - offset, str(s.source)) for s in spans if offset <= s.start and s.end <= end}

    start = len(first) + 2 * len(far)
    together = first + far + far + second + far
    gated = {rule.id for rule in RULES.patterns if rule.needs}
    alone = {hit for hit in found(far + second + far, len(far), len(far) + len(second)) if hit[2] not in gated}
    assert {hit for hit in found(together, start, start + len(second)) if hit[2] not in gated} == alone


@pytest.mark.parametrize(
    "unit", ["1", "a", "A", "1 ", "a.", "Aa ", "3/4/19-", "(", "x@", "Dr. ", "é", "\u0301", "0" * 9 + ",", "I"]
)
def test_matches_are_short_for_any_input(unit: str) -> None:
    """Linear time depends on RE2 and on the bounds of repetition in the rules."""
    doc = Document(unit * (60_000 // len(unit)), FACTS)
    assert all(len(span) < 400 for span in spans_of(doc))
