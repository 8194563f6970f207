"""Rules, checked and compiled: what each finds in a text, and whether its samples hold. ``rulefile`` reads them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from deid_agent.lexicon import Lexicon
from deid_agent.linear import Match, Regexp
from deid_agent.markup import MarkupError, parse
from deid_agent.phi import PhiType
from deid_agent.text import Document, Range, glued

Check = Callable[[str], bool]

WINDOW = 96
"""Bytes of context that a condition may read on its side of the span."""


class Confidence(StrEnum):
    """How sure a rule is of what it finds."""

    HIGH = "high"
    LOW = "low"
    CERTAIN = "certain"


class Edges(StrEnum):
    """What must not be glued to the two ends of a match."""

    WORD = "word"
    DIGIT = "digit"
    LEFT = "left"
    NONE = "none"


_WORDS = re.compile(r"[^\s,;/()]+")
_INITIAL = re.compile(r"[A-Z]\.[\s-]")


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must and must not touch a span; compiled."""

    before: Regexp | None = None
    not_before: Regexp | None = None
    after: Regexp | None = None
    not_after: Regexp | None = None

    def hold(self, data: bytes, start: int, end: int) -> bool:
        """True where the bytes around ``[start, end)`` meet all of them."""
        if self.before is not None or self.not_before is not None:
            window = data[max(0, start - WINDOW) : start]
            if self.before is not None and self.before.search(window) is None:
                return False
            if self.not_before is not None and self.not_before.search(window) is not None:
                return False
        if self.after is not None or self.not_after is not None:
            window = data[end : end + WINDOW]
            if self.after is not None and self.after.match(window) is None:
                return False
            if self.not_after is not None and self.not_after.match(window) is not None:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule. ``types`` has one member for a pattern, one or more for a veto."""

    id: str
    types: tuple[PhiType, ...]
    why: str = field(repr=False)
    regexp: Regexp = field(repr=False)
    edges: Edges = Edges.WORD
    conditions: Conditions = field(default=Conditions(), repr=False)
    needs: tuple[str, ...] = ()
    check: Check | None = field(default=None, repr=False)
    stop: Lexicon = field(default=frozenset(), repr=False)
    beyond: Lexicon = field(default=frozenset(), repr=False)
    confidence: Confidence = Confidence.HIGH
    hit: tuple[str, ...] = field(default=(), repr=False)
    miss: tuple[str, ...] = field(default=(), repr=False)

    def find(self, doc: Document) -> Iterator[Range]:
        """Spans in characters, disjoint and in order.

        After a refused match the scan goes on one byte further, after an accepted one at the span's end.
        A dash is a dash and a blank is a blank, of whatever kind (``Document.plain``).
        """
        doc = doc.plain
        if self.needs and not any(word in doc.lower for word in self.needs):
            return
        data, at = doc.utf8, 0
        while (found := self.regexp.search(data, at)) is not None:
            begin, last = self._group(found)
            accepted = self._accept(doc, begin, last) if begin < last else None
            if accepted is None:
                at = found.span()[0] + 1
            else:
                yield accepted
                at = doc.byte(accepted[1])

    def _group(self, found: Match) -> tuple[int, int]:
        for group in range(1, self.regexp.groups + 1):
            span = found.span(group)
            if span[0] >= 0:
                return span
        return (0, 0)

    def _accept(self, doc: Document, begin: int, last: int) -> Range | None:
        start, end = doc.char(begin), doc.char(last)
        if self.stop:
            end = self._stopped(doc, start, end)
            if end <= start:
                return None
            last = doc.byte(end)
        if self.edges in (Edges.WORD, Edges.LEFT) and self._glued(doc.text, start, end):
            return None
        if self.check is not None and not self.check(doc.text[start:end]):
            return None
        if self.beyond and all(word in self.beyond for _, word in _listed(doc, start, end)):
            return None
        return (start, end) if self.conditions.hold(doc.utf8, begin, last) else None

    def _glued(self, text: str, start: int, end: int) -> bool:
        """True where a letter that the ASCII edges in the pattern do not know touches the span."""
        left = start > 0 and not text[start - 1].isascii() and glued(text[start - 1])
        right = end < len(text) and not text[end].isascii() and glued(text[end])
        return left or (right and self.edges is not Edges.LEFT)

    def _stopped(self, doc: Document, start: int, end: int) -> int:
        """The span's end before its first stop word, without the blanks and commas that then trail.

        A capital with its full stop before a word that is none is an initial, whatever it spells: ``I. Vane``.
        """
        words = list(_listed(doc, start, end))
        for n, (at, word) in enumerate(words):
            if word not in self.stop:
                continue
            named = n + 1 < len(words) and words[n + 1][1] not in self.stop
            if not (named and _INITIAL.match(doc.text, at)):
                return start + len(doc.text[start:at].rstrip(" ,;/(\t\r\n-"))
        return end


def _listed(doc: Document, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Words of a span as word lists have them, with their places."""
    for word in _WORDS.finditer(doc.text, start, end):
        yield word.start(), doc.lower[word.start() : word.end()].strip(".'’:&")


@dataclass(frozen=True, slots=True)
class Ruleset:
    """All rules of one folder and the word lists that they and other recognizers use."""

    patterns: tuple[Rule, ...] = ()
    vetoes: tuple[Rule, ...] = ()
    lexicons: Mapping[str, Lexicon] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    folder: Path = Path("rules")  # where they came from, for what is loaded only when a recognizer asks

    @property
    def low(self) -> frozenset[str]:
        """Ids of the rules of low confidence."""
        return frozenset(rule.id for rule in self.patterns if rule.confidence is Confidence.LOW)

    @property
    def certain(self) -> frozenset[str]:
        """Ids of the rules that no model overrules where nothing may leak."""
        return frozenset(rule.id for rule in self.patterns if rule.confidence is Confidence.CERTAIN)


def check(ruleset: Ruleset) -> list[str]:
    """One line for every sample that a rule gets wrong: rule id, key, number; empty where all is well."""
    return [
        f"{rule.id}: {key} {number}: {fault}"
        for rule in (*ruleset.patterns, *ruleset.vetoes)
        for key, samples in (("hit", rule.hit), ("miss", rule.miss))
        for number, sample in enumerate(samples, 1)
        if (fault := _sample_fault(rule, sample, must_hit=key == "hit"))
    ]


def _sample_fault(rule: Rule, sample: str, *, must_hit: bool) -> str:
    try:
        annotated = parse(sample)
    except MarkupError as fault:
        return str(fault)
    wanted = [(s.start, s.end) for s in annotated.spans if s.type in rule.types] if must_hit else []
    if must_hit and not wanted:
        return "marks no span of the rule's type"
    found = list(rule.find(Document(annotated.text)))
    return "" if found == wanted else f"found {found}, wanted {wanted}"
