"""Every criterion against cases counted by hand."""

import random
from pathlib import Path

import pytest
from support.growth import growth

from deid_agent.eval.counts import NOT_HIPAA, Criterion, count_note
from deid_agent.eval.markup import Note, read_corpus
from deid_agent.eval.score import Pair, Scores, compare_pairs, score_notes
from deid_agent.model.phi import PhiCategory, PhiType
from deid_agent.model.spans import ANNOTATION, Annotated, Span, parse_annotated, parse_source

CORPUS = Path(__file__).resolve().parents[3] / "corpus"


def note(marked: str, id_: str = "qa-01-1", patient: str = "qa-01") -> Note:
    return Note(id_, "letter", "2014-02-06", patient, parse_annotated(marked), {})


def pair(gold: str, found: str, id_: str = "qa-01-1", patient: str = "qa-01") -> Pair:
    a, b = note(gold, id_, patient), parse_annotated(found, parse_source("rule"))
    assert a.annotated.text == b.text
    return Pair(a, b.spans)


def sums(gold: str, found: str) -> dict[Criterion, tuple[int, int, int, int]]:
    one = pair(gold, found)
    return count_note(one.note.annotated.text, one.note.annotated.spans, one.found).criteria


# Gold and findings; then per criterion (right, found, recalled, gold), counted by hand.
CASES = {
    "equal": (
        "Dr. [[DOCTOR|Ann Vane]] on [[DATE|3/4/19]]",
        "Dr. [[DOCTOR|Ann Vane]] on [[DATE|3/4/19]]",
        {
            "strict": (2, 2, 2, 2),
            "token": (5, 5, 5, 5),
            "hipaa-strict": (1, 1, 1, 1),
            "hipaa-token": (3, 3, 3, 3),
            "binary-token": (5, 5, 5, 5),
            "binary-hipaa-token": (3, 3, 3, 3),
            "binary-covered": (5, 5, 3, 3),
            "names": (1, 1, 1, 1),
        },
    ),
    "missed": (
        "Dr. [[DOCTOR|Ann Vane]] on [[DATE|3/4/19]]",
        "Dr. Ann Vane on [[DATE|3/4/19]]",
        {"strict": (1, 1, 1, 2), "token": (3, 3, 3, 5), "hipaa-strict": (1, 1, 1, 1), "names": (0, 0, 0, 1)},
    ),
    "false alarm": (
        "the Foley came out on [[DATE|3/4]]",
        "the [[PATIENT|Foley]] came out on [[DATE|3/4]]",
        {"strict": (1, 2, 1, 1), "binary-hipaa-token": (2, 3, 2, 2), "binary-covered": (2, 3, 2, 2)},
    ),
    "end off by two": (
        "at [[HOSPITAL|St Anne]]'s ward",
        "at [[HOSPITAL|St Anne's]] ward",
        {"strict": (0, 1, 0, 1), "relaxed": (1, 1, 1, 1), "token": (2, 3, 2, 2), "hipaa-relaxed": (0, 0, 0, 0)},
    ),
    "end off by three": (
        "at [[CITY|Bath]] Bay now",
        "at [[CITY|Bath Bay]] now",
        {"relaxed": (0, 1, 0, 1), "hipaa-token": (1, 2, 1, 1)},
    ),
    "start off": (
        "Mrs [[PATIENT|Ann Vane]]",
        "Mrs Ann [[PATIENT|Vane]]",
        {"relaxed": (0, 1, 0, 1), "token": (1, 1, 1, 2)},
    ),
    "other type within HIPAA": (
        "[[CITY|Vane]] wrote",
        "[[PATIENT|Vane]] wrote",
        {
            "strict": (0, 1, 0, 1),
            "relaxed": (0, 1, 0, 1),
            "token": (0, 1, 0, 1),
            "binary-token": (1, 1, 1, 1),
            "binary-hipaa-token": (1, 1, 1, 1),
            "names": (0, 1, 0, 0),
        },
    ),
    "other type across HIPAA": (
        "[[PATIENT|Vane]] wrote",
        "[[DOCTOR|Vane]] wrote",
        {
            "binary-token": (1, 1, 1, 1),
            "binary-hipaa-token": (0, 0, 0, 1),
            "binary-covered": (1, 1, 1, 1),
            "names": (1, 1, 1, 1),
        },
    ),
    "names are covered or not": (
        "[[PATIENT|Ann Vane]] and [[DOCTOR|Bo Quill]], MD, by [[USERNAME|bq12]]",
        "[[PATIENT|Ann]] Vane and [[DOCTOR|Bo Quill, MD]], by [[USERNAME|bq12]]",
        {"names": (1, 2, 1, 2), "strict": (1, 3, 1, 3)},
    ),
    "nothing": ("no one", "no one", {"strict": (0, 0, 0, 0), "names": (0, 0, 0, 0)}),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_equal_the_manual_counts(case: str) -> None:
    gold, found, wanted = CASES[case]
    got = sums(gold, found)
    assert {name: got[Criterion(name)] for name in wanted} == wanted


def test_tokens_are_runs_of_letters_and_digits_cut_at_the_spans_ends() -> None:
    assert sums("x[[DEVICE|AB_12-3]]y", "[[DEVICE|xAB_12-3y]]")[Criterion.TOKEN] == (1, 3, 1, 3)


def test_the_hipaa_types_are_those_of_the_2014_script() -> None:
    named = "PATIENT AGE CITY STREET ZIP ORGANIZATION DATE PHONE FAX EMAIL SSN MEDICALRECORD HEALTHPLAN ACCOUNT LICENSE"
    assert {t.value for t in PhiType} - NOT_HIPAA == {*named.split(), "VEHICLE", "DEVICE", "BIOID", "IDNUM"}


@pytest.mark.parametrize(
    ("gold", "found", "leaks"),
    [
        ("[[PATIENT|Ann Vane]] slept", "[[PATIENT|Ann Vane]] slept", 0),
        ("[[PATIENT|Ann Vane]] slept", "[[DATE|Ann]] [[CITY|Vane]] slept", 0),
        ("[[PATIENT|Ann Vane]] slept", "[[PATIENT|Ann]] Vane slept", 1),
        ("[[PATIENT|Ann Vane]] slept", "[[PATIENT|Ann Va]]ne slept", 1),
        ("[[PHONE|555-0142]]", "[[PHONE|555]]-[[PHONE|0142]]", 0),
        ("[[SSN|***]]", "***", 1),
        ("[[SSN|***]] [[DATE|May]]", "[[SSN|***]] May", 1),
    ],
)
def test_a_span_leaks_if_a_word_of_it_is_not_covered(gold: str, found: str, leaks: int) -> None:
    one = pair(gold, found)
    types = count_note(one.note.annotated.text, one.note.annotated.spans, one.found).types
    assert sum(t.leaked for t in types.values()) == leaks


def test_micro_sums_counts_and_macro_averages_notes() -> None:
    pairs = [
        pair("[[DATE|May]] [[DATE|June]] [[DATE|July]]", "[[DATE|May]] [[DATE|June]] [[DATE|July]]", "a"),
        pair("[[DATE|May]] x", "May [[DATE|x]]", "b"),
        pair("nothing", "nothing", "c"),
    ]
    done = score_notes(pairs, resamples=10)
    micro, macro = done.prf(Criterion.STRICT), done.prf(Criterion.STRICT, macro=True)
    assert (micro.precision.value, micro.recall.value) == (0.75, 0.75)
    assert (macro.precision.value, macro.recall.value, macro.f.value) == (0.5, 0.5, 0.5)


def test_f2_weights_recall_more() -> None:
    done = score_notes([pair("[[PATIENT|Ann]] [[PATIENT|Bo]] wrote", "[[PATIENT|Ann]] Bo wrote")], resamples=10)
    names = done.prf(Criterion.NAMES)
    assert (names.precision.value, names.recall.value, names.beta) == (1.0, 0.5, 2)
    assert names.f.value == pytest.approx(5 * 0.5 / (4 * 1.0 + 0.5))


def test_types_categories_and_groups() -> None:
    pairs = [
        pair("[[DATE|May]] [[CITY|Bath]] [[CITY|Ayr]]", "[[DATE|May]] [[STATE|Bath]] Ayr"),
        pair("[[AGE|7]]", "7", "qb-02-1", "qb-02"),
    ]
    done = score_notes(pairs, resamples=10)
    types = done.by_type()
    assert list(types) == [PhiType.CITY, PhiType.STATE, PhiType.AGE, PhiType.DATE]
    assert (types[PhiType.CITY].gold, types[PhiType.CITY].leaks, types[PhiType.CITY].covered.value) == (2, 1, 0.5)
    assert (types[PhiType.AGE].gold, types[PhiType.AGE].leaks) == (1, 1)
    assert done.by_category()[PhiCategory.LOCATION].strict.sums == (0, 1, 0, 2)
    marks = done.groups(lambda n: n.author)
    assert {name: done.prf(Criterion.STRICT, only=m).sums for name, m in marks.items()} == {
        "qa": (1, 2, 1, 3),
        "qb": (0, 0, 0, 1),
    }
    assert done.leaked().value == pytest.approx(2 / 4)


def figures(done: Scores) -> list[object]:
    return [done.prf(c, macro=m) for c in Criterion for m in (False, True)] + [done.leaked(), done.by_type()]


@pytest.fixture(scope="module")
def notes() -> list[Note]:
    return list(read_corpus(CORPUS))


def test_a_perfect_prediction_scores_one(notes: list[Note]) -> None:
    done = score_notes(Pair(n, n.annotated.spans) for n in notes)
    for criterion in Criterion:
        for macro in (False, True):
            got = done.prf(criterion, macro=macro)
            assert (got.precision.value, got.recall.value, got.f.low) == (1.0, 1.0, 1.0), criterion
    assert done.leaked().high == 0


def noisy(notes: list[Note], seed: int) -> list[Pair]:
    """Return pairs with spans dropped, shortened and retyped at random, from a fixed seed."""
    rng = random.Random(seed)
    pairs = []
    for one in notes:
        found = [s for s in one.annotated.spans if rng.random() > 0.2]
        found = [Span(s.start, s.end - (len(s) > 1 and rng.random() < 0.1), s.type, parse_source("r")) for s in found]
        found = [Span(s.start, s.end, PhiType.DATE if rng.random() < 0.1 else s.type, parse_source("r")) for s in found]
        pairs.append(Pair(one, tuple(found)))
    return pairs


def test_order_does_not_matter(notes: list[Note]) -> None:
    pairs = noisy(notes[:120], 7)
    shuffled = [Pair(p.note, tuple(reversed(p.found))) for p in reversed(pairs)]
    assert figures(score_notes(pairs)) == figures(score_notes(shuffled))


def test_a_missed_span_lowers_recall_only(notes: list[Note]) -> None:
    some = notes[:60]
    whole = score_notes(Pair(n, n.annotated.spans) for n in some)
    less = score_notes(Pair(n, n.annotated.spans[1:]) for n in some)
    for criterion in Criterion:
        before, after = whole.prf(criterion), less.prf(criterion)
        assert after.precision.value == before.precision.value == 1
        assert after.recall.value < before.recall.value
    assert less.leaked().value > whole.leaked().value == 0


def test_intervals_hold_the_figure_and_draw_patients(notes: list[Note]) -> None:
    done = score_notes(noisy(notes, 3))
    strict = done.prf(Criterion.STRICT).f
    assert strict.low < strict.value < strict.high < strict.low + 0.03
    # One patient alone: every resample is that patient, however many notes it has.
    alone = score_notes([p for p in noisy(notes, 3) if p.note.patient == "da-01"]).prf(Criterion.STRICT).f
    assert alone.low == alone.value == alone.high


def test_a_corpus_is_scored_in_linear_time(notes: list[Note]) -> None:
    pairs = noisy(notes, 5)
    assert growth(lambda some: figures(score_notes(some)), pairs[: len(pairs) // 8], pairs) < 24


def test_without_text_only_the_criteria_of_spans_apply() -> None:
    bare = Note("a", "", "", "p", Annotated("", (Span(0, 3, PhiType.DATE, ANNOTATION),)), {})
    done = score_notes([Pair(bare, (Span(0, 3, PhiType.DATE, parse_source("r")),))])
    assert not done.with_text
    assert done.prf(Criterion.STRICT).f.value == 1
    assert Criterion.TOKEN not in done.applicable()
    nothing = Note("a", "", "", "p", Annotated("", ()), {})
    assert not score_notes([Pair(nothing, (Span(0, 3, PhiType.DATE, parse_source("r")),))], resamples=1).with_text


GOLD = "Dr. [[DOCTOR|Ann Vane]] on [[DATE|3/4/19]] Foley"
MISSED = "Dr. Ann Vane on [[DATE|3/4/19]] Foley"
ALARM = "Dr. [[DOCTOR|Ann Vane]] on [[DATE|3/4/19]] [[PATIENT|Foley]]"


def of_patients(*found: str) -> list[Pair]:
    return [pair(GOLD, one, f"qa-{at:02}-1", f"qa-{at:02}") for at, one in enumerate(found)]


def test_a_change_counts_the_same_patients_before_and_after() -> None:
    before, after = of_patients(GOLD, MISSED, ALARM, GOLD), of_patients(GOLD, MISSED, GOLD, MISSED)
    one = compare_pairs(before, after)
    assert (one.notes, one.patients, one.alarms) == (4, 4, (1, 0))
    assert (one.leaked.before, one.leaked.after, one.leaked.value) == (1 / 8, 2 / 8, 1 / 8)
    assert (one.strict.before, one.strict.after) == (14 / 16, 12 / 14)
    assert one.leaked.low == 0 < one.leaked.high
    assert 0.6 < one.leaked.worse < 0.8, "the fourth patient is in 68 % of the resamples"
    assert compare_pairs(before[::-1], after) == one
    same = compare_pairs(before, before)
    assert (same.strict.low, same.strict.high, same.strict.worse, same.leaked.worse) == (0, 0, 0, 0)


def test_two_systems_are_compared_over_the_same_notes() -> None:
    with pytest.raises(ValueError, match="the same notes"):
        compare_pairs(of_patients(GOLD, GOLD), of_patients(GOLD))
