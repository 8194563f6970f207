import pickle

import pytest

from deid_agent.model.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.model.spans import Replacement, Source, SourceKind, Span, in_order, is_disjoint, parse_source, splice


def span(start: int, end: int, type_: PhiType = PhiType.DATE) -> Span:
    return Span(start, end, type_, parse_source("test"))


def test_every_type_has_a_category_and_the_sets_are_those_of_the_guidelines() -> None:
    assert set(CATEGORY) == set(PhiType)
    assert len(PhiType) == 28
    assert set(CATEGORY.values()) == set(PhiCategory)


@pytest.mark.parametrize(("start", "end"), [(3, 3), (4, 3), (-1, 2)])
def test_an_empty_or_negative_span_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="span"):
        span(start, end)


def test_order_and_overlap() -> None:
    long, short, later = span(0, 9), span(0, 4), span(9, 12)
    assert in_order([later, short, long]) == [long, short, later]
    assert long.covers(short)
    assert not short.covers(long)
    assert is_disjoint([short, later])
    assert not is_disjoint([long, short])


def test_splice_puts_text_in_place() -> None:
    assert splice("on 3/4 and 5/6", [Replacement(11, 14, "7/8"), Replacement(3, 6, "12/30")]) == "on 12/30 and 7/8"


@pytest.mark.parametrize("bad", [[Replacement(0, 3, ""), Replacement(2, 4, "")], [Replacement(0, 99, "")]])
def test_splice_refuses_overlapping_replacements(bad: list[Replacement]) -> None:
    with pytest.raises(ValueError, match="overlaps or leaves"):
        splice("some text", bad)


def test_a_replacement_shows_no_text() -> None:
    assert "Okafor" not in repr(Replacement(0, 3, "Okafor"))


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("date-iso", Source(SourceKind.RULE, "date-iso")),
        ("known:patient-name", Source(SourceKind.KNOWN, "patient-name")),
        ("crf:token", Source(SourceKind.TOKEN_MODEL, "token")),
        ("weak:token", Source(SourceKind.LOW_CONFIDENCE, "token")),
        ("again:LOCATION-OTHER", Source(SourceKind.CONSISTENCY, "LOCATION-OTHER")),
        ("their-model:v2:x", Source(SourceKind.FOREIGN, "their-model:v2:x")),
        ("", Source(SourceKind.RULE, "")),
    ],
)
def test_a_source_is_written_as_it_was_read(written: str, source: Source) -> None:
    assert parse_source(written) == source
    assert str(source) == written == f"{source}"


def test_a_source_hashes_by_its_value_after_pickling() -> None:
    source = Source(SourceKind.TOKEN_MODEL, "token")
    assert pickle.loads(pickle.dumps(source)) in {Source(SourceKind.TOKEN_MODEL, "token")}  # noqa: S301 - our own bytes
