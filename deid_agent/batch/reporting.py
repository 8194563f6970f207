"""The report of an output folder, made of the manifest alone: counts, refused rows, units that differ, the bound."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from deid_agent.agent import Outcome
from deid_agent.audit import BuildUse, StudyFigures, StudyPeriod, sort_types
from deid_agent.batch.manifest import Head, Manifest, UnitEntry

_RATIO = 1.5
_DEVIATIONS = 4.0
_FEWEST_WORDS = 200
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class UnitRate:
    """The replacements in the texts of a unit per 1,000 words. ``file`` is its output."""

    file: str
    words: int
    replacements: int

    @property
    def rate(self) -> float:
        """Replacements per 1,000 words."""
        return 1000 * self.replacements / self.words


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The figures of an output folder. ``unusual`` are units that leave the ``median`` of all rates.

    ``no_identity`` are rows whose patient is not among the identities, ``unmatched`` identities that no row has.
    """

    head: Head
    units: int
    rows: int
    refused: Mapping[str, int]
    no_patient: int
    words: int
    types: Mapping[str, int]
    rules: Mapping[str, int]
    columns: Mapping[str, int]
    median: float | None
    unusual: Sequence[UnitRate]
    no_identity: int = 0
    unmatched: int = 0

    @property
    def replacements(self) -> int:
        """All replacements, in texts and in other columns."""
        return sum(self.types.values())


def make_report(manifest: Manifest) -> BatchReport:
    """The report of a manifest."""
    refused, types, rules, columns = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    units = manifest.finished
    for entry in units:
        refused.update(entry.refused)
        for column, type_, _, rule, count in entry.counts:
            types[type_] += count
            rules[rule] += count
            columns[column] += count
    middle, unusual = find_unusual(units)
    return BatchReport(
        manifest.head,
        len(units),
        sum(entry.rows for entry in units),
        _sort(refused),
        sum(entry.no_patient for entry in units),
        sum(entry.words for entry in units),
        _sort(types),
        _sort(rules),
        _sort(columns),
        middle,
        unusual,
        sum(entry.no_identity for entry in units),
        manifest.latest.unmatched if manifest.latest is not None else 0,
    )


def make_study(report: BatchReport, manifest: Manifest, project: str, times: tuple[float, float]) -> StudyFigures:
    """The figures of a run for the report of a study. ``times`` are those of the first and the last unit."""
    types: dict[str, Counter[str]] = {}
    for entry in manifest.finished:
        for _, type_, method, _, count in entry.counts:
            types.setdefault(type_, Counter())[method] += count
    refused = sum(report.refused.values())
    outcomes = {Outcome.PUBLISHED: report.rows - refused, Outcome.DEAD_LETTERED: refused}
    head = report.head
    build = {"version": head.version, "policy": head.policy, "key": head.key, "build": head.build}
    return StudyFigures(
        project,
        StudyPeriod(),
        report.rows,
        *times,
        {str(outcome): number for outcome, number in outcomes.items() if number},
        again=0,
        superseded=0,
        changed=None,
        named=None,
        types=sort_types(types),
        left_out=0,
        reasons=report.refused,
        builds=(BuildUse(build, report.rows, *times),),
        unit="row",
    )


def _sort(counts: Counter[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def find_unusual(units: Sequence[UnitEntry]) -> tuple[float | None, list[UnitRate]]:
    """The median of the rates, and the units whose rate leaves it; None without a unit that has enough words.

    A unit leaves it if its rate is off by half and its number by more than chance explains (four standard deviations
    of a Poisson count). Text in a broken encoding has few replacements, a column of names in place of notes many.
    """
    rates = [UnitRate(entry.file, entry.words, entry.in_texts) for entry in units if entry.words >= _FEWEST_WORDS]
    if not rates:
        return None, []
    middle = median(each.rate for each in rates)
    unusual = []
    for each in rates:
        expected = middle * each.words / 1000
        far = each.rate > middle * _RATIO or each.rate * _RATIO < middle
        if far and abs(each.replacements - expected) > _DEVIATIONS * math.sqrt(max(expected, 1.0)):
            unusual.append(each)
    return middle, sorted(unusual, key=lambda each: each.rate)


def bound_misses(rows: int, missed: int = 0) -> float:
    """The share of rows with a miss that is excluded at 95 % if a sample of ``rows`` has ``missed`` (Clopper-Pearson).

    The sample is small against the rows; if it is not, the true bound is lower.
    """
    if missed >= rows:
        return 1.0
    low, high = missed / rows, 1.0
    for _ in range(60):
        share = (low + high) / 2
        if _at_most(missed, rows, share) > 1 - _CONFIDENCE:
            low = share
        else:
            high = share
    return high


def _at_most(missed: int, rows: int, share: float) -> float:
    """The probability of at most ``missed`` hits in ``rows`` trials."""
    if not 0 < share < 1:
        return float(share == 0)
    return sum(
        math.exp(
            math.lgamma(rows + 1)
            - math.lgamma(k + 1)
            - math.lgamma(rows - k + 1)
            + k * math.log(share)
            + (rows - k) * math.log1p(-share)
        )
        for k in range(missed + 1)
    )


def describe_bound(rows: int, missed: int = 0) -> str:
    """The sentence about a sample of ``rows`` in which readers found ``missed`` rows with a miss."""
    if not rows:
        return "no rows were sampled"
    found = "without a miss" if not missed else f"with {missed} missed"
    # Rounded up: 0.994 % is below 1 %.
    percent = 100 * bound_misses(rows, missed)
    digits = 0 if percent >= 10 else 1
    shown = math.ceil(percent * 10**digits - 1e-9) / 10**digits
    return f"{rows:,} {'row' if rows == 1 else 'rows'} {found}: below {shown:g} % of the rows at 95 %"
