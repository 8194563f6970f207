"""Labels: spans as one label for each unit, and back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.model.phi import CATEGORY, PhiType
from deid_agent.model.spans import Span, parse_source
from deid_agent.nlp.labels import Schema, decode_edge_labels, decode_labels, encode_labels

CHARACTER_SOURCE = parse_source("x")

TOKENS = [(0, 3), (4, 6), (6, 7), (8, 12), (13, 15)]


def span(start: int, end: int, kind: PhiType = PhiType.DOCTOR) -> Span:
    return Span(start, end, kind, CHARACTER_SOURCE)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Schema.IO, "I I I O I"),
        (Schema.BIO, "B I I O B"),
        (Schema.BIOES, "B I E O S"),
    ],
)
def test_labels_of_each_schema(schema: Schema, expected: str) -> None:
    found = encode_labels([span(0, 7), span(13, 15)], TOKENS, schema)
    assert [label.removesuffix("-DOCTOR") for label in found] == expected.split()


def test_edges_have_the_category_only_and_short_spans_have_none() -> None:
    units = [(at, at + 1) for at in range(9)]
    spans = [span(0, 4, PhiType.CITY), span(5, 7, PhiType.STATE), span(8, 9, PhiType.AGE)]
    assert encode_labels(spans, units, Schema.EDGES) == [
        *("B-LOCATION", "I-CITY", "I-CITY", "E-LOCATION", "O", "I-STATE", "I-STATE", "O", "I-AGE")
    ]


def test_a_unit_belongs_to_the_span_that_it_shares_a_character_with() -> None:
    assert encode_labels([span(5, 9)], TOKENS, Schema.IO) == ["O", "I-DOCTOR", "I-DOCTOR", "I-DOCTOR", "O"]


def test_the_first_of_two_spans_in_one_unit_gives_its_label() -> None:
    found = encode_labels([span(8, 10), span(10, 12, PhiType.PATIENT)], TOKENS, Schema.BIO)
    assert found == ["O", "O", "O", "B-DOCTOR", "O"]


def test_a_type_with_a_hyphen_survives_encoding() -> None:
    labels = encode_labels([span(0, 3, PhiType.LOCATION_OTHER)], TOKENS, Schema.BIO)
    assert [s.type for s in decode_labels(labels, TOKENS, CHARACTER_SOURCE)] == [PhiType.LOCATION_OTHER]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("I-CITY E-LOCATION O O", [(0, 2, "CITY")]),
        ("B-LOCATION E-LOCATION O O", [(0, 2, "HOSPITAL")]),  # no inside: the first type
        ("B-NAME I-DOCTOR I-PATIENT O", [(0, 2, "DOCTOR"), (2, 3, "PATIENT")]),
        ("B-NAME I-CITY B-LOCATION O", [(0, 1, "PATIENT"), (1, 2, "CITY"), (2, 3, "HOSPITAL")]),
        ("O E-DATE I-AGE I-AGE", [(1, 2, "DATE"), (2, 4, "AGE")]),
    ],
)
def test_edges_in_any_order(labels: str, expected: list[tuple[int, int, str]]) -> None:
    units = [(at, at + 1) for at in range(4)]
    found = decode_edge_labels(labels.split(), units, CHARACTER_SOURCE)
    assert [(s.start, s.end, s.type.value) for s in found] == expected


SPAN_EDGES = st.sampled_from(["B", "I", "E", "S"])
ANY = st.one_of(st.just("O"), st.builds("{}-{}".format, SPAN_EDGES, st.sampled_from(list(PhiType))))
EDGED = st.one_of(
    st.just("O"),
    st.builds("I-{}".format, st.sampled_from(list(PhiType))),
    st.builds("{}-{}".format, st.sampled_from("BE"), st.sampled_from(sorted(set(CATEGORY.values())))),
)


@given(st.lists(ANY, max_size=12))
def test_no_labelled_unit_is_lost_in_any_order(labels: list[str]) -> None:
    units = [(at, at + 1) for at in range(len(labels))]
    found = list(decode_labels(labels, units, CHARACTER_SOURCE))
    assert {c for s in found for c in range(s.start, s.end)} == {i for i, label in enumerate(labels) if label != "O"}
    assert all(a.end <= b.start for a, b in pairwise(found))


@given(st.lists(EDGED, max_size=12))
def test_no_edge_is_lost_in_any_order(labels: list[str]) -> None:
    units = [(at, at + 1) for at in range(len(labels))]
    found = list(decode_edge_labels(labels, units, CHARACTER_SOURCE))
    assert {c for s in found for c in range(s.start, s.end)} == {i for i, label in enumerate(labels) if label != "O"}
    assert all(a.end <= b.start for a, b in pairwise(found))


LAID = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6), st.sampled_from(list(PhiType))), max_size=6)


@given(LAID, st.sampled_from(list(Schema)))
def test_spans_with_a_gap_survive_encoding(laid: list[tuple[int, int, PhiType]], schema: Schema) -> None:
    spans, at = [], 0
    for gap, size, kind in laid:
        spans.append(Span(at + gap, at + gap + size, kind, CHARACTER_SOURCE))
        at += gap + size
    units = [(c, c + 1) for c in range(at + 1)]
    labels = encode_labels(spans, units, schema)
    back = (
        decode_edge_labels(labels, units, CHARACTER_SOURCE)
        if schema is Schema.EDGES
        else decode_labels(labels, units, CHARACTER_SOURCE)
    )
    assert list(back) == spans


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([Schema.BIO, Schema.BIOES]))
def test_adjacent_spans_of_one_type_remain_separate(a: int, b: int, schema: Schema) -> None:
    spans = [span(0, a), span(a, a + b)]
    units = [(c, c + 1) for c in range(a + b)]
    assert list(decode_labels(encode_labels(spans, units, schema), units, CHARACTER_SOURCE)) == spans
