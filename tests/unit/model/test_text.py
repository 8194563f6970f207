"""Documents: views and offsets for any Unicode."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.text import Document, fold_accents, joins_word, lower_keeping_length

ANY = st.text(st.characters(), max_size=40)
WIDE = st.text("aé\u0301ß中İ𝔸🙂\u202e\u05d0 \ud800\n", max_size=30)


@given(ANY | WIDE)
def test_bytes_and_characters_map_both_ways(text: str) -> None:
    doc = Document(text)
    at = 0
    for index, char in enumerate(text):
        size = len(char.encode("utf-8", "surrogatepass"))
        assert doc.byte(index) == at
        assert [doc.char(at + i) for i in range(size)] == [index] * size
        at += size
    assert doc.byte(len(text)) == len(doc.utf8) == at
    assert doc.char(at) == len(text)


@given(ANY | WIDE)
def test_lower_case_keeps_the_length(text: str) -> None:
    assert len(lower_keeping_length(text)) == len(text)
    assert len(Document(text).lower) == len(text)


def test_lower_case_is_lower_case() -> None:
    assert lower_keeping_length("Ökafor MD") == "ökafor md"
    assert lower_keeping_length("İstanbul ABC") == "İstanbul abc"


@given(ANY | WIDE)
def test_lines_are_the_text(text: str) -> None:
    doc = Document(text)
    assert "".join(doc.pieces(doc.lines)) == text
    assert all("\n" not in line[:-1] for line in doc.pieces(doc.lines))


@given(ANY | WIDE)
def test_tokens_are_everything_but_white_space(text: str) -> None:
    doc = Document(text)
    assert "".join(doc.pieces(doc.tokens)) == "".join(c for c in text if not c.isspace())
    assert "".join(doc.pieces(doc.words)) == "".join(c for c in text if not c.isspace())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("53RHM O'Leary", ["53", "RHM", "O", "'", "Leary"]),
        ("Jose\u0301 Montan\u0303o", ["Jose\u0301", "Montan\u0303o"]),
        ("BP 120/80.", ["BP", "120", "/", "80", "."]),
        ("משה 12", ["משה", "12"]),
        ("", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    doc = Document(text)
    assert list(doc.pieces(doc.tokens)) == tokens


def test_a_document_cannot_be_changed_and_shows_nothing() -> None:
    fact = Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "Okafor")
    doc = Document("Ada Okafor", (fact,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        doc.text = "x"  # type: ignore[misc]
    assert "Okafor" not in repr(doc)
    assert doc == Document("Ada Okafor", (fact,))
    assert doc.tokens is doc.tokens


@pytest.mark.parametrize(
    ("word", "plain"), [("Nguyễn", "nguyen"), ("Ørsted", "orsted"), ("MONTAÑO", "montano"), ("Groß", "gross")]
)
def test_folding(word: str, plain: str) -> None:
    assert fold_accents(word) == plain


def test_joins_word() -> None:
    assert all(map(joins_word, "aé9\u0301中"))
    assert not any(map(joins_word, " .-_\n"))


@given(ANY | WIDE | st.text("-\u2010\u2011\u2013\u2014\u2212\u00a0\u202f 7a"))
def test_normalization_keeps_every_offset(text: str) -> None:
    doc = Document(text)
    assert len(doc.normalized) == len(text)
    for was, now in zip(text, doc.normalized.text, strict=True):
        assert now == ("-" if was in "\u2010\u2011\u2012\u2013\u2212" else " " if was in "\u00a0\u202f" else was)


def test_a_normalized_text_is_its_own_normalized_document() -> None:
    doc = Document("MRN 447-19-02 \u2014 Ada")
    assert doc.normalized is doc
