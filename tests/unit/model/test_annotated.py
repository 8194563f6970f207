"""Guideline markup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.annotated import render

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import MarkupError, parse_annotated


def test_spans_are_characters_of_the_plain_text() -> None:
    got = parse_annotated("Dr. [[DOCTOR|Amara Okafor]], [[LOCATION-OTHER|PO Box 7]]\n[from [[DATE|01/15/13]]]")
    assert got.text == "Dr. Amara Okafor, PO Box 7\n[from 01/15/13]"
    assert [(got.text[s.start : s.end], s.type) for s in got.spans] == [
        ("Amara Okafor", PhiType.DOCTOR),
        ("PO Box 7", PhiType.LOCATION_OTHER),
        ("01/15/13", PhiType.DATE),
    ]


@pytest.mark.parametrize(
    ("marked", "line", "detail"),
    [
        ("a\n[[WIZARD|x]]", 2, "unknown type"),
        ("[[DATE|x", 1, "not closed"),
        ("a\n\n[[DATE|]]", 3, "empty"),
        ("[[DATE|a [[DATE|b]] c]]", 1, "inside"),
        ("[[DATE|a [[ b]]", 1, "inside"),
    ],
)
def test_faults_name_the_line(marked: str, line: int, detail: str) -> None:
    with pytest.raises(MarkupError, match=detail) as fault:
        parse_annotated(marked)
    assert fault.value.line == line


PIECES = st.lists(
    st.tuples(st.text("ab \né中", max_size=5), st.sampled_from(PhiType), st.text("xyz ", min_size=1, max_size=4))
)


@given(PIECES, st.text("cd\n", max_size=5))
def test_render_and_parse_are_inverse(pieces: list[tuple[str, PhiType, str]], tail: str) -> None:
    marked = "".join(f"{before}[[{kind}|{inside}]]" for before, kind, inside in pieces) + tail
    got = parse_annotated(marked)
    assert got.text == "".join(before + inside for before, _, inside in pieces) + tail
    assert render(got.text, got.spans) == marked
    assert "xyz" not in repr(got)
