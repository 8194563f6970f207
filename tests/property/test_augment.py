"""Augmented notes: annotations stay on their text after any change."""

import random
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deid_agent.eval.markup import read_file
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import ANNOTATION, Annotated, Replacement, Span, is_disjoint, splice
from deid_agent.train.augment import Augmenter, Noise, add_noise, apply_edits

ROOT = Path(__file__).resolve().parents[2]
WORDS = st.text("abcdXYZ015 .\nrnmlé", min_size=1, max_size=12)
SHARES = st.sampled_from([0.0, 0.3, 1.0])


@st.composite
def notes(draw: st.DrawFn) -> Annotated:
    """A text of pieces, some of them annotated."""
    text, spans = "", []
    for piece, kind in draw(st.lists(st.tuples(WORDS, st.sampled_from([None, *PhiType])), max_size=12)):
        if kind is not None:
            spans.append(Span(len(text), len(text) + len(piece), kind, ANNOTATION))
        text += piece
    return Annotated(text, tuple(spans))


@st.composite
def edits(draw: st.DrawFn, length: int) -> list[Replacement]:
    """Disjoint edits in order; some empty, some across the edges of spans."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=12)))
    return [Replacement(a, b, draw(st.text("pqr", max_size=3))) for a, b in list(pairwise(cuts))[::2]]


@given(st.data())
def test_spans_hold_their_own_edited_text(data: st.DataObject) -> None:
    """Each piece of the new text, in a span or between two, is the old piece with the edits inside it."""
    note = data.draw(notes())
    made = data.draw(edits(len(note.text)))
    new = apply_edits(note, made)

    at, wanted, spans = 0, "", []
    for start, end, kind in [*((s.start, s.end, s.type) for s in note.spans), (len(note.text), None, None)]:
        for a, b, of in ((at, start, None), (start, end, kind)):
            if b is None:
                continue
            own = [Replacement(e.start - a, e.end - a, e.text) for e in made if a <= e.start < e.end <= b]
            piece = splice(note.text[a:b], own)
            if of is not None and piece:
                spans.append((len(wanted), len(wanted) + len(piece), of))
            wanted += piece
        at = end or at
    assert new.text == wanted
    assert [(s.start, s.end, s.type) for s in new.spans] == spans


@given(notes(), st.builds(Noise, SHARES, SHARES, SHARES, SHARES, SHARES, SHARES), st.integers(0, 9))
def test_noise_changes_neither_order_nor_type_of_the_spans(note: Annotated, noise: Noise, seed: int) -> None:
    new = add_noise(note, noise, random.Random(seed))
    assert new == add_noise(note, noise, random.Random(seed))
    assert is_disjoint(new.spans)
    assert all(span.end <= len(new.text) for span in new.spans)
    left = iter(span.type for span in note.spans)
    assert all(span.type in left for span in new.spans)  # in the same order; spans of only white space may be removed


@given(notes(), st.integers(0, 9))
def test_changes_of_case_and_line_ends_keep_offsets(note: Annotated, seed: int) -> None:
    new = add_noise(note, Noise(upper=0.5, lower=0.5, line_breaks=0.5), random.Random(seed))
    assert new.spans == note.spans
    assert new.text.lower().split() == note.text.lower().split()


def test_augmented_notes_differ_only_in_annotated_spans() -> None:
    augmenter = Augmenter(ROOT / "rules", 7, Noise())
    changed = 0
    for note in read_file(ROOT / "corpus" / "da-01.txt"):
        old, new = note.annotated, augmenter.make_copy(note, 1).annotated
        assert [s.type for s in new.spans] == [s.type for s in old.spans]
        assert _between(new) == _between(old)
        assert augmenter.make_copy(note, 1).annotated == new
        assert augmenter.make_copy(note, 2).annotated != new
        changed += sum(
            new.text[a.start : a.end] != old.text[b.start : b.end] for a, b in zip(new.spans, old.spans, strict=True)
        )
    assert changed > 50


def _between(annotated: Annotated) -> list[str]:
    edges = [0, *(edge for s in annotated.spans for edge in (s.start, s.end)), len(annotated.text)]
    return [annotated.text[a:b] for a, b in list(pairwise(edges))[::2]]


def test_the_property_can_fail() -> None:
    """An edit across an edge is skipped; it would move a character into a span."""
    note = Annotated("ab cd", (Span(3, 5, PhiType.PATIENT, ANNOTATION),))
    assert apply_edits(note, [Replacement(2, 4, "x")]) == note
    assert apply_edits(note, [Replacement(0, 2, "")]).spans == (Span(1, 3, PhiType.PATIENT, ANNOTATION),)
