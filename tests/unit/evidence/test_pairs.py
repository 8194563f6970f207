"""Alignment of originals and outputs."""

import random

import pytest

from deid_agent.evidence import ReplacedRange, TextPair, count_unchanged, make_pair, pair_from_trace
from deid_agent.pipeline.tracing import Cause, Change, DocumentTrace


def test_the_surrogates_of_a_note_are_found() -> None:
    original = "Ada Okafor, MRN 4711-22, was seen on 03/04/2019. Plan: aspirin 81 mg. Signed: Dr. Lee"
    output = "Ruth Vance, MRN 8102-95, was seen on 01/22/2018. Plan: aspirin 81 mg. Signed: Dr. Moss"
    pair = make_pair("1", "p", original, output)
    assert [pair.surrogate(each) for each in pair.replaced] == ["Ruth Vance", "8102-95", "01/22/2018", "Moss"]
    assert [pair.replaced_text(each) for each in pair.replaced] == ["Ada Okafor", "4711-22", "03/04/2019", "Lee"]


def test_a_value_that_is_unchanged_has_its_place_in_the_output() -> None:
    original, output = "Ada saw Dr. Lee. Bilirubin 3.4", "Alexandra saw Dr. Lee. Bilirubin 3.4"
    pair = make_pair("1", "p", original, output)
    begin, end = pair.find_in_output((original.index("Lee"), original.index("Lee") + 3)) or (0, 0)
    assert output[begin:end] == "Lee"
    assert pair.find_in_output((0, 3)) is None


def test_ranges_that_do_not_explain_the_output_are_refused() -> None:
    with pytest.raises(ValueError, match="differ outside") as caught:
        TextPair("1", "p", "Ada was here", "Ruth was there", (ReplacedRange(0, 4, 0, 3),))
    assert "Ada" not in str(caught.value)
    with pytest.raises(ValueError, match="not in order"):
        TextPair("1", "p", "abc", "abc", (ReplacedRange(2, 3, 2, 3), ReplacedRange(0, 1, 0, 1)))


def test_a_pair_shows_no_text() -> None:
    """The ids may be names of files or record numbers."""
    shown = repr(make_pair("Okafor.txt", "4471902", "Ada came", "Ruth came"))
    assert not [text for text in ("Ada", "Ruth", "Okafor", "4471902") if text in shown]


def test_the_output_of_another_note_is_hardly_unchanged() -> None:
    one = "Chest pain since Monday, troponin negative, discharged on aspirin."
    other = "Fell from a ladder; fracture of the left radius, cast for six weeks."
    assert count_unchanged(one, other) < 0.2
    assert count_unchanged(one, one) == 1


@pytest.mark.parametrize("seed", range(60))
def test_any_two_texts_are_aligned(seed: int) -> None:
    """The pair's own check: outside the replaced ranges the texts are the same."""
    draw = random.Random(seed)
    words = ["a", "b", "the", "12", "/", " ", "\n", "\u00e9", "\x00", "Okafor", "\ud800", "Lee", "  ", "."]
    original = "".join(draw.choices(words, k=draw.randrange(120)))
    output = "".join(draw.choices(words, k=draw.randrange(120)))
    make_pair("1", "p", original, output)


@pytest.mark.parametrize(
    ("original", "output"), [("", "x"), ("x", ""), ("", ""), ("a" * 300_000, "b"), ("a " * 60_000, "b " * 60_000)]
)
def test_extreme_texts_are_aligned(original: str, output: str) -> None:
    assert make_pair("1", "p", original, output).output == output


def test_repeated_lines_are_aligned_line_by_line() -> None:
    """No token occurs once, and comparing all tokens with all others would take too long."""
    for line, other in (("Dr. Vance 3/4/2019 aspirin\n", "Dr. Moss 3/5/2018 aspirin\n"), ("Dr. Vance ", "Dr. Moss ")):
        pair = make_pair("1", "p", line * 500, other * 500)
        assert len(pair.replaced) >= 500
        assert all("aspirin" not in pair.surrogate(each) for each in pair.replaced)


def test_a_recorded_change_has_its_place_in_characters_and_its_type() -> None:
    """The trace counts bytes."""
    before, after = "Zoë Müller, 3/4/2019, geht heim".encode(), "Björk Ödegård, 1/2/2018, geht heim".encode()
    name, day = Cause("text", "PATIENT", "surrogate", "rule"), Cause("text", "DATE", "surrogate", "rule")
    changes = [Change(0, 12, 0, 16, name), Change(14, 22, 18, 26, day)]
    pair = pair_from_trace("1", "p", DocumentTrace("", before, after, changes))
    found = [(each.type, pair.replaced_text(each), pair.surrogate(each)) for each in pair.replaced]
    assert found == [("PATIENT", "Zoë Müller", "Björk Ödegård"), ("DATE", "3/4/2019", "1/2/2018")]


def test_a_name_that_repeats_in_a_line_without_anchors_is_seen() -> None:
    """A flow sheet in one line: no word occurs once, and surrogates have another number of words."""
    line = "Okafor seen in {} BP {}2 P {}8 ; "
    original, output = (
        "".join(line.format(town, at % 3, at % 2) for at in range(60)) for town in ("New York", "Boston")
    )
    pair = make_pair("1", "p", original, output)
    assert {pair.replaced_text(each) for each in pair.replaced} == {"New York"}
    assert pair.find_in_output((original.rindex("Okafor"), original.rindex("Okafor") + 6)) is not None


@pytest.mark.parametrize("order", [1, -1])
def test_hostile_texts_without_anchors_are_aligned(order: int) -> None:
    """Blocks of one letter, in the same order and in the opposite one."""
    letters = "abcdefghijkl"
    original = "".join(f"{letter} " * 500 for letter in letters)
    output = "".join(f"{letter}  " * 501 for letter in letters[::order])
    make_pair("1", "p", original, output)
