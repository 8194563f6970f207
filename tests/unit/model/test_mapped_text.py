"""Replacements over several fragments never overwrite the structure between them."""

import pytest
from support.edits import apply

from deid_agent.model.sites import Edit
from deid_agent.model.spans import MappedText, Replacement

RAW = b"A|see Ada|B|Okafor now"
#       0123456789...
TEXT = MappedText(
    "see Ada\nOkafor now",
    starts=[*range(2, 9), 9, *range(12, 22)],
    ends=[*range(3, 10), 9, *range(13, 23)],
    separators=frozenset({7}),
)


def write(new: str, start: int = 4, end: int = 14) -> bytes:
    return apply(RAW, [Edit(a, b, text.encode()) for a, b, text in TEXT.place([Replacement(start, end, new)])])


def test_a_replacement_over_two_fragments_is_distributed_by_line() -> None:
    assert write("Eve\nMiller") == b"A|see Eve|B|Miller now"


def test_another_number_of_lines_goes_to_the_first_fragment() -> None:
    assert write("Eve Miller") == b"A|see Eve Miller|B| now"
    assert write("Eve\nAnn\nMiller") == b"A|see Eve Ann Miller|B| now"


def test_a_replacement_in_one_fragment_leaves_the_others_unchanged() -> None:
    assert write("Eve", 4, 7) == b"A|see Eve|B|Okafor now"


def test_bytes_between_characters_are_kept() -> None:
    # "Oka\H\for": the highlight escape encodes no character.
    raw = rb"Oka\H\for"
    mapped = MappedText("Okafor", [0, 1, 2, 6, 7, 8], [1, 2, 3, 7, 8, 9])
    edits = [Edit(a, b, t.encode()) for a, b, t in mapped.place([Replacement(0, 6, "Miller")])]
    assert apply(raw, edits) == rb"Miller\H" + b"\\"


def test_overlapping_edits_raise() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        apply(b"abcdef", [Edit(0, 3, b"x"), Edit(2, 4, b"y")])


def test_no_repr_shows_text() -> None:
    assert "Okafor" not in repr(TEXT)


def test_an_atom_is_rewritten_as_a_whole() -> None:
    # "Ada Bell" in one escape between two plain words: all of its characters share bytes [3, 9).
    atom = MappedText("by Ada Bell.", starts=[0, 1, 2, *[3] * 8, 9], ends=[1, 2, 3, *[9] * 8, 10])

    def place(*items: Replacement) -> list[tuple[int, int, str]]:
        return list(atom.place(items))

    assert place(Replacement(3, 6, "Eve")) == [(3, 9, "Eve Bell")]
    assert place(Replacement(7, 11, "Hale")) == [(3, 9, "Ada Hale")]
    assert place(Replacement(7, 11, "Hale"), Replacement(3, 6, "Eve")) == [(3, 9, "Eve Hale")]
    assert place(Replacement(0, 6, "of Eve")) == [(0, 9, "of Eve Bell")]
    assert place(Replacement(0, 2, "of"), Replacement(11, 12, "!")) == [(0, 2, "of"), (9, 10, "!")]
