"""The places of many words: those that a search for each word finds."""

from hypothesis import given
from hypothesis import strategies as st

from deid_agent.recognize.many_words import ManyWords


@given(st.lists(st.text("abc", min_size=1, max_size=5), max_size=10), st.text("abc", max_size=30))
def test_the_places_are_those_of_a_search_for_each_word(words: list[str], text: str) -> None:
    expected = {
        word: found for word in words if (found := [at for at in range(len(text)) if text.startswith(word, at)])
    }
    search = ManyWords.of(words)
    assert search.places(text) == expected
    assert search.occur_in(text) == bool(expected)


def test_the_work_does_not_grow_with_the_number_of_words() -> None:
    """By the sizes of the pieces that are looked up, not by time."""
    lengths = ManyWords.of(f"name{number:06d}" for number in range(50_000))._lengths
    assert lengths == (10,)
