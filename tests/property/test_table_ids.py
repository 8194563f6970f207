"""Identifiers of tables: one to one in the range of their column, and composite ones join with their parts."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables import deidentifier

from deid_agent.batch.ids import IdMap, Template, map_template
from deid_agent.model import MessageError

IDS = IdMap(deidentifier().values.replace_id)
INT16, INT32, INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1
HIGHEST = st.sampled_from((INT16, INT32, INT64))


@settings(max_examples=200)
@given(HIGHEST.flatmap(lambda most: st.tuples(st.just(most), st.lists(st.integers(1, most), min_size=2, unique=True))))
def test_numbers_are_mapped_one_to_one_in_the_range_of_the_type(drawn: tuple[int, list[int]]) -> None:
    highest, values = drawn
    new = [IDS.map_number(value, highest) for value in values]
    assert len(set(new)) == len(values)
    assert all(0 < each <= highest for each in new)
    assert all(len(str(a)) == len(str(b)) and a != b for a, b in zip(values, new, strict=True))


def test_all_small_numbers_are_mapped_onto_themselves_as_a_set() -> None:
    for least, most in ((1, 9), (10, 99), (100, 127)):
        new = {IDS.map_number(value, 127) for value in range(least, most + 1)}
        assert new == set(range(least, most + 1))


@given(st.integers(max_value=0), HIGHEST)
def test_marks_of_no_identifier_stay(value: int, highest: int) -> None:
    assert IDS.map_number(value, highest) == value
    assert IDS.map_text(str(value)) == str(value)


@given(st.integers(1, 10**18))
@example(99_999_999_999_999_999)  # the form of a vehicle's number, which may have an X
def test_a_number_has_the_surrogate_of_its_text(value: int) -> None:
    assert IDS.map_text(str(value)) == str(IDS.map_number(value, INT64))


@given(st.lists(st.text("0123456789", min_size=1, max_size=3), unique=True))
def test_texts_are_mapped_one_to_one(values: list[str]) -> None:
    assert len({IDS.map_text(value) for value in values}) == len(values)


PART = st.text("ABCab0123456789", min_size=1, max_size=12)


@given(st.lists(PART, min_size=3, max_size=3), st.sampled_from((("", "-", "-", ""), ("n", "_", "/", "."))))
def test_a_composite_is_the_composite_of_its_parts(parts: list[str], separators: tuple[str, ...]) -> None:
    template = Template(("a", "b", "c"), separators)
    joined = template.join(parts)
    assert template.split(joined) == parts
    maps: dict[str, Callable[[str], str]] = {"a": IDS.map_text, "c": IDS.map_text}
    assert map_template(template, joined, maps) == template.join(
        [IDS.map_text(parts[0]), parts[1], IDS.map_text(parts[2])]
    )


@given(st.text("ab-", max_size=12))
def test_a_value_is_split_in_one_way_or_refused(value: str) -> None:
    template = Template(("a", "b"), ("", "-", ""))
    parts = template.split(value)
    if parts is None:
        with pytest.raises(MessageError, match="MALFORMED: template: the value has not the form"):
            map_template(template, value, {})
    else:
        assert template.join(parts) == value
        assert all(parts) and "-" not in parts[0]
