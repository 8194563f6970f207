"""Ranked models: of overlapping spans the one of the higher rank is selected."""

from collections.abc import Sequence
from dataclasses import dataclass

from deid_agent.model import Document, PhiType, Source, SourceKind, Span
from deid_agent.nlp import FirstPass
from deid_agent.recognize.ranking import RankedModels

RULE, FIRST, SECOND = (
    Source(kind, "x") for kind in (SourceKind.RULE, SourceKind.CHARACTER_MODEL, SourceKind.TOKEN_MODEL)
)
DOC = Document("Ann Quill Orlanova at 555-0164 ext 12 in Boston")


@dataclass(frozen=True)
class FixedModel:
    """Proposes the same spans of every document."""

    name: str
    spans: tuple[Span, ...]

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        return [list(self.spans) for _ in asked]


def name(start: int, end: int, source: Source) -> Span:
    return Span(start, end, PhiType.PATIENT, source)


def select(first: Sequence[Span], second: Sequence[Span], rules: Sequence[Span] = (), **options: bool) -> list[Span]:
    models = RankedModels((FixedModel("a", tuple(first)), FixedModel("b", tuple(second))), **options)
    assert models.name == "a+b"
    (found,) = models.propose_all([(DOC, rules)])
    return found


def test_the_span_of_the_first_model_is_selected_even_if_it_is_shorter() -> None:
    assert select([name(4, 9, FIRST)], [name(0, 18, SECOND)]) == [name(4, 9, FIRST)]


def test_spans_that_overlap_no_other_are_all_selected() -> None:
    assert select([name(10, 18, FIRST)], [name(0, 9, SECOND)]) == [name(0, 9, SECOND), name(10, 18, FIRST)]


def test_a_span_of_the_rules_ranks_before_the_models() -> None:
    phone = Span(22, 30, PhiType.PHONE, RULE)
    assert select([name(22, 37, FIRST)], [name(28, 30, SECOND)], [phone]) == []


def test_under_recall_the_rest_of_a_lower_span_remains_found() -> None:
    found = select([name(4, 9, FIRST)], [name(0, 18, SECOND)], keep_rests=True)
    assert [DOC.text[span.start : span.end].strip() for span in found] == ["Ann", "Quill", "Orlanova"]
    assert [span.source for span in found] == [SECOND, FIRST, SECOND]


def test_a_rest_without_a_letter_or_digit_is_dropped() -> None:
    assert select([name(0, 9, FIRST)], [name(0, 10, SECOND)], keep_rests=True) == [name(0, 9, FIRST)]
