"""Resolves proposed spans, which may overlap, to the disjoint spans of a document.

The stages are: repair boundaries, apply vetoes, resolve overlaps, join neighbours. The result does not depend on the
order of the proposals.

Sources: Dehghan 2015 section 2.5 (precision, recall and balanced runs), Liu 2015 section 3.4; the annotation guidelines
for boundaries and joining.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from operator import itemgetter

from deid_agent.measure import EMPTY_GRAMMAR, Grammar, Veto
from deid_agent.model import Document, PhiType, Range, Source, SourceKind, Span, fold_accents, in_order, joins_word
from deid_agent.recognize.boundaries import TITLES, repair_boundaries, trim_span
from deid_agent.recognize.joining import complete_spans
from deid_agent.rules import Rule, RuleScan, Ruleset, SiteRules


class Profile(StrEnum):
    """The trade-off between missed and excess spans. ``recall`` is for publishing: it keeps all possible PHI."""

    PRECISION = "precision"  # drops low-confidence spans, obeys vetoes
    BALANCED = "balanced"  # keeps all spans, obeys vetoes
    RECALL = "recall"  # keeps all spans, and known PHI in spite of vetoes


_EQUAL_KINDS = (
    SourceKind.KNOWN,
    SourceKind.SITE,
    SourceKind.TOKEN_MODEL,  # before the rules: the model has seen their findings
    SourceKind.RULE,
    SourceKind.ANNOTATION,
    SourceKind.FOREIGN,
    SourceKind.CUSTOM,
)
"""Kinds on one level: of two overlapping spans the longer wins, and this order decides between equal lengths."""
_LATER_KINDS = (
    SourceKind.CHARACTER_MODEL,
    SourceKind.NETWORK,
    SourceKind.NAME_FILTER,
    SourceKind.DICTIONARY,
    SourceKind.LOGIN,
    SourceKind.CONSISTENCY,
    SourceKind.LOW_CONFIDENCE,
    SourceKind.SITE_NAME,  # a namesake of the staff has the type that the text shows
)
"""Kinds that give way to those above and to each other in this order, whatever their length."""
_KIND_ORDER = {kind: rank for rank, kind in enumerate((*_EQUAL_KINDS, *_LATER_KINDS))}
_LEVEL = {kind: 0 for kind in _EQUAL_KINDS} | {kind: level for level, kind in enumerate(_LATER_KINDS, 1)}

_TYPE_ORDER = {
    kind: rank
    for rank, kind in enumerate(
        (
            PhiType.AGE,  # before DATE: a year of life is not a calendar year
            PhiType.EMAIL,  # before URL and USERNAME, which it contains
            PhiType.URL,
            PhiType.SSN,
            PhiType.FAX,  # before PHONE, which is the default without a cue
            PhiType.DOCTOR,  # before PATIENT
        )
    )
}

_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|weds|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?\.?", re.IGNORECASE)
_GAPS = {
    PhiType.DOCTOR: re.compile(r"[ \t]?\r?\n?[ \t]?"),
    PhiType.PATIENT: re.compile(r"[ \t]?\r?\n?[ \t]?"),
    PhiType.STREET: re.compile(r",?\s{0,2}"),
}
"""The text between two spans of one type that are one value. A comma between names separates two people."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves the proposals for a document. ``low`` are low-confidence sources in addition to those of the rules."""

    profile: Profile = Profile.RECALL
    rules: Ruleset = field(default=Ruleset(), repr=False)
    low: frozenset[Source] = field(default=frozenset(), repr=False)
    grammar: Grammar = field(default=EMPTY_GRAMMAR, repr=False)
    _low: frozenset[Source] = field(init=False, repr=False)
    _vetoes: RuleScan = field(init=False, repr=False, compare=False)
    _site_vetoes: RuleScan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_vetoes", RuleScan((*self.rules.vetoes, *self.rules.late_vetoes)))
        object.__setattr__(self, "_site_vetoes", RuleScan(self.rules.site.vetoes if self.rules.site else ()))
        object.__setattr__(self, "_low", self.rules.low | self.low)

    def resolve(self, spans: Iterable[Span], doc: Document, *, for_models: bool = False) -> list[Span]:
        """Disjoint spans of ``doc`` in order.

        ``for_models`` leaves out late vetoes and what site folders add and remove: models read the rules with which
        they were trained.

        Of two spans that overlap, the one that ranks first is kept unchanged. The rest of the other is kept too if it
        contains a letter or digit, so that resolving an overlap never uncovers text. The precision profile drops the
        rest.
        """
        low, site = self._low, None if for_models else self.rules.site
        if site is not None and site.removed_sources:
            spans = [s for s in spans if s.source not in site.removed_sources]
        trimmed = _drop_duplicates({m for s in spans for m in _repair(s, doc.text)}, low)
        if self.profile is Profile.PRECISION:
            trimmed = {s for s in trimmed if s.source not in low}
        kept = self._apply_vetoes(trimmed, doc, site)
        if not for_models:
            kept = self._apply_late_vetoes(kept, doc, site)
        if site is not None and site.cleared:
            kept = set(_without_cleared(kept, doc, site))
        winners = (w for cluster in _clusters(kept) for w in self._resolve_cluster(cluster, low, doc.text))
        found = complete_spans(join_neighbours(in_order(winners), doc.text), doc.text)
        # Again, because the rest of a span, or a part that was joined, can be such a text.
        return found if site is None or not site.cleared else list(_without_cleared(found, doc, site))

    def _resolve_cluster(self, cluster: list[Span], low: frozenset[Source], text: str) -> list[Span]:
        """Disjoint spans of one cluster, in order. Each proposal is compared with its neighbours only."""
        if len(cluster) == 1:
            return cluster
        winners: list[Span] = []
        for span in sorted(cluster, key=lambda s: _rank(s, low)):
            first = bisect_right(winners, span.start, key=lambda w: w.end)
            last = bisect_left(winners, span.end, key=lambda w: w.start)
            winners[first:last] = self._place(span, winners[first:last], text)
        return winners

    def _apply_vetoes(self, spans: set[Span], doc: Document, site: SiteRules | None) -> set[Span]:
        vetoed: set[Span] = set()
        of_type: dict[PhiType, list[Span]] = {}
        for span in spans:
            of_type.setdefault(span.type, []).append(span)
        for veto, ranges in self._find_vetoes(doc, site) if spans else ():
            affected = [span for kind in veto.types for span in of_type.get(kind, ())] if ranges else []
            if not affected:
                continue
            inside = _inside(affected, ranges)
            vetoed |= _spare_people(inside, spans, doc) if inside and veto.spares_people else inside
        vetoed |= self._inside_hard_marks(spans - vetoed, doc)
        if self.profile is Profile.RECALL:
            vetoed = {s for s in vetoed if s.source.kind is not SourceKind.KNOWN}
        return spans - vetoed

    def _apply_late_vetoes(self, spans: set[Span], doc: Document, site: SiteRules | None) -> set[Span]:
        """The spans without those inside late vetoes, which remove no known PHI and no word of the message's fields."""
        found: set[Span] = set()
        if not spans:
            return spans
        late = self._vetoes.find(doc)[len(self.rules.vetoes) :]
        for veto, ranges in zip(self.rules.late_vetoes, late, strict=True):
            if ranges and (site is None or veto.id not in site.removed):
                inside = _inside([span for span in spans if span.type in veto.types], ranges)
                found |= _spare_people(inside, spans, doc) if veto.spares_people else inside
        if not found:
            return spans
        facts = {word for fact in doc.facts for word in _name_words(fact.value)}
        return spans - {
            s
            for s in found
            if s.source.kind is not SourceKind.KNOWN and facts.isdisjoint(_name_words(doc.text[s.start : s.end]))
        }

    def _find_vetoes(self, doc: Document, site: SiteRules | None) -> Iterator[tuple[Rule, Sequence[Range]]]:
        """The ranges of each veto: the shipped ones that the site does not remove, and those of the site."""
        early = self._vetoes.find(doc)[: len(self.rules.vetoes)]
        for veto, ranges in zip(self.rules.vetoes, early, strict=True):
            if site is None or veto.id not in site.removed:
                yield veto, ranges
        if site is not None and site.vetoes:
            yield from zip(site.vetoes, self._site_vetoes.find(doc), strict=True)

    def _inside_hard_marks(self, spans: set[Span], doc: Document) -> set[Span]:
        """The spans that lie inside text which the grammar knows as a measurement, whatever proposed them."""
        marks = [mark for mark in self.grammar.find(doc) if mark.veto is Veto.HARD] if spans else []
        if not marks:
            return set()
        found = set()
        for span in spans:
            at = bisect_right(marks, span.start, key=lambda mark: mark.start) - 1
            if at >= 0 and span.end <= marks[at].end:
                found.add(span)
        return found

    def _place(self, span: Span, others: list[Span], text: str) -> list[Span]:
        """``others``, which all overlap ``span``, and the rests of ``span`` between them, in order."""
        if not others:
            return [span]
        if self.profile is Profile.PRECISION:
            return others
        ends = [span.start, *(other.end for other in others)]
        starts = [*(other.start for other in others), span.end]
        rests = [_cut(span, a, b, text) for a, b in zip(ends, starts, strict=True)]
        trimmed = [rest and trim_span(rest, text) for rest in rests]
        return [kept for pair in zip_longest(trimmed, others) for kept in pair if kept is not None]


