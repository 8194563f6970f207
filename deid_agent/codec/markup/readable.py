"""The visible text of markup, each character mapped to its bytes: HTML, XHTML, narrative blocks of C-CDA.

An inline tag is a gap in the text; any other tag ends a line. An entity is one character, and a run of white space is
one space. The content of comments, CDATA sections, scripts and style sheets is text too: people leave names there.
The pass is linear: no alternative of the pattern looks past the next ``<``, so unclosed markup costs nothing extra.
Source: FHIR R5, 2.1.28 (Narrative); XHTML 1.0, appendix A (entities); WHATWG HTML, 13.2.5 (tokenization).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from html.entities import html5
from typing import NamedTuple

from deid_agent.codec.charsets import Offsets, slice_offsets
from deid_agent.model import MappedText, Replacement

# Text that ends with the end of a comment, a CDATA section or an instruction is no tag: a replacement would remove it.
_TAG = r"""<(/?)([A-Za-z][^\s/<>"'=]*+)((?:"[^"<]*+"|'[^'<]*+'|[^'"<>])*+)(?<!--)(?<!\]\])(?<!\?)>"""
_NO_TAG = "(?!)()()()"
_MARKUP = r"%s|(&(?:%s))|([ \t\r\n\f]{2,}+|[\t\r\n\f])|%s"
_STARTS = r"<!--|<!\[CDATA\[|<\?%s[ \t\r\n]*+|%s"
_TARGET, _DECLARATION = r"[\w:.-]*+", r"<![A-Za-z][^<>]*+>"
# A browser treats everything else that begins like these as a comment, and people leave names in comments.
_KNOWN_TARGET = r"(?:(?:xml(?:-stylesheet|:namespace)?|php|import|mso-application)(?![\w:.]))?+"
_DOCTYPE = (
    r"<!(?i:doctype\s++html)(?i:\s++(?:public|system))?(?:\s*+[\"'](?:-//(?:W3C|IETF)//[\w /.-]{1,60}"
    r"|https?://www\.w3\.org/[\w/.-]{1,60}|about:legacy-compat|[\w-]{1,20}\.dtd)[\"'])*+\s*+>"
)
_ENTITY = r"\#0{0,16}\d{1,7};|\#[xX]0{0,16}[0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};"
_LEGACY = "|".join(sorted((name for name in html5 if name[-1] != ";"), key=lambda name: (-len(name), name)))
_STRICT = re.compile(_MARKUP % (_TAG, _ENTITY, _STARTS % (_TARGET, _DECLARATION)))
# In XML these contain no tags, only their end: ``<!-- <Okafor> -->`` contains a name.
_INSIDE = {
    start: re.compile(_MARKUP % (_NO_TAG, _ENTITY, end))
    for start, end in (("<!--", "-->"), ("<![CDATA[", r"\]\]>"), ("<?", r"\?>"))
}
_LENIENT_ENTITY = f"{_ENTITY}|\\#0{{0,16}}\\d{{1,7}}|\\#[xX]0{{0,16}}[0-9a-fA-F]{{1,6}}|{_LEGACY}"
_LENIENT = re.compile(_MARKUP % (_TAG, _LENIENT_ENTITY, _STARTS % (_KNOWN_TARGET, _DOCTYPE) + r"|-->|\]\]>|\?>"))
_REFERENCE = re.compile(f"&(?:{_LENIENT_ENTITY})")
_BREAK = "\n"  # the character for a tag that ends a line; no entity or white space is read as this character
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=<>`]++))|"[^"]*+"|'[^']*+'""")
_NAME = re.compile(r"[\w:.-]++")
_CLOSE = {
    name: re.compile(rf"""</{name}(?=[\s/>])(?:"[^"<]*+"|'[^'<]*+'|[^'"<>])*+(?<!--)(?<!\]\])(?<!\?)>""", re.IGNORECASE)
    for name in ("script", "style", "xmp")
}
_SECTION = re.compile(r"<(?:[!?]|script|style|xmp)", re.IGNORECASE)
"""The start of what ``_CLOSE`` or ``_INSIDE`` ends. Most markup has none."""
_LOOSE_TEXT = re.compile(r"""[^\s"'=/](?:[^"']*[^\s"'=/])?""")
_DASHES = re.compile("-{2,}")


@dataclass(frozen=True, slots=True)
class MarkupText(MappedText):
    """Mapped text of markup. A replacement never ends a comment, or an attribute without quotes.

    ``comments`` are byte offsets, alternately the start and the end of the text of a comment. ``bare`` marks the value
    of an attribute without quotes.
    """

    comments: tuple[int, ...] = ()
    bare: bool = False

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MappedText.place``. The text is not escaped; the message escapes it."""
        for start, end, text in MappedText.place(self, replacements):
            if self.comments and bisect_right(self.comments, start) % 2:
                yield start, end, _without_dashes(text)
            elif self.bare:
                yield start, end, "\u00a0".join(text.split()) or "\u00a0"  # ASCII white space would end the value
            else:
                yield start, end, text


@dataclass(frozen=True, slots=True)
class EscapedText(MarkupText):
    """Mapped text of markup inside another format: a replacement has ``& < >`` as entities."""

    quoted: bool = False

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MarkupText.place``, escaped; in the value of an attribute (``quoted``) quotes become entities too."""
        for start, end, text in MarkupText.place(self, replacements):
            yield start, end, escape(text, quote=self.quoted)


class Attribute(NamedTuple):
    """An attribute. Its value is characters ``[start, end)`` of the fragment, not decoded; ``bare``: without quotes."""

    name: str
    start: int
    end: int
    value: str
    element: str = ""
    bare: bool = False

    def __repr__(self) -> str:
        """All fields except the value."""
        return (
            f"Attribute(name={self.name!r}, start={self.start}, end={self.end}, element={self.element!r}, "
            f"bare={self.bare})"
        )


def read_markup(
    value: str,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    offset: int = 0,
    inline: frozenset[str] = frozenset(),
    elements: frozenset[str] | None = None,
    tags: frozenset[str] | None = None,
) -> tuple[MarkupText, tuple[Attribute, ...]]:
    """The visible text of ``value`` and the attributes of its tags.

    ``value[i]`` is bytes ``[starts[offset + i], ends[offset + i])`` of the message. ``inline`` lists the tags that do
    not end a line.
    With ``elements`` the markup is HTML as people write it: an entity may lack its semicolon, and a tag not in
    ``elements`` (``<ada@example.org>``) is text, unless its name has a colon (tags of office programs). The content of
    a tag that is not an attribute with a value is returned as attributes without a name.
    With ``tags`` the markup is XML read strictly, and a tag not in ``tags`` is text.
    """
    text: list[str] = []
    runs: list[tuple[int, int, int]] = []  # index in the text, first and last character of the markup
    breaks: list[int] = []
    comments: list[int] = []
    attributes: list[Attribute] = []
    known: dict[str, tuple[str | None, bool]] = {}
    at = count = literal = 0
    at_line_start = True  # no second line end and no space follow
    for piece in _iter_markup(value, lenient=elements is not None):
        markup = piece[0]
        found = known.get(markup)
        if found is None:
            char = _visible_text(piece, inline, elements or tags)
            found = known[markup] = char, char == _BREAK or markup.isspace()
        char, is_blank = found
        if char is None or (literal and char == " "):
            continue
        start, end = piece.span()
        if at < start and not (at_line_start and value[at:start] == " "):
            text.append(value[at:start])
            runs.append((count, at, at))
            count += start - at
            at_line_start = False
        at = end
        if char and not (at_line_start and is_blank):
            if at_line_start := char == _BREAK:
                breaks.append(count)
            text.append(char)
            runs.append((count, start, end - 1))
            count += 1
        if piece.lastindex is None:
            if markup == "<!--" and len(comments) % 2 == 0 and end < len(value):
                comments.append(starts[offset + end])
            elif markup == "-->" and len(comments) % 2:
                comments.append(starts[offset + start])
        elif markup[-1] == ">" and markup[:4] in {"<pre", "</pr"}:
            literal = max(0, literal + (-1 if markup[1] == "/" else 1))
        if piece[3]:
            attributes += iter_attributes(value, *piece.span(3), piece[2])
            attributes += () if elements is None else _iter_loose_text(value, *piece.span(3), piece[2])
    if at < len(value):
        text.append(value[at:])
        runs.append((count, at, at))
        count += len(value) - at
    first = [run[0] for run in runs]
    mapped = MarkupText(
        "".join(text),
        Offsets(first, [offset + run[1] for run in runs], count, starts),
        Offsets(first, [offset + run[2] for run in runs], count, ends),
        frozenset(breaks),
        tuple(comments),
    )
    return mapped, tuple(attributes)


def escape_replacements(mapped: MarkupText, *, quoted: bool = False) -> EscapedText:
    """The same text for markup inside another format; ``quoted`` for the value of an attribute."""
    return EscapedText(mapped.text, mapped.starts, mapped.ends, mapped.separators, mapped.comments, mapped.bare, quoted)


def read_value(
    value: str, starts: Sequence[int], ends: Sequence[int], *, offset: int = 0, bare: bool = False, lines: bool = False
) -> MarkupText:
    """The value of an attribute, or text without tags, with entities decoded; with ``lines`` those of line ends too."""
    if "&" not in value:
        span = offset, offset + len(value)
        return MarkupText(value, slice_offsets(starts, *span), slice_offsets(ends, *span), bare=bare)
    text: list[str] = []
    runs: list[tuple[int, int, int]] = []
    at = count = 0
    for piece in _REFERENCE.finditer(value):
        char = _character(piece[0]) or (_line_end(piece[0]) if lines else "")
        if not char:
            continue
        start, end = piece.span()
        if at < start:
            text.append(value[at:start])
            runs.append((count, at, at))
            count += start - at
        text.append(char)
        runs.append((count, start, end - 1))
        count += 1
        at = end
    text.append(value[at:])
    runs.append((count, at, at))
    count += len(value) - at
    first = [run[0] for run in runs]
    return MarkupText(
        "".join(text),
        Offsets(first, [offset + run[1] for run in runs], count, starts),
        Offsets(first, [offset + run[2] for run in runs], count, ends),
        bare=bare,
    )


def iter_attributes(value: str, start: int, end: int, element: str) -> Iterator[Attribute]:
    """The attributes with a value between the name of a tag and its end; the case of names is left unchanged."""
    for found in _ATTRIBUTE.finditer(value, start, end):
        if not found[1]:  # a quoted string that is the value of no attribute: its content begins no attribute
            continue
        group = 2 if found[2] is not None else 3 if found[3] is not None else 4
        yield Attribute(found[1], *found.span(group), found[group], element, group == 4)


def _iter_loose_text(value: str, start: int, end: int, element: str) -> Iterator[Attribute]:
    """The text in a tag that is no attribute with a value (``alt="seen by "Ada Okafor""``), as nameless attributes."""
    at = start
    attributes = (found.span() for found in _ATTRIBUTE.finditer(value, start, end) if found[1])
    for first, last in (*attributes, (end, end)):
        for found in _LOOSE_TEXT.finditer(value, at, first):
            yield Attribute("", *found.span(), found[0], element, bare=True)
        at = last


def _iter_markup(value: str, *, lenient: bool) -> Iterator[re.Match[str]]:
    """The markup of ``value``: tags, entities, white space, and the starts and ends of comments.

    Scripts and style sheets contain no markup. In XML, comments, CDATA sections and instructions contain no tags
    either. Browsers end a comment in more ways than are known here, so on a page (``lenient``) tags are recognized
    in comments too.
    """
    pattern = _LENIENT if lenient else _STRICT
    return _iter_sections(value, pattern, lenient=lenient) if _SECTION.search(value) else pattern.finditer(value)


def _iter_sections(value: str, pattern: re.Pattern[str], *, lenient: bool) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(value):
        resume = len(value)
        for piece in pattern.finditer(value, at):
            yield piece
            if piece[2] and not piece[1] and (close := _CLOSE.get(piece[2].lower())) and piece[3][-1:] != "/":
                if found := close.search(value, piece.end()):
                    resume = found.start()
                break
            if piece.lastindex is None and not lenient:  # a comment, CDATA section or instruction begins or ends
                start = "<?" if piece[0].startswith("<?") else piece[0]
                pattern = _INSIDE.get(start, _STRICT)
                resume = piece.end()
                break
        at = resume


def _visible_text(piece: re.Match[str], inline: frozenset[str], elements: frozenset[str] | None) -> str | None:
    """The text of a piece of markup: a character, ``_BREAK``, an empty string (a gap), or None for literal text."""
    match piece.lastindex:
        case 3:
            name = piece[2].lower()
            if name in inline:
                return ""
            is_tag = _NAME.fullmatch(name) if elements is None else name in elements or ":" in name
            return _BREAK if is_tag else None
        case 4:
            return _character(piece[4]) or None
        case 5:
            return " "
        case _:
            return _BREAK


def _character(entity: str) -> str:
    """The character of an entity; empty if the entity is unknown or has several characters."""
    if entity[1] != "#":
        char = html5.get(entity[1:], "")
        return char if len(char) == 1 and char != _BREAK else ""
    digits = entity[2:].rstrip(";")
    code = int(digits[1:], 16) if digits[0] in "xX" else int(digits)
    if 0x80 <= code < 0xA0:
        return unescape(f"&#{code};")  # browsers decode these as windows-1252
    return chr(code) if 0x20 <= code < 0xD800 or 0xE000 <= code < 0x110000 or code == 9 else ""


def _line_end(entity: str) -> str:
    """The line end of a character reference; empty for any other."""
    char = unescape(entity)
    return char if char in {"\n", "\r"} else ""


def _without_dashes(text: str) -> str:
    """``text`` without double hyphens, which end a comment in XML, and without a hyphen at either end: it may meet
    another one there."""
    text = _DASHES.sub("-", text)
    before = " " if not text or text[0] == "-" else ""
    return before + text + (" " if text.endswith("-") else "")
