"""Counts for one note under every criterion. All scores are ratios of sums of these counts.

Each criterion has four counts: correct findings, findings, gold spans that were found, gold spans. Sources:

- token, strict, relaxed, and their HIPAA variants: the evaluation script of the 2014 i2b2/UTHealth task
  (github.com/kotfic/i2b2_evaluation_scripts, ``classes.py``; Stubbs, Kotfila & Uzuner 2015, "Automated systems for the
  de-identification of longitudinal clinical narratives"). A token is a run of letters and digits within a span, with
  the span's type; relaxed allows the end to differ by two characters. Unlike in the script, letters beyond ASCII count
  as letters.
- HIPAA types: the list in that script's README. Its code misses IDNUM because of a stray blank; this module follows the
  README.
- binary HIPAA token: the same script without types, after dropping spans of types outside HIPAA on both sides;
  Dernoncourt 2016, Table 3. ``binary-covered`` is less strict: a gold token of a HIPAA type counts as found under any
  type, and a found token is correct if it is PHI of any type. It allows comparison with taggers that assign no types.
- names: Ferrandez 2012, section 4.2: the name of a person counts as found if one finding covers all of it; F2.
- leaked: a span with a word that is not covered completely, even if the other words are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from deid_agent.model import ANNOTATION, PhiType, Span


class Criterion(StrEnum):
    """The criteria, by their names in reports."""

    STRICT = "strict"
    RELAXED = "relaxed"
    TOKEN = "token"  # noqa: S105 - a word, not a secret
    HIPAA_STRICT = "hipaa-strict"
    HIPAA_RELAXED = "hipaa-relaxed"
    HIPAA_TOKEN = "hipaa-token"  # noqa: S105 - a word, not a secret
    BINARY_TOKEN = "binary-token"  # noqa: S105 - a word, not a secret
    BINARY_HIPAA_TOKEN = "binary-hipaa-token"  # noqa: S105 - a word, not a secret
    BINARY_COVERED = "binary-covered"
    NAMES = "names"

    @property
    def beta(self) -> int:
        """The weight of recall relative to precision in the F score."""
        return 2 if self is Criterion.NAMES else 1


NOT_HIPAA = frozenset(
    {
        PhiType.DOCTOR,
        PhiType.USERNAME,
        PhiType.PROFESSION,
        PhiType.HOSPITAL,
        PhiType.STATE,
        PhiType.COUNTRY,
        PhiType.LOCATION_OTHER,
        PhiType.URL,
        PhiType.IPADDRESS,
    }
)
"""Types that a strict reading of HIPAA does not include; all others are on the list of the 2014 script."""
PERSONS = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
NEEDS_TEXT = frozenset(
    {
        Criterion.TOKEN,
        Criterion.HIPAA_TOKEN,
        Criterion.BINARY_TOKEN,
        Criterion.BINARY_HIPAA_TOKEN,
        Criterion.BINARY_COVERED,
    }
)
RELAXED_TOLERANCE = 2
"""The number of characters by which the end may differ under the relaxed criteria."""

CriterionCounts = tuple[int, int, int, int]
"""Correct findings, findings, gold spans that were found, gold spans."""
Range = tuple[int, int]
_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class TypeCounts:
    """Counts for one type in one note: spans, their tokens, and leaked gold spans."""

    right: int = 0
    found: int = 0
    gold: int = 0
    token_right: int = 0
    token_found: int = 0
    token_gold: int = 0
    token_covered: int = 0
    leaked: int = 0

    def row(self) -> tuple[int, ...]:
        """Return the counts in the order of the fields."""
        return (
            self.right,
            self.found,
            self.gold,
            self.token_right,
            self.token_found,
            self.token_gold,
            self.token_covered,
            self.leaked,
        )


TYPE_COUNTS = len(TypeCounts().row())


@dataclass(frozen=True, slots=True)
class NoteCounts:
    """The counts of one note: four for each criterion, those of each type, and the number of words of its text."""

    criteria: dict[Criterion, CriterionCounts]
    types: dict[PhiType, TypeCounts]
    words: int


def count_note(text: str, gold: Sequence[Span], found: Sequence[Span]) -> NoteCounts:
    """Count one note. Spans may be in any order; spans with the same offsets and type count once.

    Without a text, every criterion that needs one has zero counts.
    """
    gold_tokens, found_tokens = _find_tokens(text, gold), _find_tokens(text, found)
    gold_hipaa, found_hipaa = _keep_hipaa(gold), _keep_hipaa(found)
    gold_hipaa_tokens = {t for t in gold_tokens if t[0] not in NOT_HIPAA}
    found_hipaa_tokens = {t for t in found_tokens if t[0] not in NOT_HIPAA}
    covered, annotated = Coverage(text, found), Coverage(text, gold)
    hipaa_ranges, found_ranges = _ranges(gold_hipaa_tokens), _ranges(found_tokens)
    criteria: dict[Criterion, CriterionCounts] = {
        Criterion.STRICT: _count_exact(_keys(gold), _keys(found)),
        Criterion.RELAXED: _count_relaxed(gold, found),
        Criterion.TOKEN: _count_exact(gold_tokens, found_tokens),
        Criterion.HIPAA_STRICT: _count_exact(_keys(gold_hipaa), _keys(found_hipaa)),
        Criterion.HIPAA_RELAXED: _count_relaxed(gold_hipaa, found_hipaa),
        Criterion.HIPAA_TOKEN: _count_exact(gold_hipaa_tokens, found_hipaa_tokens),
        Criterion.BINARY_TOKEN: _count_exact(_ranges(gold_tokens), found_ranges),
        Criterion.BINARY_HIPAA_TOKEN: _count_exact(hipaa_ranges, _ranges(found_hipaa_tokens)),
        Criterion.BINARY_COVERED: (
            sum(annotated.contains(*bounds) for bounds in found_ranges),
            len(found_ranges),
            sum(covered.contains(*bounds) for bounds in hipaa_ranges),
            len(hipaa_ranges),
        ),
        Criterion.NAMES: _count_names(gold, found),
    }
    types = _count_types(text, gold, found, gold_tokens, found_tokens, covered)
    return NoteCounts(criteria, types, len(text.split()))


class Coverage:
    """The characters of a text that at least one span covers."""

    __slots__ = ("_flags",)

    def __init__(self, text: str, spans: Iterable[Span]) -> None:
        self._flags = bytearray(len(text))
        for span in spans:
            self._flags[span.start : span.end] = b"\1" * len(span)

    def contains(self, start: int, end: int) -> bool:
        """Whether every character of the range is covered."""
        return self._flags.find(0, start, end) < 0

    def touches(self, start: int, end: int) -> bool:
        """Whether any character of the range is covered."""
        return self._flags.find(1, start, end) >= 0


def is_leaked(text: str, span: Span, covered: Coverage) -> bool:
    """Whether any word of the gold span is not covered completely. A span without words is checked as one word."""
    words = list(_WORD.finditer(text, span.start, span.end))
    if not words:
        return not covered.contains(span.start, span.end)
    return not all(covered.contains(*word.span()) for word in words)


def _count_types(
    text: str,
    gold: Sequence[Span],
    found: Sequence[Span],
    gold_tokens: set[tuple[PhiType, int, int]],
    found_tokens: set[tuple[PhiType, int, int]],
    covered: Coverage,
) -> dict[PhiType, TypeCounts]:
    out: dict[PhiType, TypeCounts] = {}

    def counts_of(kind: PhiType) -> TypeCounts:
        return out.setdefault(kind, TypeCounts())

    gold_keys, found_keys = _keys(gold), _keys(found)
    for key in gold_keys:
        counts_of(key[0]).gold += 1
        counts_of(key[0]).right += key in found_keys
    for key in found_keys:
        counts_of(key[0]).found += 1
    for token in gold_tokens:
        counts = counts_of(token[0])
        counts.token_gold += 1
        counts.token_right += token in found_tokens
        counts.token_covered += covered.contains(token[1], token[2])
    for token in found_tokens:
        counts_of(token[0]).token_found += 1
    if text:
        for kind, start, end in gold_keys:
            counts_of(kind).leaked += is_leaked(text, Span(start, end, kind, ANNOTATION), covered)
    return out


def _find_tokens(text: str, spans: Iterable[Span]) -> set[tuple[PhiType, int, int]]:
    return {(s.type, m.start(), m.end()) for s in spans for m in _WORD.finditer(text, s.start, s.end)}


def _keys(spans: Iterable[Span]) -> set[tuple[PhiType, int, int]]:
    return {(s.type, s.start, s.end) for s in spans}


def _ranges(tokens: Iterable[tuple[PhiType, int, int]]) -> set[Range]:
    return {(start, end) for _, start, end in tokens}


def _keep_hipaa(spans: Iterable[Span]) -> list[Span]:
    return [s for s in spans if s.type not in NOT_HIPAA]


def _count_exact(
    gold: set[tuple[PhiType, int, int]] | set[Range], found: set[tuple[PhiType, int, int]] | set[Range]
) -> CriterionCounts:
    both = len(gold & found)
    return both, len(found), both, len(gold)


def _count_relaxed(gold: Sequence[Span], found: Sequence[Span]) -> CriterionCounts:
    gold_keys, found_keys = _keys(gold), _keys(found)
    recalled = _count_matches(gold_keys, found_keys)
    return _count_matches(found_keys, gold_keys), len(found_keys), recalled, len(gold_keys)


def _count_matches(keys: set[tuple[PhiType, int, int]], others: set[tuple[PhiType, int, int]]) -> int:
    return sum(
        any((t, a, b + d) in others for d in range(-RELAXED_TOLERANCE, RELAXED_TOLERANCE + 1)) for t, a, b in keys
    )


def _count_names(gold: Sequence[Span], found: Sequence[Span]) -> CriterionCounts:
    gold_names = [s for s in gold if s.type in PERSONS]
    found_names = [s for s in found if s.type in PERSONS]
    right = sum(any(f.covers(g) for g in gold_names) for f in found_names)
    recalled = sum(any(f.covers(g) for f in found_names) for g in gold_names)
    return right, len(found_names), recalled, len(gold_names)
