"""No two identifiers of a format share a surrogate; tests/bench/collide.py tries a million of each."""

import pytest
from support.id_formats import FORMATS, Format, meets
from support.surrogates import surrogates

MADE = surrogates()


@pytest.mark.parametrize("form", [f for f in FORMATS if f.one_to_one], ids=lambda form: form.name)
def test_no_two_identifiers_of_a_format_share_a_surrogate(form: Format) -> None:
    total, again, own = meets(MADE, form, 2_000 if form.name == "SSN of one last four" else 300)
    assert total >= 300
    assert (again, own) == (0, 0)


def test_the_samples_of_a_format_are_distinct() -> None:
    """Distinct originals: otherwise an equal surrogate would not be a collision."""
    for form in FORMATS:
        made = list(form.originals(1_000))
        assert len(set(made)) == len(made) == 1_000, form.name
