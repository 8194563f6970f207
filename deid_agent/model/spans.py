"""Spans: half-open ranges of characters of one document, with a PHI type and the source that found them.

A span holds no text of the document.

``[[TYPE|text]]`` is the markup of a span in an annotated text. Rule files use it for their samples, and the annotated
corpus for its notes. Without the markup a note is byte for byte the original. Spans are never nested.

``MappedText`` is text that is encoded in a message. It serves HL7 escapes, lines spread over several OBX segments, JSON
escapes and markup: recognizers read its text, and replacements are written back to ranges of bytes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from deid_agent.model.phi import PhiType

_OPEN = re.compile(r"\[\[([A-Z][A-Z-]*)\|")


class SourceKind(StrEnum):
    """The component that found a span. The value is the prefix in the written form of a source."""

    KNOWN = "known"  # a value of the message's structured part, found again in the text
    TOKEN_MODEL = "crf"  # noqa: S105 - a prefix, not a secret
    SITE = "site"  # a value of a site list, as it is written
    SITE_NAME = "site-name"  # a family name of a site list without anything else that shows a person
    RULE = "rule"  # a pattern rule: written without a prefix
    CUSTOM = "custom"  # a recognizer added to the registry
    CHARACTER_MODEL = "char-crf"
    NETWORK = "neural"
    NAME_FILTER = "filter"
    DICTIONARY = "lexicon"
    LOGIN = "login"  # a user name built from a name of the same text
    CONSISTENCY = "again"  # the document-level consistency pass, or the memory of a patient's names
    LOW_CONFIDENCE = "weak"  # a token that a model calls possible, not likeliest
    ANNOTATION = "annotation"  # a person's mark-up: written without a prefix
    FOREIGN = "foreign"  # another system's span, read from a file: the id is its whole source

    __hash__ = str.__hash__  # the hash of Enum is written in Python, and resolving hashes every span several times


_WITHOUT_PREFIX = frozenset({SourceKind.RULE, SourceKind.ANNOTATION, SourceKind.FOREIGN})
_BY_PREFIX = {kind.value: kind for kind in SourceKind if kind not in _WITHOUT_PREFIX}


@dataclass(frozen=True, slots=True)
class Source:
    """The finder of a span: the kind of component, and its id for the rule, list, model or form of a value.

    ``str()`` gives the written form that remarks, audit entries and JSON lines hold: ``crf:token``, or the bare id
    of a rule. Sources are few: create each once, as a constant or an attribute, not for every span.
    """

    kind: SourceKind
    id: str
    _written: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        written = self.id if self.kind in _WITHOUT_PREFIX else f"{self.kind.value}:{self.id}"
        object.__setattr__(self, "_written", written)

    def __str__(self) -> str:
        return self._written

    def __hash__(self) -> int:
        return hash(self._written)


ANNOTATION = Source(SourceKind.ANNOTATION, "gold")
"""The source of spans that a person marked."""


def parse_source(written: str) -> Source:
    """The source of a written form. An unknown prefix gives ``FOREIGN``, no prefix a rule."""
    prefix, colon, id_ = written.partition(":")
    if not colon:
        return Source(SourceKind.RULE, written)
    kind = _BY_PREFIX.get(prefix)
    return Source(SourceKind.FOREIGN, written) if kind is None else Source(kind, id_)


class Confidence(StrEnum):
    """How sure a source is of its spans."""

    HIGH = "high"
    LOW = "low"  # the precision profile drops the spans, and the consistency pass does not repeat them
    CERTAIN = "certain"  # right in at least 95 of 100 cases


class BesideModels(StrEnum):
    """When spans of a source remain although a model that was trained on them reads the same text."""

    ALWAYS = "always"  # the models do not see these spans, so they cannot overrule them
    RECALL = "recall"  # under the recall profile only
    NEVER = "never"  # the models decide


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """How the other stages treat the spans of a source. The defaults keep every span under every profile."""

    confidence: Confidence = Confidence.HIGH
    beside_models: BesideModels = BesideModels.ALWAYS


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``[start, end)`` of a document that are PHI of ``type``, and the source that found them.

    Raises ``ValueError`` if the range is empty or negative.
    """

    start: int
    end: int
    type: PhiType
    source: Source

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"span [{self.start}, {self.end}) is empty or negative")

    def __hash__(self) -> int:
        return hash((self.start, self.end, self.type))  # without the source: its hash is a function in Python

    def __len__(self) -> int:
        return self.end - self.start

    def covers(self, other: "Span") -> bool:
        """Return true if every character of ``other`` lies inside this span."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for characters ``[start, end)`` of a document."""

    start: int
    end: int
    text: str = field(repr=False)


def in_order(spans: Iterable[Span]) -> list[Span]:
    """``spans`` sorted by start, longest first, then by type and source: the order of all results."""
    return sorted(spans, key=lambda s: (s.start, -s.end, s.type, s.source._written))


def is_disjoint(spans: Sequence[Span]) -> bool:
    """Return true if the spans are sorted and no two share a character."""
    return all(a.end <= b.start for a, b in pairwise(spans))


