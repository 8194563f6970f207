"""Spans of a model are divided: adjacent dates remain separate, all text remains covered, and no span is too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import Span, parse_source
from deid_agent.model.text import Document
from deid_agent.recognize.registry import assemble_recognizers, load_rules
from deid_agent.recognize.resolve import Profile, Resolver
from deid_agent.recognize.tagger import LONGEST, Tagger, divide_model_spans

MODEL = parse_source("crf:token")

RULES = load_rules(Path(__file__).resolve().parents[3] / "rules")


@dataclass(frozen=True)
class WholeText:
    """A model that proposes the whole text as one span."""

    type: PhiType
    name: str = "all"

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> list[list[Span]]:
        return [[Span(0, len(doc), self.type, MODEL)] for doc, _ in asked]


def _divided(text: str, kind: PhiType, *first: str) -> list[str]:
    spans, at = [], 0
    for part in first:
        at = text.index(part, at)
        spans.append(Span(at, at + len(part), kind, parse_source("rule")))
        at += len(part)
    return [text[s.start : s.end] for s in divide_model_spans([Span(0, len(text), kind, MODEL)], spans, Document(text))]


@pytest.mark.parametrize(
    ("text", "first", "wanted"),
    [
        ("3/4/19 3/5/19 3/6/19", ("3/4/19", "3/5/19", "3/6/19"), ["3/4/19", "3/5/19", "3/6/19"]),
        ("3/4/19 and 3/5/19", ("3/4/19", "3/5/19"), ["3/4/19", "3/5/19"]),
        ("on 3/4/19, 3/5/19 am", ("3/4/19", "3/5/19"), ["on 3/4/19", "3/5/19 am"]),
        ("3/4/19 Easter 3/5/19", ("3/4/19", "3/5/19"), ["3/4/19", " Easter ", "3/5/19"]),
        ("Monday 3/4/19", ("3/4/19",), ["Monday 3/4/19"]),
        ("October\n2018", ("October", "2018"), ["October\n2018"]),
    ],
)
def test_dates_are_divided_if_rules_find_several(text: str, first: tuple[str, ...], wanted: list[str]) -> None:
    assert _divided(text, PhiType.DATE, *first) == wanted


def test_a_name_is_not_divided_at_the_spans_of_rules() -> None:
    assert _divided("Ada Vane", PhiType.PATIENT, "Ada", "Vane") == ["Ada Vane"]


@pytest.mark.parametrize("profile", Profile)
def test_each_date_of_a_row_is_a_span(profile: Profile) -> None:
    text = "3/4/19 3/5/19 3/6/19"
    tagger = Tagger(
        assemble_recognizers(RULES, "patterns"),
        Resolver(profile, RULES),
        (WholeText(PhiType.DATE),),
        models_decide=True,
    )
    assert [text[s.start : s.end] for s in tagger.find(Document(text))] == text.split()


@given(st.lists(st.sampled_from(["3/4/19", "Ada", "-", " ", "\n", "9" * 300, "é"]), max_size=200).map("".join))
def test_pieces_cover_the_span_and_end_at_token_ends(text: str) -> None:
    doc = Document(text)
    if not doc.tokens:
        return
    whole = Span(doc.tokens[0][0], doc.tokens[-1][1], PhiType.PATIENT, MODEL)
    pieces = divide_model_spans([whole], (), doc)
    assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
    assert all(a.end == b.start for a, b in pairwise(pieces))
    starts, ends = {a for a, _ in doc.tokens}, {b for _, b in doc.tokens}
    for piece in pieces:
        assert piece.start in starts
        assert len(piece) <= LONGEST or sum(piece.start <= a < piece.end for a, _ in doc.tokens) == 1
    assert pieces[-1].end in ends
