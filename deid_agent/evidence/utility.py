"""Whether the clinical content of notes is the same after de-identification, by a check that is not the tagger's.

The check reads each text by patterns and a word list of its own, without the ranges that were replaced: the items of
the original and those of the output are compared as two sequences. An item is preserved if it is in the longest common
part of both. It shares no code with recognition, so a fault there cannot hide itself here.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final

from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection, count_share
from deid_agent.evidence.pairs import TextPair

_UNITS = (
    "mg|mcg|µg|μg|ug|kg|lbs?|g|ml|mL|cc|dl|dL|l|L|mm|cm|mmHg|bpm|units?|iu|IU|mEq|mmol|meq|U|%|mg/dl|mg/dL|g/dl|g/dL|"
    "mmol/l|mmol/L|mEq/L|ng/ml|ng/mL|pg/ml|pg/mL|mcg/kg|mg/kg|u/l|U/L|fl|fL|ms|hz|Hz|degrees|°C|°F|tabs?|puffs?"
)
_QUANTITY = re.compile(rf"(?<![\w.,/])(\d+(?:[.,/]\d+)*)\s?({_UNITS})(?![\w/])")
_SIDE = re.compile(r"\b(left|right|bilateral|bilaterally|unilateral|left-sided|right-sided)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(no|not|denies|denied|without|negative|never|none|absent|free of|rule out|ruled out|unremarkable)\b",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[^\W_]+")
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january",
            "feb february",
            "mar march",
            "apr april",
            "may",
            "jun june",
            "jul july",
            "aug august",
            "sep sept september",
            "oct october",
            "nov november",
            "dec december",
        ),
        1,
    )
    for name in names.split()
}
_NAMED = "|".join(sorted(_MONTHS, key=len, reverse=True))
DATE_PATTERN = re.compile(
    r"(?<![\d/-])(?:"
    r"(?P<y>\d{4})-(?P<m>\d\d?)-(?P<d>\d\d?)"
    r"|(?P<m2>\d\d?)[/-](?P<d2>\d\d?)[/-](?P<y2>\d{4}|\d\d)"
    rf"|(?P<n3>{_NAMED})\.?\s+(?P<d3>\d\d?)(?:st|nd|rd|th)?,?\s+(?P<y3>\d{{4}})"
    rf"|(?P<d4>\d\d?)(?:st|nd|rd|th)?\s+(?P<n4>{_NAMED})\.?,?\s+(?P<y4>\d{{4}})"
    r")(?![\d/-])",
    re.IGNORECASE,
)
"""Full dates. The first letter of each group's name is that of year, month, named month or day."""
_SHORT: Final = 5 * 365
"""Longer intervals are mostly those to a birth date, which has a shift of its own."""
_MOST: Final = 1_000_000
"""Comparisons of two sequences that differ in their middle; longer ones are compared without their order."""


@dataclass(slots=True)
class ItemCounts:
    """Items of originals, those of them that are preserved, and items that only outputs have."""

    originals: int = 0
    preserved: int = 0
    added: int = 0

    def add(self, before: Sequence[object], after: Sequence[object]) -> None:
        """Count one text."""
        same = count_common(before, after)
        self.originals += len(before)
        self.preserved += same
        self.added += len(after) - same

    def figure(self, name: str) -> EvidenceFigure:
        """The share that is preserved."""
        return count_share(name, self.preserved, self.originals, f"{self.added:,} added" if self.added else "")


@dataclass(frozen=True, slots=True)
class ClinicalTerms:
    """Clinical terms of one or several words in lower case, by their first word, longest first."""

    by_first: Mapping[str, Sequence[tuple[str, ...]]] = field(repr=False)

    @classmethod
    def of(cls, terms: Iterable[str]) -> "ClinicalTerms":
        """The index of a list."""
        found: dict[str, list[tuple[str, ...]]] = {}
        for term in dict.fromkeys(terms):
            words = tuple(_words(term))
            if words:
                found.setdefault(words[0], []).append(words)
        return cls({first: sorted(each, key=len, reverse=True) for first, each in found.items()})

    def find(self, text: str) -> list[str]:
        """The terms in a text, in order, the longest at each place."""
        words, found, at = _words(text), list[str](), 0
        while at < len(words):
            match = next(
                (term for term in self.by_first.get(words[at], ()) if tuple(words[at : at + len(term)]) == term), None
            )
            if match:
                found.append(" ".join(match))
            at += len(match) if match else 1
        return found

    def first(self, text: str) -> str:
        """The term that the text begins with, as it is written there; empty if there is none."""
        found = _LETTERS.match(text)
        terms = self.by_first.get(found[0].lower(), ()) if found else ()
        for term in terms:
            written = re.match(r"[\s-]+".join(map(re.escape, term)) + r"\b", text, re.IGNORECASE)
            if written:
                return written[0]
        return ""


def load_clinical_terms(path: Path | None = None) -> ClinicalTerms:
    """The terms of the list beside this module, which is our own; ``#`` begins a comment."""
    text = (path or Path(__file__).with_name("clinical-terms.txt")).read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    return ClinicalTerms.of(line for line in lines if line and not line.startswith("#"))