def _inside(spans: Iterable[Span], ranges: Sequence[Range]) -> set[Span]:
    """The spans that lie inside one of the ranges, which are disjoint and in order."""
    found = set()
    for span in spans:
        at = bisect_right(ranges, span.start, key=itemgetter(0)) - 1
        if at >= 0 and span.end <= ranges[at][1]:
            found.add(span)
    return found


def _without_cleared(spans: Iterable[Span], doc: Document, site: SiteRules) -> Iterator[Span]:
    """The spans whose text the site does not clear. A value of the message is PHI in any case."""
    for span in spans:
        if span.source.kind is SourceKind.KNOWN or not site.clears(doc, span.start, span.end, span.type):
            yield span


_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_TITLE = re.compile(rf"(?<![\w/-])(?:{TITLES})\.?[ ]{{1,2}}\Z")
_NAME_WORD = re.compile(r"[^\W\d_]{2,}")


def _spare_people(inside: set[Span], spans: set[Span], doc: Document) -> set[Span]:
    """The spans ``inside`` the ranges of a veto without the names of people.

    A word is a name of a person if it follows a title, if a fact of the message has it, or if a span that the veto does
    not reach has it and its recognizer is no list of words. Such a word remains removed in a medical term too: for a
    patient named Wilson the reader cannot distinguish the diagnosis from the patient.
    """
    names = {word for fact in doc.facts if fact.type in _NAMES for word in _name_words(fact.value)}
    outside = (s for s in spans - inside if s.type in _NAMES and _LEVEL[s.source.kind] == 0)
    for span in outside:
        names |= _name_words(doc.text[span.start : span.end])
    titled = {s for s in inside if s.type in _NAMES and _TITLE.search(doc.text, max(0, s.start - 12), s.start)}
    names |= {word for s in titled for word in _name_words(doc.text[s.start : s.end].split()[0])}
    if not names:
        return inside
    return {s for s in inside if names.isdisjoint(_name_words(doc.text[s.start : s.end]))}


