"""Compiled rules: how a rule finds spans in a text, and the test of its samples. ``rule_files`` reads them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import re2  # type: ignore[import-untyped]

from deid_agent.model import (
    BesideModels,
    Confidence,
    Document,
    MarkupError,
    PhiType,
    Range,
    Source,
    SourceKind,
    SourceTraits,
    counted,
    fold_accents,
    joins_word,
    parse_annotated,
)
from deid_agent.rules.contexts import Contexts
from deid_agent.rules.files import Lexicon
from deid_agent.rules.site_terms import SiteLists, plain_form

# Typed interface of RE2, which matches in linear time: it does not backtrack, so no input can stall a rule. RE2 has no
# look-around, and its ``\b`` is limited to ASCII; edges and conditions are therefore checked outside of the pattern.
# Source: RE2 syntax, github.com/google/re2/wiki/Syntax.


_MAX_MEMORY = 8 << 20
_ANYWHERE, _AT_START = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_START


class Regexp:
    """A pattern in RE2 syntax, compiled for UTF-8 bytes.

    A match is the byte ranges of the whole and of each group; ``(-1, -1)`` for a group that did not take part. RE2 is
    called without the objects that its Python package makes for each match: they cost as much as a short search.
    """

    __slots__ = ("_compiled", "_match")

    def __init__(self, pattern: str) -> None:
        """Compile ``pattern``. Raises ``ValueError`` with the message of RE2 if that fails."""
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MAX_MEMORY
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as fault:
            detail = fault.args[0] if fault.args else ""
            raise ValueError(detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)) from None
        self._match: Callable[[object, bytes, int, int], list[Range]] = self._compiled._regexp.Match

    @property
    def pattern(self) -> str:
        """The pattern as it was written."""
        return str(self._compiled.pattern)

    @property
    def groups(self) -> int:
        """The number of capturing groups."""
        return int(self._compiled.groups)

    @property
    def groupindex(self) -> dict[str, int]:
        """The numbers of the named groups."""
        return dict(self._compiled.groupindex)

    def search(self, text: bytes, start: int = 0) -> list[Range] | None:
        """The leftmost match from ``start`` on; ``\\A`` and ``^`` still match only at the start of the text."""
        found = self._match(_ANYWHERE, text, start, len(text))
        return found if found[0][0] >= 0 else None

    def match(self, text: bytes) -> list[Range] | None:
        """The match at the start of ``text``."""
        found = self._match(_AT_START, text, 0, len(text))
        return found if found[0][0] >= 0 else None


Check = Callable[[str], bool]

WINDOW = 96
"""Bytes of context that a condition reads on its side of the span."""


class Edges(StrEnum):
    """The characters that must not touch the ends of a match."""

    WORD = "word"
    DIGIT = "digit"
    LEFT = "left"
    NONE = "none"


_WORDS = re.compile(r"[^\s,;/()]+")
_NAME_WORD = re.compile(r"[^\W\d_]+")
_POSSESSIVE = re.compile(r"['’]s\b|(?<=s)['’]")
_INITIAL = re.compile(r"[A-Z]\.[\s-]")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The compiled conditions on the text immediately before and after a span."""

    before: Regexp | None = None
    not_before: Regexp | None = None
    after: Regexp | None = None
    not_after: Regexp | None = None

    def hold(self, data: bytes, start: int, end: int) -> bool:
        """Return true if the bytes around ``[start, end)`` meet all conditions."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One compiled rule. ``types`` has one member for a pattern, and one or more for a veto."""

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
    within: Lexicon = field(default=frozenset(), repr=False)
    spares_people: bool = False
    confidence: Confidence = Confidence.HIGH
    hit: tuple[str, ...] = field(default=(), repr=False)
    miss: tuple[str, ...] = field(default=(), repr=False)
    source: Source = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Source(SourceKind.RULE, self.id))

    @property
    def traits(self) -> SourceTraits:
        """The rule's confidence; models overrule its spans unless it is certain."""
        certain = self.confidence is Confidence.CERTAIN
        return SourceTraits(self.confidence, BesideModels.RECALL if certain else BesideModels.NEVER)

    def find(self, doc: Document) -> Iterator[Range]:
        """Character ranges, disjoint and in order, in the normalized text (``Document.normalized``).

        The scan continues one byte after the start of a rejected match, and at the end of an accepted span.
        """
        doc = doc.normalized
        if self.needs and not any(word in doc.lower for word in self.needs):
            return
        data, at = doc.utf8, 0
        while (found := self.regexp.search(data, at)) is not None:
            begin, last = _first_group(found)
            accepted = self.accept(doc, begin, last) if begin < last else None
            if accepted is None:
                at = found[0][0] + 1
            else:
                yield accepted
                at = doc.byte(accepted[1])

    def accept(self, doc: Document, begin: int, last: int) -> Range | None:
        """The characters of a span of the bytes ``[begin, last)`` of a normalized text; None if the rule refuses it."""
        start, end = doc.char(begin), doc.char(last)
        if self.stop:
            end = self._end_before_stop_word(doc, start, end)
            if end <= start:
                return None
            last = doc.byte(end)
        if (
            not doc.text.isascii()
            and self.edges in (Edges.WORD, Edges.LEFT)
            and self._touches_letter(doc.text, start, end)
        ):
            return None
        if self.check is not None and not self.check(doc.text[start:end]):
            return None
        if self.beyond and all(word in self.beyond for _, word in _words_of(doc, start, end)):
            return None
        if self.within and not _is_term(doc.text[start:end], self.within):
            return None
        return (start, end) if self.conditions.hold(doc.utf8, begin, last) else None

    def _touches_letter(self, text: str, start: int, end: int) -> bool:
        """Return true if a non-ASCII letter touches the span: the edges in the pattern know only ASCII."""
        left = start > 0 and not text[start - 1].isascii() and joins_word(text[start - 1])
        right = end < len(text) and not text[end].isascii() and joins_word(text[end])
        return left or (right and self.edges is not Edges.LEFT)

    def _end_before_stop_word(self, doc: Document, start: int, end: int) -> int:
        """The end of the span before its first stop word, without trailing blanks and commas.

        A capital letter with a full stop is an initial if the next word is no stop word: ``I. Vane``.
        """
        words = list(_words_of(doc, start, end))
        for n, (at, word) in enumerate(words):
            if word not in self.stop:
                continue
            named = n + 1 < len(words) and words[n + 1][1] not in self.stop
            if not (named and _INITIAL.match(doc.text, at)):
                return start + len(doc.text[start:at].rstrip(" ,;/(\t\r\n-"))
        return end


