"""Known PHI: values of the structured part of a message, found again in its narratives.

Names, numbers, addresses and dates in the fields of a message identify its patient in any other place too, so these
spans are the most certain. ``known_name_finder`` and ``known_values`` define when a common word or a short number
counts as such a value. A span has the type of the fact, and its source is ``known:<subject>-<form>``.

Source: Dehghan 2015 section 2.4 (run-time dictionaries), with the values of the message as the dictionary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from deid_agent.model import (
    Document,
    Fact,
    NormalText,
    PhiType,
    Source,
    SourceTraits,
    Span,
    decode_base64_text,
    normalize_writing,
)
from deid_agent.recognize.glued_names import GluedNameFinder
from deid_agent.recognize.known_name_finder import NameFinder
from deid_agent.recognize.known_people import KNOWN_SOURCES, EastAsianNameFinder, NameLexicons, build_people
from deid_agent.recognize.known_values import ValueFinder
from deid_agent.recognize.written_values import (
    join_cut_values,
    join_cut_words,
    read_digits_as_letters,
    separate_glued_words,
)

# Reading a payload without a parser.
#
# The bytes of a payload without escapes contain every value unchanged, delimited by characters that are neither letters
# nor digits and do not divide numbers. They can be searched without parsing, to prove that a value is absent.

_HEADERS = (b"MSH", b"FHS", b"BHS")
_ESCAPE = re.compile(
    rb"\\(?:([FSTREP])|(\.(?:br|sp|ce)[-+0-9]{0,6})|([HN]|X[0-9A-Fa-f]+|[CM][0-9A-Fa-f]+|\.[a-z]{2}[-+0-9]{0,6}))\\"
)
_ESCAPED = {b"F": b"|", b"S": b"^", b"T": b"&", b"R": b"~", b"E": b"\\", b"P": b"#"}
_SEPARATORS = re.compile(rb"[\^&~](?:(?:\0+|[^|^&~\r\n])?[\^&~])*")
_CONTROL = re.compile(rb"[\x0e\x0f\x1b]")
_BREAKS = re.compile(r"\\[nrt]")
_BLOCK = re.compile(
    r"</?(?:address|blockquote|body|br|caption|center|col|colgroup|dd|div|dl|dt|h[1-6]|hr|html|img|li|ol|p|pre|table|tbody|"
    r"td|tfoot|th|thead|tr|ul)(?=[\s/>])[^<>]*>"
)
_INLINE = re.compile(r"</?(?:a|b|big|cite|code|em|font|i|q|small|span|strong|sub|sup|tt|u)(?=[\s/>])[^<>]*>")
_SPACES = re.compile(r"\s+")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|nbsp|#160|#39);")
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_MARKUP = re.compile(rb"<[A-Za-z/!]|(?:&|\\T\\)#?[0-9A-Za-z]{2,8};")
_WRITTEN_OTHERWISE = re.compile(r"[&<%]")
_LONG_VALUE = 6
"""A value cut by a line end counts if it has so many letters and digits: columns of short numbers are no value."""
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{11,}={0,2}")


@dataclass(frozen=True, slots=True)
class PlainReading:
    """ASCII texts that contain every value of a payload, delimited by characters that are no letters and no digits.

    ``in_rows``: the values of one composite are in consecutive lines of one text; otherwise they may be anywhere.
    """

    texts: tuple[str, ...] = field(repr=False)
    in_rows: bool


def read_without_parser(raw: bytes, hidden: Iterable[tuple[int, int]]) -> PlainReading | None:
    """The text of ``raw`` without the byte ranges ``hidden``, or None if a parser is needed.

    A parser is needed for formats other than JSON and HL7 v2 with the usual separators, for escapes and entities that
    represent a letter, a digit or part of a number, and for bytes that are not ASCII.
    """
    data = bytearray(raw)
    for start, end in hidden:
        data[start:end] = bytes(end - start)
    found = bytes(data)
    first = found.lstrip(b" \t\r\n\x0b")[:1]
    if not found.isascii() or _PERCENT.search(found) or first not in (b"{", b"M", b"F", b"B"):
        return None
    reading = _read_json(found) if first == b"{" else _read_hl7(found)
    return None if reading is None or any(_has_encoded_text(text) for text in reading.texts) else reading


def _has_encoded_text(text: str) -> bool:
    """True if a word of ``text`` is base64 of another text."""
    return any(decode_base64_text(word) != word for word in set(_ENCODED.findall(text)))


def _read_hl7(found: bytes) -> PlainReading | None:
    """The reading of HL7 v2 with the usual separators and escapes of separators and line breaks; otherwise None.

    Components of one character and hidden components are removed, so that their neighbours become adjacent.
    """
    if any(found.count(name) != found.count(name + b"|^~\\&|") for name in _HEADERS):
        return None
    if _CONTROL.search(found) or _MARKUP.search(found):
        return None
    escapes = found.count(b"\\") != found.count(b"|^~\\&|")
    if escapes and any(each[3] for each in _ESCAPE.finditer(found)):
        return None
    found = _SEPARATORS.sub(b"\n", found)
    return PlainReading(((_ESCAPE.sub(_unescape, found) if escapes else found).decode("ascii"),), in_rows=True)


def _unescape(escape: re.Match[bytes]) -> bytes:
    return _ESCAPED[escape[1]] if escape[1] else b"\n"


def _read_json(found: bytes) -> PlainReading | None:
    """The reading of JSON whose only escapes are line breaks and quotes: with its markup, and without it."""
    text = found.decode("ascii")
    if "\\" in text:
        text = _BREAKS.sub("  ", text)
        if "\\" in text.replace('\\"', ""):
            return None
    if "<" not in text and "&" not in text:
        return PlainReading((text,), in_rows=False)
    text = _SPACES.sub(" ", _ENTITY.sub(" ", text))
    visible = _INLINE.sub("", _BLOCK.sub("\n", text))
    return None if "&" in text or "<" in visible else PlainReading((text, visible), in_rows=False)


class _Finder(Protocol):
    """Finds the facts of one message in any text."""

    def find(self, doc: Document) -> Iterable[Span]: ...

    def proves_absence(self, doc: Document, *, in_rows: bool) -> bool: ...


class KnownRecognizer:
    """Finds the facts of a document in its text.

    ``exact`` is for text that is not prose (codes, URLs): it ignores nicknames, misspellings and dotted initials, but
    finds a patient's number of at least eight digits as a part of a longer number too.
    """

    def __init__(self, lexicons: NameLexicons, *, exact: bool = False) -> None:
        self._lexicons = lexicons
        self._exact = exact
        # The finders of the last facts: a message has the same tuple for each of its narratives.
        self._last: tuple[tuple[Fact, ...], tuple[_Finder, ...], GluedNameFinder] | None = None

    @property
    def name(self) -> str:
        """The name in configuration and reports."""
        return "known"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source for each subject and form. No model overrules known PHI."""
        return dict.fromkeys(KNOWN_SOURCES.values(), SourceTraits())

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The spans of every fact in the text, in any of its usual forms and in any writing (``normalize_writing``)."""
        if not doc.facts:
            return
        finders = self._finders(doc.facts)
        found = [span for finder in finders for span in finder.find(doc)]
        yield from found
        covered = bytearray(len(doc.text))
        for span in found:
            covered[span.start : span.end] = b"1" * (span.end - span.start)
        for span in self._find_in_other_writings(doc, finders):
            if 0 in covered[span.start : span.end]:
                covered[span.start : span.end] = b"1" * (span.end - span.start)
                yield span

    def _find_in_other_writings(self, doc: Document, finders: tuple[_Finder, ...]) -> Iterator[Span]:
        plain = normalize_writing(doc.text)
        text = doc.text if plain is None else plain.text
        if plain is not None:
            yield from _find_in(plain, doc, finders)
        yield from self._glued(doc.facts).find_in(text, plain)
        if (joined := join_cut_words(text)) is not None:
            yield from _find_in(joined.over(plain), doc, finders)
        if (joined := join_cut_values(text, with_comments=not self._exact)) is not None:
            cut = joined.over(plain)
            if not text.isascii():
                yield from self._glued(doc.facts).find_in(joined.text, cut)
            for span in _find_in(cut, doc, finders[1:]):  # names in scripts without blanks, and values
                if span.type in _NAMES or sum(c.isalnum() for c in doc.text[span.start : span.end]) >= _LONG_VALUE:
                    yield span
        divided = (
            [separate_glued_words(text)] if self._exact else [read_digits_as_letters(text), separate_glued_words(text)]
        )
        for apart in divided:
            if apart is not None:
                for span in _find_in(apart.over(plain), doc, finders):
                    yield _without_first_letter_of_term(span, doc.text)

    def proves_absence(self, reading: PlainReading, facts: tuple[Fact, ...]) -> bool:
        """Return true if ``reading`` certainly contains no fact. Always false unless the recognizer is ``exact``."""
        if not self._exact:
            return False
        documents = [Document(text) for text in reading.texts]
        finders = self._finders(facts)
        glued = self._glued(facts)
        return all(
            glued.proves_absence(doc) and all(each.proves_absence(doc, in_rows=reading.in_rows) for each in finders)
            for doc in documents
        )

    def _finders(self, facts: tuple[Fact, ...]) -> tuple[_Finder, ...]:
        return self._built(facts)[1]

    def _glued(self, facts: tuple[Fact, ...]) -> GluedNameFinder:
        return self._built(facts)[2]

    def _built(self, facts: tuple[Fact, ...]) -> tuple[tuple[Fact, ...], tuple[_Finder, ...], GluedNameFinder]:
        last = self._last
        if last is None or last[0] is not facts:
            known = facts
            facts = (*facts, *_in_normal_form(facts))
            persons = build_people(facts, self._lexicons, nicknames=not self._exact)
            names = NameFinder(persons, self._lexicons, self._exact)
            values = ValueFinder.from_facts(facts, self._lexicons, self._exact)
            glued = GluedNameFinder(persons, self._lexicons, not self._exact)
            last = self._last = (known, (names, EastAsianNameFinder.from_facts(facts), values), glued)
        return last


def _in_normal_form(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts whose value has another normal form, with that form."""
    for fact in facts:
        plain = fact.value.isascii() and not _WRITTEN_OTHERWISE.search(fact.value)
        if not plain and (found := normalize_writing(fact.value)) is not None:
            yield replace(fact, value=found.text)


def _without_first_letter_of_term(span: Span, text: str) -> Span:
    """A name without the first letter of the next word, which is no initial: ``Okafor C5``, ``Okafor HFrEF``."""
    last = span.end - 1
    if text[span.end : span.end + 1].isalnum() and text[last].isalpha() and not text[last - 1 : last].isalnum():
        end = span.start + len(text[span.start : last].rstrip(" ,.\t\n"))
        return span if end <= span.start else Span(span.start, end, span.type, span.source)
    return span


def _find_in(writing: NormalText, doc: Document, finders: Iterable[_Finder]) -> Iterator[Span]:
    """The spans of the facts in another writing of ``doc``, as ranges of ``doc``."""
    other = Document(writing.text, doc.facts)
    for finder in finders:
        for span in finder.find(other):
            start, end = writing.source(span.start, span.end)
            yield replace(span, start=start, end=end)