def splice(text: str, replacements: Iterable[Replacement]) -> str:
    """``text`` with all replacements applied.

    Raises ``ValueError`` if replacements overlap or leave the text.
    """
    out: list[str] = []
    at = 0
    for item in sorted(replacements, key=lambda r: (r.start, r.end)):
        if item.start < at or item.end < item.start or item.end > len(text):
            raise ValueError(f"replacement [{item.start}, {item.end}) overlaps or leaves the text")
        out += (text[at : item.start], item.text)
        at = item.end
    out.append(text[at:])
    return "".join(out)


class MarkupError(ValueError):
    """Invalid markup in line ``line`` (from 1). The message contains no text of the note."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(line, detail)
        self.line = line
        self.detail = detail

    def __str__(self) -> str:
        return f"line {self.line}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Annotated:
    """A text and its annotations, which are in order and disjoint."""

    text: str = field(repr=False)
    spans: tuple[Span, ...]


def parse_annotated(marked: str, source: Source = ANNOTATION) -> Annotated:
    """The plain text and the spans of ``marked``.

    Raises ``MarkupError`` for an unknown type, an empty span, a nested span or a span that is not closed.
    """
    out: list[str] = []
    spans: list[Span] = []
    at = length = 0
    for found in _OPEN.finditer(marked):
        line = marked.count("\n", 0, found.start()) + 1
        if found.start() < at:
            raise MarkupError(line, "a span inside a span: close the first with ]]")
        close = marked.find("]]", found.end())
        if close < 0:
            raise MarkupError(line, "a span is not closed: add ]]")
        before, inside = marked[at : found.start()], marked[found.end() : close]
        if "[[" in inside:
            raise MarkupError(line, "a span inside a span: close the first with ]]")
        try:
            kind = PhiType(found.group(1))
        except ValueError:
            raise MarkupError(line, f"unknown type {found.group(1)}") from None
        if not inside:
            raise MarkupError(line, "an empty span")
        out += (before, inside)
        start = length + len(before)
        length = start + len(inside)
        spans.append(Span(start, length, kind, source))
        at = close + 2
    out.append(marked[at:])
    return Annotated("".join(out), tuple(spans))


@dataclass(frozen=True, slots=True)
class MappedText:
    """Raw bytes ``[starts[i], ends[i])`` encode the character ``text[i]``.

    ``separators`` are indexes of characters that represent structure (a segment break between two OBX segments, a
    repetition separator): recognizers read them as white space, and they are never overwritten. Bytes between
    ``ends[i]`` and ``starts[i + 1]`` (a highlight escape, a tag) are kept too. Adjacent characters with the same byte
    range are an atom (several characters of one escape, a run between two charset shifts): its bytes can only be
    rewritten together.
    """

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]
    separators: frozenset[int] = frozenset()

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """The raw byte ranges to rewrite, with their new text, for replacements of characters of ``text``.

        A replacement over several fragments is distributed line by line if it has as many lines as fragments. Otherwise
        the first fragment gets all of it, and the others become empty. A replacement that touches an atom rewrites the
        whole atom and keeps the atom's other characters.
        """
        for item in self._extend_to_atoms(replacements):
            runs = list(self._runs(item.start, item.end))
            lines = item.text.split("\n")
            if len(lines) != len(runs):
                lines = [item.text.replace("\n", " ") if len(runs) > 1 else item.text]
                lines += [""] * (len(runs) - 1)
            for (first, last), line in zip(runs, lines, strict=True):
                yield self.starts[first], self.ends[last], line

    def _extend_to_atoms(self, replacements: Iterable[Replacement]) -> Iterator[Replacement]:
        """The replacements, extended to the atoms that they touch; those in the same atom are merged."""
        groups: list[tuple[int, int, list[Replacement]]] = []
        for item in sorted(replacements, key=lambda r: (r.start, r.end)):
            start, end, items = item.start, item.end, [item]
            while start < item.end and self._same_atom(start):
                start -= 1
            while item.start < end < len(self.text) and self._same_atom(end):
                end += 1
            if groups and start < groups[-1][1]:
                start, last, before = groups.pop()
                end, items = max(end, last), before + items
            groups.append((start, end, items))
        for start, end, items in groups:
            inside = (Replacement(i.start - start, i.end - start, i.text) for i in items)
            yield Replacement(start, end, splice(self.text[start:end], inside))

    def _same_atom(self, i: int) -> bool:
        """Return true if character ``i`` has the same bytes as the character before."""
        if i == 0 or self.starts[i] == self.ends[i]:
            return False
        return self.starts[i] == self.starts[i - 1] and self.ends[i] == self.ends[i - 1]

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Runs of characters (first and last index) whose raw bytes are contiguous."""
        first: int | None = None
        for i in range(start, end):
            if i in self.separators:
                if first is not None:
                    yield first, i - 1
                first = None
            elif first is None:
                first = i
            elif self.starts[i] != self.ends[i - 1] and not self._same_atom(i):
                yield first, i - 1
                first = i
        if first is not None:
            yield first, end - 1
