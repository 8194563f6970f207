"""Quasi-identifiers that outputs still have, as counts over patients, never as values.

A value is left if the output has it unchanged. Values of small groups are found by counting: a cell is a combination of
values, and a cell of few patients makes them easier to recognise.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection, count_share
from deid_agent.evidence.messages import MessageFacts, PersonFacts
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.utility import DATE_PATTERN, ClinicalTerms
from deid_agent.model import Range

_CELLS = (5, 11)
_AGE = re.compile(
    r"\b(?:(\d{1,3})[- ]?(?:years?|yrs?)[- ]?(?:old|of age)|(\d{1,3}) ?(?:y/?o)\b|aged? (?:of )?(\d{1,3})\b)",
    re.IGNORECASE,
)
_ZIP = re.compile(r"\b[A-Z]{2},?\s+(\d{5})(?:-\d{4})?\b|\b(?i:zip(?: code)?):?\s*(\d{5})\b")
_JOB = re.compile(
    r"\b(?:work(?:s|ed|ing)? as an?|employed as an?|retired|occupation:?|profession:?|job:?|is an?|was an?)\s+"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
_OLDEST = 89
_FINER = "a full date, which is finer than the policy"


@dataclass(slots=True)
class _Left:
    """The values of one patient that outputs have unchanged."""

    sex: set[str] = field(default_factory=set, repr=False)
    ages: set[int] = field(default_factory=set, repr=False)
    births: set[str] = field(default_factory=set, repr=False)
    areas: set[str] = field(default_factory=set, repr=False)
    jobs: set[str] = field(default_factory=set, repr=False)
    same_dates: int = 0
    full_dates: int = 0

    def cell(self) -> tuple[object, ...]:
        """The combination of sex, age and area."""
        age = max(self.ages) if self.ages else min(self.births)[:4] if self.births else None
        return (min(self.sex, default=None), age, min(self.areas, default=None))


def count_quasi_identifiers(
    pairs: Iterable[TextPair],
    messages: Iterable[tuple[str, MessageFacts, MessageFacts]],
    professions: ClinicalTerms,
    restricted: Collection[str],
    patients: Collection[str] = (),
    *,
    coarse_dates: bool = False,
) -> EvidenceSection:
    """The counts over the patients of the feed.

    ``messages`` are patients with the facts of an original and its output. ``restricted`` are the first three digits
    of postal codes of few people. ``patients`` are further patients of the feed. With ``coarse_dates`` the policy
    publishes no full date, so that each one is finer than the policy.
    """
    left: dict[str, _Left] = defaultdict(_Left, {patient: _Left() for patient in patients})
    for pair in pairs:
        _read_text(pair, left[pair.patient], professions)
    for patient, before, after in messages:
        for one, other in zip(before.people, after.people, strict=False):
            _compare_person(left[patient or one.id], one, other)
    everyone = list(left.values())
    size = len(everyone)
    figures = [
        _patients("a full date that is unchanged", (each.same_dates for each in everyone), size),
        _patients(
            _FINER if coarse_dates else "any full date, also a shifted one",
            (each.full_dates for each in everyone),
            size,
        ),
        _patients("the birth date unchanged", (len(each.births) for each in everyone), size),
        _patients("an age unchanged", (len(each.ages) for each in everyone), size),
        _patients("an age over 89", (any(age > _OLDEST for age in each.ages) for each in everyone), size),
        _patients("the sex", (len(each.sex) for each in everyone), size),
        _patients("the first three digits of the ZIP code", (len(each.areas) for each in everyone), size),
        _patients("a ZIP code of an area of few people", (len(each.areas & {*restricted}) for each in everyone), size),
        _patients("a profession unchanged", (len(each.jobs) for each in everyone), size),
        *_rare_professions(everyone),
        *_cells("sex and age", [each.cell()[:2] for each in everyone]),
        *_cells("sex, age and ZIP area", [each.cell() for each in everyone]),
        *_cells("sex, age, ZIP area and profession", [(*each.cell(), *sorted(each.jobs)) for each in everyone]),
    ]
    return EvidenceSection(
        "quasi_identifiers",
        "Quasi-identifiers left",
        "Patterns of their own search outputs for ages, ZIP codes, dates and professions, and messages for sex, birth "
        "date and ZIP code; a value is left if the output has that of the original. A cell is a combination of left "
        "values.",
        "Cells are counted over the patients of this feed: in the population of the region a cell is larger. Values in "
        "other words (a nonagenarian) and other quasi-identifiers (rare diseases, family members) are not counted.",
        tuple(figures),
        facts={"patients": size, "cells_smaller_than": list(_CELLS)},
    )


def _patients(what: str, numbers: Iterable[int], size: int) -> EvidenceFigure:
    found = list(numbers)
    total = sum(found)
    many = f"{total:,} in all" if total > sum(map(bool, found)) else ""
    return count_share(f"patients whose outputs have {what}", sum(map(bool, found)), size, many)


def _rare_professions(everyone: Sequence[_Left]) -> Iterator[EvidenceFigure]:
    counts = Counter(job for each in everyone for job in each.jobs)
    for k in _CELLS:
        rare = sum(count < k for count in counts.values())
        yield count_share(f"left professions of fewer than {k} patients", rare, len(counts))


def _cells(name: str, cells: Sequence[tuple[object, ...]]) -> Iterator[EvidenceFigure]:
    known = [cell for cell in cells if any(value is not None for value in cell)]
    sizes = Counter(known)
    for k in _CELLS:
        small = sum(count < k for count in sizes.values())
        inside = sum(count for count in sizes.values() if count < k)
        yield count_share(
            f"patients in cells of fewer than {k} by {name}", inside, len(cells), f"{small:,} of {len(sizes):,} cells"
        )


def _read_text(pair: TextPair, left: _Left, professions: ClinicalTerms) -> None:
    left.full_dates += sum(1 for _ in DATE_PATTERN.finditer(pair.output))
    left.same_dates += sum(_is_left(pair, found.span()) for found in DATE_PATTERN.finditer(pair.original))
    for found in _AGE.finditer(pair.original):
        at = next(n for n in (1, 2, 3) if found[n])
        if int(found[at]) <= 130 and _is_left(pair, found.span(at)):
            left.ages.add(int(found[at]))
    for found in _ZIP.finditer(pair.original):
        at = 1 if found[1] else 2
        # A generalized code is another text with the same first digits.
        if _is_left(pair, found.span(at)) or _keeps_area(pair, found.span(at)):
            left.areas.add(found[at][:3])
    for found in _JOB.finditer(pair.original):
        following = pair.original[found.end() : found.end() + 60]
        term = professions.first(following)
        if term and _is_left(pair, (found.end(), found.end() + len(term))):
            left.jobs.add(term)


def _is_left(pair: TextPair, span: Range) -> bool:
    return pair.find_in_output(span) is not None


def _keeps_area(pair: TextPair, span: Range) -> bool:
    for each in pair.replaced:
        if each.source_begin <= span[0] and span[1] <= each.source_end:
            digits = re.findall(r"(?<!\d)\d{3,5}(?!\d)", pair.surrogate(each))
            return any(code[:3] == pair.original[span[0] : span[0] + 3] for code in digits)
    return False


def _compare_person(left: _Left, before: PersonFacts, after: PersonFacts) -> None:
    if before.sex and before.sex == after.sex:
        left.sex.add(before.sex)
    if len(before.birth) == 8:
        left.full_dates += len(after.birth) == 8
        left.births |= {before.birth} if before.birth == after.birth else set()
    kept = {code[:3] for code in after.postal_codes}
    left.areas |= {code[:3] for code in before.postal_codes if code[:3] in kept and len(code) >= 5}
