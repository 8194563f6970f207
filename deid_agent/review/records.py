"""The content of a folder of reviewed notes, and the pure rules about it: the state of a note, its gold, its agreement.

Notes, decisions and gold are PHI. No ``repr`` contains a text or a place in one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from deid_agent.model import ANNOTATION, Document, PhiType, Span, in_order, is_disjoint

RANDOM = "random"
"""The reason of notes of a random sample: the only ones for estimates."""
IMPORTED = "imported"
"""The reason of notes that came with their decisions."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A span that the tagger proposes. The components of the tagger disagree about ``uncertain`` ones."""

    span: Span
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class ReviewNote:
    """A note. ``name`` is that of its source, ``patient`` is opaque."""

    id: str
    patient: str
    name: str = field(repr=False)
    text: str = field(repr=False)
    kind: str = ""
    date: str = field(default="", repr=False)
    proposals: tuple[Proposal, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A note in the queue, with the reasons why it was chosen and its score."""

    note: str
    reasons: tuple[str, ...]
    characters: int
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One run of ``add``: how many notes and patients there were, and how many were taken.

    ``pool`` is a keyed digest of these notes: equal if a later draw was made from the same ones.
    """

    date: str
    notes: int
    patients: int
    random: int
    chosen: int
    system: str
    profile: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class ReviewIndex:
    """The queue, in its order, and the draws that made it."""

    entries: tuple[QueueEntry, ...] = ()
    draws: tuple[Draw, ...] = ()

    @property
    def pools(self) -> int:
        """The number of different sets of notes from which the random sample was drawn."""
        return len({draw.pool for draw in self.draws if draw.random})


@dataclass(frozen=True, slots=True)
class Decision:
    """The spans of a reviewer in a note: disjoint, in order, without white space at their ends."""

    spans: tuple[Span, ...] = field(repr=False)
    finished: bool = False


@dataclass(frozen=True, slots=True)
class NoteDecisions:
    """The decisions about a note, by reviewer, and those of reviewers who adjudicate it."""

    own: Mapping[str, Decision] = field(default_factory=dict)
    third: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def finished(self) -> tuple[tuple[str, Decision], ...]:
        """The finished decisions by reviewer: none, one or two."""
        return tuple((name, each) for name, each in sorted(self.own.items()) if each.finished)

    @property
    def adjudicated(self) -> Decision | None:
        """The finished decision about a disputed note."""
        return next((each for each in self.third.values() if each.finished), None)

    @property
    def is_disputed(self) -> bool:
        """True if two reviewers differ and nobody has adjudicated."""
        pair = self.finished
        return len(pair) > 1 and not _agree(pair[0][1], pair[1][1]) and self.adjudicated is None

    def gold(self, *, single: bool = False) -> tuple[Span, ...] | None:
        """The spans that count: of two reviewers who agree, or adjudicated; with ``single`` also those of one."""
        if (third := self.adjudicated) is not None:
            return third.spans
        pair = self.finished
        if len(pair) > 1:
            return pair[0][1].spans if _agree(pair[0][1], pair[1][1]) else None
        return pair[0][1].spans if single and pair else None

    def may_adjudicate(self, reviewer: str, reviewers: int) -> bool:
        """Whether this reviewer decides about a disputed note: a third one, or one of two if there are only two."""
        return self.is_disputed and (reviewers <= 2 or reviewer not in dict(self.finished))


def _agree(a: Decision, b: Decision) -> bool:
    return _keys(a.spans) == _keys(b.spans)


def _keys(spans: Iterable[Span]) -> set[tuple[int, int, PhiType]]:
    return {(span.start, span.end, span.type) for span in spans}


class SpanFault(StrEnum):
    """Why spans are no decision about a text."""

    OUTSIDE = "outside"
    EMPTY = "empty"
    OVERLAP = "overlap"
    TYPE = "type"


class BadSpansError(ValueError):
    """Spans that are no decision. It names no place."""

    def __init__(self, fault: SpanFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def check_spans(spans: Iterable[tuple[int, int, str]], text: str) -> tuple[Span, ...]:
    """The spans in order, without white space at their ends; two equal ones are one.

    Raises ``BadSpansError`` if one is outside of the text, empty, of an unknown type, or shares text with another.
    """
    found: set[Span] = set()
    for begin, end, kind in spans:
        if type(begin) is not int or type(end) is not int or not 0 <= begin <= end <= len(text):
            raise BadSpansError(SpanFault.OUTSIDE)
        inside = text[begin:end]
        first = begin + len(inside) - len(inside.lstrip())
        last = begin + len(inside.rstrip())
        if first >= last:
            raise BadSpansError(SpanFault.EMPTY)
        try:
            found.add(Span(first, last, PhiType(kind), ANNOTATION))
        except ValueError:
            raise BadSpansError(SpanFault.TYPE) from None
    ordered = in_order(found)
    if not is_disjoint(ordered):
        raise BadSpansError(SpanFault.OVERLAP)
    return tuple(ordered)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The counts of two decisions about one note, or their sum over notes."""

    spans: int = 0
    common: int = 0
    labels: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    """Tokens by the label that each reviewer gives; empty for no PHI."""

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(self.spans + other.spans, self.common + other.common, self.labels + other.labels)

    @property
    def strict_f1(self) -> float:
        """Spans that both have, over their mean number; 1 if neither has any."""
        return 2 * self.common / self.spans if self.spans else 1.0

    @property
    def kappa(self) -> float:
        """Cohen's kappa over tokens; 1 if both give all tokens one and the same label."""
        total = self.labels.total()
        if not total:
            return 1.0
        observed = sum(count for (a, b), count in self.labels.items() if a == b) / total
        first, second = Counter[str](), Counter[str]()
        for (a, b), count in self.labels.items():
            first[a] += count
            second[b] += count
        expected = sum(first[label] * second[label] for label in first) / total**2
        return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def compare(text: str, a: Sequence[Span], b: Sequence[Span]) -> Agreement:
    """The agreement of two decisions about a text."""
    tokens = Document(text).tokens
    labels = zip(_labels(tokens, a), _labels(tokens, b), strict=True)
    return Agreement(len(a) + len(b), len(_keys(a) & _keys(b)), Counter(labels))


def _labels(tokens: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[str]:
    """The label of each token: the type of the span that has a character of it."""
    found, at = list[str](), 0
    for start, end in tokens:
        while at < len(spans) and spans[at].end <= start:
            at += 1
        found.append(spans[at].type.value if at < len(spans) and spans[at].start < end else "")
    return found