def _name_words(text: str) -> set[str]:
    words = {fold_accents(word) for word in _NAME_WORD.findall(text)}
    return words | {word.removesuffix("s") for word in words if len(word) > 3}


def _drop_duplicates(spans: set[Span], low: frozenset[Source]) -> set[Span]:
    """One span for each range and type: a rule's before a model's, since its id explains more in a remark."""

    def rank(span: Span) -> tuple[int, bool, _Rank]:
        own = _rank(span, low)
        return own[0], span.source.kind is SourceKind.TOKEN_MODEL, own

    unique: dict[tuple[int, int, PhiType], Span] = {}
    for span in spans:
        key = span.start, span.end, span.type
        other = unique.get(key)
        if other is None or rank(span) < rank(other):
            unique[key] = span
    return spans if len(unique) == len(spans) else set(unique.values())


def _repair(span: Span, text: str) -> Iterable[Span]:
    """The repaired parts of ``span``. Known PHI is one value in any form and is not divided."""
    if span.source.kind is not SourceKind.KNOWN:
        return repair_boundaries(span, text)
    trimmed = trim_span(span, text)
    return () if trimmed is None else (trimmed,)


def _clusters(spans: set[Span]) -> Iterator[list[Span]]:
    """Groups of spans that overlap directly or through others; the groups are independent of each other."""
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


def _cut(span: Span, start: int, end: int, text: str) -> Span | None:
    """``span`` cut to ``[start, end)`` without punctuation at the ends; ``None`` if nothing remains."""
    while start < end and not joins_word(text[start]):
        start += 1
    while start < end and not joins_word(text[end - 1]):
        end -= 1
    return Span(start, end, span.type, span.source) if start < end else None


_Rank = tuple[int, int, int, int, str, str, int]


def _rank(span: Span, low: frozenset[Source]) -> _Rank:
    """The sort key of overlap resolution: level, length (longest first), kind of source, type, position.

    Known PHI, the token model and high-confidence patterns have one level, so that a known family name does not divide
    a longer name. At equal length known PHI ranks first.
    """
    kind = span.source.kind
    level = 1 if span.source in low else _LEVEL[kind]
    type_rank = _TYPE_ORDER.get(span.type, len(_TYPE_ORDER))
    return level, span.start - span.end, _KIND_ORDER[kind], type_rank, span.type, str(span.source), span.start


def join_neighbours(spans: list[Span], text: str) -> list[Span]:
    """``spans`` with neighbours merged that the guidelines count as one value. The longer span gives the source."""
    out: list[Span] = []
    for span in spans:
        last = out[-1] if out else None
        if last is not None and last.type is span.type and _is_one_value(last, span, text):
            source = last.source if len(last) >= len(span) else span.source
            out[-1] = Span(last.start, span.end, span.type, source)
        else:
            out.append(span)
    return out


def _is_one_value(a: Span, b: Span, text: str) -> bool:
    gap = text[a.end : b.start]
    if len(gap) > 3:
        return False
    if a.type is PhiType.DATE:
        days = [_WEEKDAY.fullmatch(text, s.start, s.end) is not None for s in (a, b)]
        return gap in (" ", ", ") and days[0] != days[1] and _joins_weekday(text, a, b)
    pattern = _GAPS.get(a.type)
    return pattern is not None and pattern.fullmatch(gap) is not None


def _joins_weekday(text: str, a: Span, b: Span) -> bool:
    """Return true unless one span is a bare year: a weekday belongs to a date that has at least a month or day."""
    return all(not re.fullmatch(r"\d{4}", text[s.start : s.end]) for s in (a, b))