def _words(text: str) -> list[str]:
    return _LETTERS.findall(text.lower())


def find_quantities(text: str) -> list[str]:
    """Numbers with a unit."""
    return [f"{found[1]} {found[2]}" for found in _QUANTITY.finditer(text)]


def find_sides(text: str) -> list[str]:
    """Words for a side of the body."""
    return [found[0].lower() for found in _SIDE.finditer(text)]


def find_negations(text: str) -> list[str]:
    """Words that negate, with the next word unless it may be a name: a negation of something else is another one."""
    found = []
    for each in _NEGATION.finditer(text):
        following = re.match(r"[\s:,-]*([^\W\d_]+)", text[each.end() : each.end() + 40])
        word = following[1] if following and following[1].islower() else ""
        found.append(f"{each[0].lower()} {word}".rstrip())
    return found


def find_dates(text: str, *, day_first: bool = False) -> list[date]:
    """Full dates, in order; a day that no calendar has is left out. ``day_first`` is the order of 3/4/2019."""
    days = []
    for found in DATE_PATTERN.finditer(text):
        group = {name[0]: value for name, value in found.groupdict().items() if value is not None}
        numeric = found["m2"] is not None
        year, day = int(group["y"]), int(group["d"])
        month = _MONTHS[group["n"].lower()] if "n" in group else int(group["m"])
        if numeric and (day_first or month > 12):
            month, day = day, month
        try:
            days.append(date(year + 2000 if year < 100 else year, month, day))
        except ValueError:
            continue
    return days


def find_intervals(text: str, *, day_first: bool = False) -> list[int]:
    """The days between each full date of a text and the next."""
    return [(after - before).days for before, after in pairwise(find_dates(text, day_first=day_first))]


def pair_intervals(original: str, output: str) -> tuple[list[int], list[int]]:
    """The intervals of both texts in the order of day and month by which more of them agree."""
    both = [
        (find_intervals(original, day_first=order), find_intervals(output, day_first=order)) for order in (False, True)
    ]
    return max(both, key=lambda each: count_common(*each) / max(1, len(each[0]), len(each[1])))


def _shorter(intervals: Sequence[object]) -> list[object]:
    return [days for days in intervals if isinstance(days, int) and abs(days) < _SHORT]


def count_common(before: Sequence[object], after: Sequence[object]) -> int:
    """The length of the longest common subsequence; of very long sequences, the items in common in any order."""
    first, last, end = 0, len(before), len(after)
    while first < last and first < end and before[first] == after[first]:
        first += 1
    while last > first and end > first and before[last - 1] == after[end - 1]:
        last, end = last - 1, end - 1
    same = first + len(before) - last
    old, new = before[first:last], after[first:end]
    if len(old) * len(new) > _MOST:
        return same + (Counter(old) & Counter(new)).total()
    row = [0] * (len(new) + 1)
    for item in old:
        diagonal = 0
        for at, other in enumerate(new, 1):
            diagonal, row[at] = row[at], diagonal + 1 if item == other else max(row[at], row[at - 1])
    return same + row[-1]


def measure_utility(
    pairs: Iterable[TextPair], terms: ClinicalTerms, results: ItemCounts | None = None
) -> EvidenceSection:
    """The shares of clinical content that is preserved. ``results`` are the laboratory results of messages."""
    readers: Mapping[str, Callable[[str], Sequence[object]]] = {
        "clinical terms": terms.find,
        "numbers with units": find_quantities,
        "sides of the body": find_sides,
        "negations": find_negations,
    }
    intervals, short = "intervals between dates", f"intervals of less than {_SHORT // 365} years"
    counts = {name: ItemCounts() for name in (*readers, intervals, short)}
    size = whole = 0
    for pair in pairs:
        size += 1
        before = {name: read(pair.original) for name, read in readers.items()}
        after = {name: read(pair.output) for name, read in readers.items()}
        before[intervals], after[intervals] = pair_intervals(pair.original, pair.output)
        before[short], after[short] = _shorter(before[intervals]), _shorter(after[intervals])
        whole += all(before[name] == after[name] for name in counts if name != intervals)
        for name, each in counts.items():
            each.add(before[name], after[name])
    figures = [each.figure(name) for name, each in counts.items()]
    if results is not None:
        figures.append(results.figure("laboratory results"))
    figures.append(count_share("texts with all of these, long intervals apart", whole, size))
    return EvidenceSection(
        "utility",
        "Clinical content",
        "Patterns and a word list of their own read each original and each output; an item counts as preserved if it "
        "is in the longest common sequence of both. Laboratory results (OBX-5, valueQuantity) are compared by their "
        "place.",
        "Content that these patterns do not read, and whether a text still makes sense. An item inside a name (Dr. "
        "Left) counts as lost when the name is replaced. Birth dates have a shift of their own, so the intervals to "
        "them change; policies that coarsen dates lose all intervals.",
        tuple(figures),
        facts={"texts": size},
    )
