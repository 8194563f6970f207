"""What one note adds to every criterion, as plain counts: all scores are ratios of their sums.

Each criterion is four numbers: found that is right, found, gold that is found, gold. Sources:

- token, strict, relaxed, and their HIPAA forms: the evaluation script of the 2014 i2b2/UTHealth task
  (github.com/kotfic/i2b2_evaluation_scripts, ``classes.py``; Stubbs, Kotfila & Uzuner 2015, "Automated systems for the
  de-identification of longitudinal clinical narratives"). A token is a run of letters and digits inside of a span, with
  the span's type; relaxed lets the end differ by two characters. Letters beyond ASCII are letters here.
- HIPAA types: the list of that script's README. (Its code misses IDNUM by a stray blank; the README has it, and so
  have we.)
- binary HIPAA token: the same script without types, after leaving out what is not a HIPAA type on either side;
  Dernoncourt 2016, Table 3. ``binary-covered`` asks less: was the token of a HIPAA type found as anything, and is a
  token that was found any PHI; this is what taggers without types can be compared by.
- names: Ferrandez 2012, section 4.2: a name of a person counts where one finding covers all of it; F2.
- leaked: a span of which a word is not covered as a whole, whatever covers the rest.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from deid_agent.phi import PhiType
from deid_agent.spans import Span


class Criterion(StrEnum):
    """What may be scored; the values name it in reports."""

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
        """How much more recall counts than precision."""
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
"""Types that a strict reading of HIPAA leaves alone; all others are on the list of the 2014 script."""
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
SLACK = 2
"""Characters by which the end may differ under the relaxed criteria."""

Four = tuple[int, int, int, int]
Place = tuple[int, int]
_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class TypeCounts:
    """Sums of one type of one note."""

    right: int = 0
    found: int = 0
    gold: int = 0
    token_right: int = 0
    token_found: int = 0
    token_gold: int = 0
    token_covered: int = 0
    leaked: int = 0

    def row(self) -> tuple[int, ...]:
        """The numbers in the order of the fields."""
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


TYPE_COLUMNS = len(TypeCounts().row())


@dataclass(frozen=True, slots=True)
class Counted:
    """One note: four numbers per criterion, sums per type, and the words of its text."""

    criteria: dict[Criterion, Four]
    types: dict[PhiType, TypeCounts]
    words: int


def count(text: str, gold: Sequence[Span], found: Sequence[Span]) -> Counted:
    """Both sides may hold spans in any order, and several of one place and type count once.

    Without a text every criterion that needs one stays at zero.
    """
    gold_tokens, found_tokens = _tokens(text, gold), _tokens(text, found)
    gold_hipaa, found_hipaa = _hipaa(gold), _hipaa(found)
    gold_hipaa_tokens = {t for t in gold_tokens if t[0] not in NOT_HIPAA}
    found_hipaa_tokens = {t for t in found_tokens if t[0] not in NOT_HIPAA}
    covered, wanted = Cover(text, found), Cover(text, gold)
    hipaa_places, found_places = _places(gold_hipaa_tokens), _places(found_tokens)
    criteria: dict[Criterion, Four] = {
        Criterion.STRICT: _same(_keys(gold), _keys(found)),
        Criterion.RELAXED: _relaxed(gold, found),
        Criterion.TOKEN: _same(gold_tokens, found_tokens),
        Criterion.HIPAA_STRICT: _same(_keys(gold_hipaa), _keys(found_hipaa)),
        Criterion.HIPAA_RELAXED: _relaxed(gold_hipaa, found_hipaa),
        Criterion.HIPAA_TOKEN: _same(gold_hipaa_tokens, found_hipaa_tokens),
        Criterion.BINARY_TOKEN: _same(_places(gold_tokens), found_places),
        Criterion.BINARY_HIPAA_TOKEN: _same(hipaa_places, _places(found_hipaa_tokens)),
        Criterion.BINARY_COVERED: (
            sum(wanted.holds(*place) for place in found_places),
            len(found_places),
            sum(covered.holds(*place) for place in hipaa_places),
            len(hipaa_places),
        ),
        Criterion.NAMES: _names(gold, found),
    }
    types = _by_type(text, gold, found, gold_tokens, found_tokens, covered)
    return Counted(criteria, types, len(text.split()))


class Cover:
    """Which characters of a text some span covers."""

    __slots__ = ("_flags",)

    def __init__(self, text: str, spans: Iterable[Span]) -> None:
        self._flags = bytearray(len(text))
        for span in spans:
            self._flags[span.start : span.end] = b"\1" * len(span)

    def holds(self, start: int, end: int) -> bool:
        """True where every character of the range is covered."""
        return self._flags.find(0, start, end) < 0


def leaks(text: str, span: Span, covered: Cover) -> bool:
    """True where a word of the gold span, or a span without words, is not covered as a whole."""
    words = list(_WORD.finditer(text, span.start, span.end))
    if not words:
        return not covered.holds(span.start, span.end)
    return not all(covered.holds(*word.span()) for word in words)


def _by_type(
    text: str,
    gold: Sequence[Span],
    found: Sequence[Span],
    gold_tokens: set[tuple[PhiType, int, int]],
    found_tokens: set[tuple[PhiType, int, int]],
    covered: Cover,
) -> dict[PhiType, TypeCounts]:
    out: dict[PhiType, TypeCounts] = {}

    def of(kind: PhiType) -> TypeCounts:
        return out.setdefault(kind, TypeCounts())

    wanted, had = _keys(gold), _keys(found)
    for key in wanted:
        of(key[0]).gold += 1
        of(key[0]).right += key in had
    for key in had:
        of(key[0]).found += 1
    for token in gold_tokens:
        counts = of(token[0])
        counts.token_gold += 1
        counts.token_right += token in found_tokens
        counts.token_covered += covered.holds(token[1], token[2])
    for token in found_tokens:
        of(token[0]).token_found += 1
    if text:
        for kind, start, end in wanted:
            of(kind).leaked += leaks(text, Span(start, end, kind, ""), covered)
    return out


def _tokens(text: str, spans: Iterable[Span]) -> set[tuple[PhiType, int, int]]:
    return {(s.type, m.start(), m.end()) for s in spans for m in _WORD.finditer(text, s.start, s.end)}


def _keys(spans: Iterable[Span]) -> set[tuple[PhiType, int, int]]:
    return {(s.type, s.start, s.end) for s in spans}


def _places(tokens: Iterable[tuple[PhiType, int, int]]) -> set[Place]:
    return {(start, end) for _, start, end in tokens}


def _hipaa(spans: Iterable[Span]) -> list[Span]:
    return [s for s in spans if s.type not in NOT_HIPAA]


def _same(gold: set[tuple[PhiType, int, int]] | set[Place], found: set[tuple[PhiType, int, int]] | set[Place]) -> Four:
    both = len(gold & found)
    return both, len(found), both, len(gold)


def _relaxed(gold: Sequence[Span], found: Sequence[Span]) -> Four:
    wanted, had = _keys(gold), _keys(found)
    return _near(had, wanted), len(had), _near(wanted, had), len(wanted)


def _near(some: set[tuple[PhiType, int, int]], others: set[tuple[PhiType, int, int]]) -> int:
    return sum(any((t, a, b + d) in others for d in range(-SLACK, SLACK + 1)) for t, a, b in some)


def _names(gold: Sequence[Span], found: Sequence[Span]) -> Four:
    wanted = [s for s in gold if s.type in PERSONS]
    had = [s for s in found if s.type in PERSONS]
    right = sum(any(f.covers(g) for g in wanted) for f in had)
    recalled = sum(any(f.covers(g) for f in had) for g in wanted)
    return right, len(had), recalled, len(wanted)