def _first_group(found: list[Range]) -> Range:
    """The range of the first group that took part in a match; an empty range if there is none."""
    return next((span for span in found[1:] if span[0] >= 0), (0, 0))


def _is_term(text: str, terms: Lexicon) -> bool:
    """Return true if the words of ``text``, or all but the last, are a term. "Crohns" and "Crohn's" are "crohn"."""
    words = _NAME_WORD.findall(_POSSESSIVE.sub("", fold_accents(text)))
    phrase = [word.removesuffix("s") for word in words[:-1]]
    return any(" ".join(form) in terms for form in (words, words[:-1], [*phrase, *words[-1:]], phrase))


def _words_of(doc: Document, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The words of a span in the form of the word lists, with their positions."""
    for word in _WORDS.finditer(doc.text, start, end):
        yield word.start(), doc.lower[word.start() : word.end()].strip(".'’:&")


Cleared = Mapping[PhiType, frozenset[str]]
"""For each type the texts that are no PHI, in the form of ``plain_form``."""


@dataclass(frozen=True, slots=True)
class SiteRules:
    """What the site folders of a rule set add to it and remove from it."""

    lists: SiteLists = field(default_factory=SiteLists)
    patterns: tuple[Rule, ...] = ()
    vetoes: tuple[Rule, ...] = ()
    removed: frozenset[str] = frozenset()
    cleared: Cleared = field(default_factory=dict, repr=False)
    folders: tuple[Path, ...] = ()
    removed_sources: frozenset[Source] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sources = frozenset(Source(SourceKind.RULE, id_) for id_ in self.removed)
        object.__setattr__(self, "removed_sources", sources)

    @property
    def summary(self) -> str:
        """What the folders have, in numbers."""
        kinds = [index.values for index in self.lists.names.values()]
        kinds += [index.values for index in self.lists.terms.values()]
        values = sum(len(values) for by_word in kinds for values in by_word.values())
        more = (
            counted(len(self.patterns), "pattern"),
            counted(len(self.vetoes), "veto", "vetoes"),
            f"{len(self.removed) + sum(map(len, self.cleared.values()))} removed",
        )
        return f"{counted(values, 'value')} in {counted(len(kinds), 'list')}, {', '.join(more)}"

    def clears(self, doc: Document, start: int, end: int, kind: PhiType) -> bool:
        """Return true if the text of a span is no PHI of this type here, and no value of the message either."""
        terms = self.cleared.get(kind)
        if not terms or (text := plain_form(doc.text[start:end])) not in terms:
            return False
        return all(plain_form(fact.value) != text for fact in doc.facts)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """All rules of one folder, and the word lists that they and other recognizers use."""

    patterns: tuple[Rule, ...] = ()
    vetoes: tuple[Rule, ...] = ()
    late_vetoes: tuple[Rule, ...] = ()
    """Vetoes that run only after the models, so that models need no training for a new one."""
    lexicons: Mapping[str, Lexicon] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    contexts: Contexts = field(default_factory=lambda: MappingProxyType({}), repr=False)
    folder: Path = Path("rules")  # the rules folder, for dictionaries that are loaded on demand
    site: SiteRules | None = None
    """What site folders add and remove; None without one."""

    @property
    def low(self) -> frozenset[Source]:
        """The sources of the rules of low confidence."""
        return frozenset(rule.source for rule in self.patterns if rule.confidence is Confidence.LOW)

    @property
    def every_rule(self) -> tuple[Rule, ...]:
        """All patterns and vetoes, those of site folders last, also the removed ones."""
        more = () if self.site is None else (*self.site.patterns, *self.site.vetoes)
        return (*self.patterns, *self.vetoes, *self.late_vetoes, *more)


def check_samples(ruleset: Ruleset) -> list[str]:
    """One line for each sample that a rule gets wrong: the rule id, the key and the number of the sample."""
    return [
        f"{rule.id}: {key} {number}: {fault}"
        for rule in ruleset.every_rule
        for key, samples in (("hit", rule.hit), ("miss", rule.miss))
        for number, sample in enumerate(samples, 1)
        if (fault := _sample_fault(rule, sample, must_hit=key == "hit"))
    ]


def _sample_fault(rule: Rule, sample: str, *, must_hit: bool) -> str:
    try:
        annotated = parse_annotated(sample)
    except MarkupError as fault:
        return str(fault)
    wanted = [(s.start, s.end) for s in annotated.spans if s.type in rule.types] if must_hit else []
    if must_hit and not wanted:
        return "marks no span of the rule's type"
    found = list(rule.find(Document(annotated.text)))
    return "" if found == wanted else f"found {found}, wanted {wanted}"
