"""Exact bounds and resampled intervals."""

import math

import pytest

from deid_agent.evidence.figures import (
    NO_INTERVAL,
    EvidenceFigure,
    PatientCounts,
    bound_share,
    exact_interval,
    most_likely_share,
    percent,
    resampled_difference,
    resampled_share,
)


def tail(count: int, of: int, share: float) -> float:
    """The probability of at most ``count`` cases, summed by the definition."""
    return math.fsum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(count + 1))


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 50, 0.0, 0.07112),
        (1, 50, 0.00051, 0.10647),
        (3, 40, 0.01574, 0.20386),
        (50, 50, 0.92888, 1.0),
        (1, 1, 0.025, 1),
    ],
)
def test_the_bounds_are_those_of_tables(count: int, of: int, low: float, high: float) -> None:
    assert exact_interval(count, of) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.parametrize(("count", "of"), [(0, 7), (2, 9), (8, 9), (30, 200), (199, 200), (1, 1000)])
def test_a_sample_is_rarer_than_the_tails_outside_of_its_interval(count: int, of: int) -> None:
    low, high = exact_interval(count, of)
    assert tail(count, of, high) == pytest.approx(0.025, rel=1e-6)
    if count:
        assert 1 - tail(count - 1, of, low) == pytest.approx(0.025, rel=1e-6)
    assert tail(count, of, most_likely_share(count, of)) == pytest.approx(0.05, rel=1e-6)


def test_a_sample_without_a_case_has_a_bound() -> None:
    figure = bound_share("leaks", 0, 50)
    assert figure.value == 0
    assert figure.high == pytest.approx(1 - 0.025 ** (1 / 50))
    assert most_likely_share(0, 298) > 0.01 > most_likely_share(0, 299)
    assert percent(most_likely_share(0, 299), up=True) == "1.00 %", "a bound is never rounded towards zero"


def test_cases_of_large_samples() -> None:
    low, high = exact_interval(7, 2_000_000)
    assert (low, high) == pytest.approx((1.40718e-6, 7.21132e-6), rel=1e-4)


@pytest.mark.parametrize(("count", "of"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_counts_are_refused(count: int, of: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        exact_interval(count, of)


def test_patients_and_not_identifiers_are_resampled() -> None:
    """Nine of ten identifiers of one patient leak: one draw of a patient decides, so the interval is wide."""
    one = PatientCounts.gather([(1, 10)] * 9 + [(90, 100)])
    found = resampled_share("recall", one, 1)
    exact = bound_share("recall", found.count, found.of)
    assert found.value == exact.value
    assert found.low is not None and exact.low is not None
    assert found.low < exact.low - 0.2


def test_a_difference_has_the_interval_of_both_groups() -> None:
    good, bad = PatientCounts.gather([(9, 10), (10, 10)] * 20), PatientCounts.gather([(6, 10), (4, 10)] * 20)
    found = resampled_difference("difference", bad, good, 1)
    assert found.value == pytest.approx(0.5 - 0.95)
    assert found.high is not None and found.high < -0.4
    same = resampled_difference("difference", good, good, 1)
    assert same.value == 0
    assert same.low is not None and same.high is not None and same.low < 0 < same.high


def test_nothing_to_count_has_no_value() -> None:
    assert bound_share("leaks", 0, 0) == EvidenceFigure("leaks", 0, 0, remark="none in the sample")
    empty = PatientCounts.gather([])
    assert resampled_share("recall", empty, 1).value is None
    assert resampled_difference("recall", empty, PatientCounts.gather([(1, 1)]), 1).value is None


def test_patients_who_are_all_alike_have_no_interval() -> None:
    """All resamples agree, so an interval of one point would claim that no patient of the group can have a leak."""
    alike, others = PatientCounts.gather([(3, 3)] * 12), PatientCounts.gather([(9, 10), (10, 10)] * 6)
    found = resampled_share("recall", alike, 1, "12 patients")
    assert (found.value, found.low, found.high) == (1, None, None)
    assert found.remark == f"12 patients, {NO_INTERVAL}"
    apart = resampled_difference("difference", alike, others, 1)
    assert apart.value == pytest.approx(0.05)
    assert (apart.low, apart.high, apart.remark) == (None, None, NO_INTERVAL)


@pytest.mark.parametrize(
    ("share", "shown", "low", "high"),
    [
        (0.99999, "99.9 %", "99.9 %", "100.0 %"),
        (0.00001, "0.01 %", "0.00 %", "0.01 %"),
        (0.86757, "86.8 %", "86.7 %", "86.8 %"),
        (0, "0.00 %", "0.00 %", "0.00 %"),
        (1, "100.0 %", "100.0 %", "100.0 %"),
        (0.07, "7.0 %", "7.0 %", "7.0 %"),
    ],
)
def test_rounding_makes_no_share_better(share: float, shown: str, low: str, high: str) -> None:
    assert (percent(share), percent(share, down=True), percent(share, up=True)) == (shown, low, high)
