"""Overlap, vetoes and boundaries: many proposed spans to disjoint ones.

The order of stages: mend boundaries, veto, settle overlaps, join neighbours.
Deterministic: the result does not depend on the order of the proposals.

Sources: Dehghan 2015 section 2.5 (precision, recall and balanced runs),
Liu 2015 section 3.4; the annotation guidelines for boundaries and joining.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest

from deid_agent.boundaries import bounded, mend
from deid_agent.phi import PhiType
from deid_agent.ruleset import Ruleset
from deid_agent.spans import KNOWN, Span, in_order
from deid_agent.text import Document, glued


class Profile(StrEnum):
    """What a mistake costs. ``recall`` is for publishing: nothing that might identify stays."""

    PRECISION = "precision"  # low confidence dropped, vetoes obeyed
    BALANCED = "balanced"  # everything kept, vetoes obeyed
    RECALL = "recall"  # everything kept, and vetoed text too where known PHI says it


_SOURCE_ORDER = (KNOWN, "crf:", "", "char-crf:", "neural:", "filter:", "lexicon:", "login:", "again:", "weak:")
"""Whose word counts more where two findings overlap; ``""`` stands for pattern rules of high confidence.

The token model stands before the rules: it has seen what they say.
"""
_ONE_LEVEL = 3  # of these the longest counts: known PHI, the token model, sure patterns

_TYPE_ORDER = {
    kind: rank
    for rank, kind in enumerate(
        (
            PhiType.AGE,  # over DATE: a year of life is not a calendar year
            PhiType.EMAIL,  # over URL, USERNAME: holds both
            PhiType.URL,
            PhiType.SSN,
            PhiType.FAX,  # over PHONE: has a cue, PHONE is the default
            PhiType.DOCTOR,  # over PATIENT
        )
    )
}

_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|weds|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?\.?", re.IGNORECASE)
_GAPS = {
    PhiType.DOCTOR: re.compile(r"[ \t]?\r?\n?[ \t]?"),
    PhiType.PATIENT: re.compile(r"[ \t]?\r?\n?[ \t]?"),
    PhiType.STREET: re.compile(r",?\s{0,2}"),
}
"""What may stand between two spans of one type that are one; a comma between names means two people."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """``resolve`` turns proposals into the spans to replace."""

    profile: Profile = Profile.RECALL
    rules: Ruleset = field(default=Ruleset(), repr=False)

    def resolve(self, spans: Iterable[Span], doc: Document) -> list[Span]:
        """Disjoint spans inside ``doc`` in order.

        Of two that overlap the one earlier in the declared order stays whole, and
        what of the other still covers a letter or digit stays beside it: settling
        an overlap never uncovers text. The precision profile drops that rest.
        """
        low = self.rules.low
        mended = _once({m for s in spans for m in _bounded(s, doc.text)}, low)
        if self.profile is Profile.PRECISION:
            mended = {s for s in mended if s.source not in low}
        kept = self._unvetoed(mended, doc)
        winners = (w for cluster in _clusters(kept) for w in self._settle(cluster, low, doc.text))
        return join(in_order(winners), doc.text)

    def _settle(self, cluster: list[Span], low: frozenset[str], text: str) -> list[Span]:
        """Disjoint spans of one cluster, in order. Each proposal looks at its neighbours only."""
        winners: list[Span] = []
        for span in sorted(cluster, key=lambda s: _rank(s, low)):
            first = bisect_right(winners, span.start, key=lambda w: w.end)
            last = bisect_left(winners, span.end, key=lambda w: w.start)
            winners[first:last] = self._fit(span, winners[first:last], text)
        return winners

    def _unvetoed(self, spans: set[Span], doc: Document) -> set[Span]:
        gone: set[Span] = set()
        for veto in self.rules.vetoes:
            concerned = [s for s in spans if s.type in veto.types]
            if not concerned:
                continue
            ranges = list(veto.find(doc))
            starts = [start for start, _ in ranges]
            for span in concerned:
                at = bisect_right(starts, span.start) - 1
                if at >= 0 and span.end <= ranges[at][1]:
                    gone.add(span)
        if self.profile is Profile.RECALL:
            gone = {s for s in gone if not s.source.startswith(KNOWN)}
        return spans - gone

    def _fit(self, span: Span, others: list[Span], text: str) -> list[Span]:
        """``others``, all of which overlap ``span``, with ``span`` or its rests put in between, in order."""
        if not others:
            return [span]
        if self.profile is Profile.PRECISION:
            return others
        ends = [span.start, *(other.end for other in others)]
        starts = [*(other.start for other in others), span.end]
        rests = [_rest(span, a, b, text) for a, b in zip(ends, starts, strict=True)]
        mended = [rest and mend(rest, text) for rest in rests]
        return [kept for pair in zip_longest(mended, others) for kept in pair if kept is not None]


def _once(spans: set[Span], low: frozenset[str]) -> set[Span]:
    """Of findings that say the same of one place one: a sure rule's, which tells a reader more than a model's name."""
    said: dict[tuple[int, int, PhiType], Span] = {}
    for span in sorted(spans, key=lambda s: (_rank(s, low)[0], s.source.startswith("crf:"), _rank(s, low))):
        said.setdefault((span.start, span.end, span.type), span)
    return set(said.values())


def _bounded(span: Span, text: str) -> Iterable[Span]:
    """By the guidelines; what the structure names is one thing, however it is written."""
    if not span.source.startswith(KNOWN):
        return bounded(span, text)
    mended = mend(span, text)
    return () if mended is None else (mended,)


def _clusters(spans: set[Span]) -> Iterator[list[Span]]:
    """Spans that hang together by overlaps: what happens in one does not concern the others."""
    cluster: list[Span] = []
    end = 0
    for span in in_order(spans):
        if cluster and span.start >= end:
            yield cluster
            cluster = []
        cluster.append(span)
        end = max(end, span.end)
    if cluster:
        yield cluster


def _rest(span: Span, start: int, end: int, text: str) -> Span | None:
    """``span`` cut to ``[start, end)``, without the signs that joined it to what was cut away."""
    while start < end and not glued(text[start]):
        start += 1
    while start < end and not glued(text[end - 1]):
        end -= 1
    return Span(start, end, span.type, span.source) if start < end else None


def _rank(span: Span, low: frozenset[str]) -> tuple[int, int, int, int, str]:
    """The declared order: sure before unsure, long before short, type order, source order, position.

    Known PHI, the token model and sure patterns stand on one level, so that a known family name
    does not cut a longer name in two; at equal length known PHI comes first.
    """
    prefix = next((p for p in _SOURCE_ORDER if p and span.source.startswith(p)), "")
    source = _SOURCE_ORDER.index(prefix)
    level = 1 if span.source in low else max(0, source - _ONE_LEVEL + 1)
    kind = _TYPE_ORDER.get(span.type, len(_TYPE_ORDER))
    return (level, span.start - span.end, source, kind, f"{span.type} {span.source} {span.start:012d}")


def join(spans: list[Span], text: str) -> list[Span]:
    """Neighbours of one type that the guidelines count as one, made one; the longer one gives the source."""
    out: list[Span] = []
    for span in spans:
        last = out[-1] if out else None
        if last is not None and last.type is span.type and _are_one(last, span, text):
            source = last.source if len(last) >= len(span) else span.source
            out[-1] = Span(last.start, span.end, span.type, source)
        else:
            out.append(span)
    return out


def _are_one(a: Span, b: Span, text: str) -> bool:
    gap = text[a.end : b.start]
    if len(gap) > 3:
        return False
    if a.type is PhiType.DATE:
        days = [_WEEKDAY.fullmatch(text, s.start, s.end) is not None for s in (a, b)]
        return gap in (" ", ", ") and days[0] != days[1] and _joins_weekday(text, a, b)
    pattern = _GAPS.get(a.type)
    return pattern is not None and pattern.fullmatch(gap) is not None


def _joins_weekday(text: str, a: Span, b: Span) -> bool:
    """A weekday belongs to the full or partial date that it touches, not to a bare year."""
    return all(not re.fullmatch(r"\d{4}", text[s.start : s.end]) for s in (a, b))
