"""Words one typing error apart are found without comparing all of them."""

from hypothesis import given
from hypothesis import strategies as st
from support.growth import growth

from deid_agent.surrogate.spelling import SpellingIndex, one_edit_apart

WORDS = st.lists(st.text("abö", min_size=1, max_size=6), max_size=12)


def index_of(words: list[str]) -> SpellingIndex:
    index = SpellingIndex()
    for word in words:
        index.add(word)
    return index


@given(WORDS, st.text("abö", max_size=6))
def test_the_index_finds_the_words_that_a_comparison_with_all_finds(words: list[str], word: str) -> None:
    expected = [other for other in dict.fromkeys(words) if other[0] == word[:1] and one_edit_apart(other, word)]
    assert index_of(words).find(word) == expected


def test_a_thousand_names_are_found_in_linear_time() -> None:
    def work(count: int) -> None:
        words = [f"k{number:07d}" for number in range(count)]
        index = index_of(words)
        for word in words:
            index.find(word)

    assert growth(work, 300, 3_000) < 30


def test_words_longer_than_any_name_take_no_room() -> None:
    index = index_of(["x" * 100_000])
    assert len(index) == 0
    assert index.find("x" * 99_999) == []
