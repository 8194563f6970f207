"""The bound on leaks, the altered text, and the conventions of other corpora."""

from pathlib import Path

import pytest

from deid_agent.eval.claims import count_altered
from deid_agent.eval.convention import Convention, apply_convention, load_convention
from deid_agent.eval.markup import Note
from deid_agent.eval.risk_control import bound_leaks
from deid_agent.eval.score import Pair
from deid_agent.model import ConfigurationError, parse_annotated


def pair(gold: str, found: str, number: int = 0) -> Pair:
    annotated, proposed = parse_annotated(gold), parse_annotated(found)
    assert annotated.text == proposed.text
    return Pair(Note(f"n-{number}", "", "", f"p-{number}", annotated, {}), tuple(proposed.spans))


def test_the_bound_is_the_mean_with_one_more_patient_who_leaks_everything() -> None:
    plain = [pair("no PHI", "no PHI", number) for number in range(1, 9)]
    bound = bound_leaks([pair("[[PATIENT|Ada]] [[CITY|Troy]]", "[[PATIENT|Ada]] Troy"), *plain], 0.2)
    assert (bound.notes, bound.patients) == (9, 9)
    assert bound.mean == pytest.approx(0.5 / 9)
    assert bound.bound == pytest.approx(0.15)
    assert bound.holds
    assert bound.sentence == (
        "on 9 notes of 9 patients 5.56 % of a patient's annotations leak on average; a further patient drawn like "
        "these leaks at most 20.00 % on average"
    )


def test_a_share_below_the_bound_may_not_be_claimed() -> None:
    bound = bound_leaks([pair("[[PATIENT|Ada]]", "[[PATIENT|Ada]]", number) for number in range(49)], 0.01)
    assert not bound.holds
    assert bound.sentence.endswith("no claim of 1.00 % may be made: with these patients the least bound is 2.00 %")


def test_altered_tokens_are_counted_apart_from_phi() -> None:
    altered = count_altered([pair("BP 12/8 and [[PATIENT|Ada]] well", "BP [[DATE|12/8]] and [[PATIENT|Ada well]]")])
    assert (altered.tokens, altered.words, altered.numbers) == (6, 1, 2)
    assert altered.numbers_per_thousand == pytest.approx(1000 * 2 / 6)


@pytest.mark.parametrize(
    ("gold", "found", "convention"),
    [
        ("[[DOCTOR|Dr. Okafor]] came", "Dr. [[DOCTOR|Okafor]] came", Convention(title=True)),
        ("[[MEDICALRECORD|MRN 4471]]", "MRN [[MEDICALRECORD|4471]]", Convention(label=True)),
        ("[[IDNUM|#4471]]", "#[[IDNUM|4471]]", Convention(label=True)),
        (
            "[[HOSPITAL|Mercy Hospital, Troy]]",
            "[[HOSPITAL|Mercy Hospital]], [[CITY|Troy]]",
            Convention(joined_site=True),
        ),
        ("since 2019 and [[DATE|3/4/2019]]", "since [[DATE|2019]] and [[DATE|3/4/2019]]", Convention(bare_year=False)),
    ],
)
def test_a_convention_makes_the_difference_disappear(gold: str, found: str, convention: Convention) -> None:
    def ranges(one: Pair) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        spans = one.note.annotated.spans
        return [(s.start, s.end) for s in spans], [(s.start, s.end) for s in one.found]

    (plain,) = apply_convention([pair(gold, found)], Convention())
    (mapped,) = apply_convention([pair(gold, found)], convention)
    assert ranges(plain)[0] != ranges(plain)[1]
    assert ranges(mapped)[0] == ranges(mapped)[1]


def test_a_finding_that_no_annotation_joins_stays_divided() -> None:
    (one,) = apply_convention(
        [pair("[[HOSPITAL|Mercy Hospital]], Troy", "[[HOSPITAL|Mercy Hospital]], [[CITY|Troy]]")],
        Convention(joined_site=True),
    )
    assert len(one.found) == 2


def test_an_unknown_key_of_a_convention_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("titles = true\n", "utf-8")
    with pytest.raises(ConfigurationError, match="unknown key titles"):
        load_convention(tmp_path / "c.toml")
