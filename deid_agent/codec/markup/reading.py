"""What a reader of markup sees, character by character mapped to where it stands: HTML, XHTML, blocks of C-CDA.

Tags inside of a line are gaps, all others end a line; an entity is one character,
a stretch of white space is one space. What stands in comments, CDATA sections, scripts and style sheets is
text too: people leave names there. One pass, linear: no alternative of the pattern
looks past the next ``<``, so markup that is never closed costs nothing.
Source: FHIR R5, 2.1.28 (Narrative); XHTML 1.0, appendix A (entities); WHATWG HTML, 13.2.5 (tokenization).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from html.entities import html5

from deid_agent.codec.places import Places, part
from deid_agent.mapped import MappedText
from deid_agent.spans import Replacement

# What ends in the end of a comment, a CDATA section or an instruction is no tag: written over, it would end none.
_TAG = r"""<(/?)([A-Za-z][^\s/<>"'=]*+)((?:"[^"<]*+"|'[^'<]*+'|[^'"<>])*+)(?<!--)(?<!\]\])(?<!\?)>"""
_NO_TAG = "(?!)()()()"
_MARKUP = r"%s|(&(?:%s))|([ \t\r\n\f]{2,}+|[\t\r\n\f])|%s"
_STARTS = r"<!--|<!\[CDATA\[|<\?%s[ \t\r\n]*+|%s"
_TARGET, _DECLARATION = r"[\w:.-]*+", r"<![A-Za-z][^<>]*+>"
# A browser takes all else that begins like these for a comment, and people leave names in comments.
_KNOWN_TARGET = r"(?:(?:xml(?:-stylesheet|:namespace)?|php|import|mso-application)(?![\w:.]))?+"
_DOCTYPE = (
    r"<!(?i:doctype\s++html)(?i:\s++(?:public|system))?(?:\s*+[\"'](?:-//(?:W3C|IETF)//[\w /.-]{1,60}"
    r"|https?://www\.w3\.org/[\w/.-]{1,60}|about:legacy-compat|[\w-]{1,20}\.dtd)[\"'])*+\s*+>"
)
_ENTITY = r"\#0{0,16}\d{1,7};|\#[xX]0{0,16}[0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};"
_LEGACY = "|".join(sorted((name for name in html5 if name[-1] != ";"), key=lambda name: (-len(name), name)))
_STRICT = re.compile(_MARKUP % (_TAG, _ENTITY, _STARTS % (_TARGET, _DECLARATION)))
# XML knows no tags in these, only their end: ``<!-- <Okafor> -->`` names somebody.
_INSIDE = {
    start: re.compile(_MARKUP % (_NO_TAG, _ENTITY, end))
    for start, end in (("<!--", "-->"), ("<![CDATA[", r"\]\]>"), ("<?", r"\?>"))
}
_WRITTEN = f"{_ENTITY}|\\#0{{0,16}}\\d{{1,7}}|\\#[xX]0{{0,16}}[0-9a-fA-F]{{1,6}}|{_LEGACY}"
_LENIENT = re.compile(_MARKUP % (_TAG, _WRITTEN, _STARTS % (_KNOWN_TARGET, _DOCTYPE) + r"|-->|\]\]>|\?>"))
_REFERENCE = re.compile(f"&(?:{_WRITTEN})")
_JOINT = "\n"  # no entity or white space is read as one
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=<>`]++))|"[^"]*+"|'[^']*+'""")
_NAME = re.compile(r"[\w:.-]++")
_CLOSE = {
    name: re.compile(rf"""</{name}(?=[\s/>])(?:"[^"<]*+"|'[^'<]*+'|[^'"<>])*+(?<!--)(?<!\]\])(?<!\?)>""", re.IGNORECASE)
    for name in ("script", "style", "xmp")
}
_LOOSE = re.compile(r"""[^\s"'=/](?:[^"']*[^\s"'=/])?""")
_DASHES = re.compile("-{2,}")


@dataclass(frozen=True, slots=True)
class MarkupText(MappedText):
    """Mapped text inside of markup. What is written over it never ends a comment, or an attribute without quotes.

    ``comments`` are byte offsets: where a comment's text starts, ends, starts.
    """

    comments: tuple[int, ...] = ()
    bare: bool = False

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MappedText.place``, as text: the message escapes it."""
        for start, end, text in MappedText.place(self, replacements):
            if self.comments and bisect_right(self.comments, start) % 2:
                yield start, end, _without_dashes(text)
            elif self.bare:
                yield start, end, "\u00a0".join(text.split()) or "\u00a0"  # a bare value ends at ASCII white space
            else:
                yield start, end, text


@dataclass(frozen=True, slots=True)
class EscapedText(MarkupText):
    """Markup within another format: what is written over it leaves with ``& < >`` as entities."""

    quoted: bool = False

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MarkupText.place``; inside of an attribute quotes become entities too."""
        for start, end, text in MarkupText.place(self, replacements):
            yield start, end, escape(text, quote=self.quoted)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's value: characters ``[start, end)`` of the fragment, as it stands. ``bare`` is without quotes."""

    name: str
    start: int
    end: int
    value: str = field(repr=False)
    element: str = ""
    bare: bool = False


def read(
    value: str,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    offset: int = 0,
    inline: frozenset[str] = frozenset(),
    elements: frozenset[str] | None = None,
    tags: frozenset[str] | None = None,
) -> tuple[MarkupText, tuple[Attribute, ...]]:
    """The text of ``value`` and the attributes of its tags.

    ``starts[offset + i]`` and ``ends[offset + i]`` say where ``value[i]`` stands in the message. ``elements`` makes
    it HTML as people write it: entities may lack their semicolon, and what is none of these tags
    (``<ada@example.org>``) is text; a name with a colon is a tag of some office program. What a tag holds besides
    attributes with values comes as attributes without a name. ``tags`` says the same of XML whose tags are known: what
    is none of them is text, all else is read strictly.
    """
    text: list[str] = []
    stretches: list[tuple[int, int, int]] = []  # in the text, first and last character stood for
    joints: list[int] = []
    comments: list[int] = []
    attributes: list[Attribute] = []
    meanings: dict[str, str | None] = {}
    at = count = literal = 0
    joined = True  # at the start of a line: another end of line, or space, says nothing
    for piece in _pieces(value, lenient=elements is not None):
        markup = piece[0]
        if markup in meanings:
            char = meanings[markup]
        else:
            char = meanings[markup] = _meaning(piece, inline, elements or tags)
        if char is None or (literal and char == " "):
            continue
        start, end = piece.span()
        if at < start and not (joined and value[at:start] == " "):
            text.append(value[at:start])
            stretches.append((count, at, at))
            count += start - at
            joined = False
        at = end
        if char and not (joined and (char == _JOINT or markup.isspace())):
            if joined := char == _JOINT:
                joints.append(count)
            text.append(char)
            stretches.append((count, start, end - 1))
            count += 1
        if markup[-1] == ">" and markup[:4] in {"<pre", "</pr"}:
            literal = max(0, literal + (-1 if markup[1] == "/" else 1))
        if markup == "<!--" and len(comments) % 2 == 0 and end < len(value):
            comments.append(starts[offset + end])
        elif markup == "-->" and len(comments) % 2:
            comments.append(starts[offset + start])
        if piece[2] and piece[3]:
            attributes += attributes_of(value, *piece.span(3), piece[2])
            attributes += () if elements is None else _loose(value, *piece.span(3), piece[2])
    if at < len(value):
        text.append(value[at:])
        stretches.append((count, at, at))
        count += len(value) - at
    first = [stretch[0] for stretch in stretches]
    mapped = MarkupText(
        "".join(text),
        Places(first, [offset + stretch[1] for stretch in stretches], count, starts),
        Places(first, [offset + stretch[2] for stretch in stretches], count, ends),
        frozenset(joints),
        tuple(comments),
    )
    return mapped, tuple(attributes)


def escaped(mapped: MarkupText, *, quoted: bool = False) -> EscapedText:
    """The same text, for markup within another format; ``quoted`` is for the value of an attribute."""
    return EscapedText(mapped.text, mapped.starts, mapped.ends, mapped.joints, mapped.comments, mapped.bare, quoted)


def value_of(
    value: str, starts: Sequence[int], ends: Sequence[int], *, offset: int = 0, bare: bool = False
) -> MarkupText:
    """The value of an attribute, or text without tags: entities decoded, all else as it stands."""
    if "&" not in value:
        span = offset, offset + len(value)
        return MarkupText(value, part(starts, *span), part(ends, *span), bare=bare)
    text: list[str] = []
    stretches: list[tuple[int, int, int]] = []
    at = count = 0
    for piece in _REFERENCE.finditer(value):
        char = _character(piece[0])
        if not char:
            continue
        start, end = piece.span()
        if at < start:
            text.append(value[at:start])
            stretches.append((count, at, at))
            count += start - at
        text.append(char)
        stretches.append((count, start, end - 1))
        count += 1
        at = end
    text.append(value[at:])
    stretches.append((count, at, at))
    count += len(value) - at
    first = [stretch[0] for stretch in stretches]
    return MarkupText(
        "".join(text),
        Places(first, [offset + stretch[1] for stretch in stretches], count, starts),
        Places(first, [offset + stretch[2] for stretch in stretches], count, ends),
        bare=bare,
    )


def attributes_of(value: str, start: int, end: int, element: str) -> Iterator[Attribute]:
    """The attributes between a tag's name and its end; their names as they stand."""
    for found in _ATTRIBUTE.finditer(value, start, end):
        if not found[1]:  # a quoted string that is nobody's value: what it holds begins no attribute
            continue
        group = 2 if found[2] is not None else 3 if found[3] is not None else 4
        yield Attribute(found[1], *found.span(group), found[group], element, group == 4)


def _loose(value: str, start: int, end: int, element: str) -> Iterator[Attribute]:
    """What stands in a tag and is no attribute with a value (``alt="seen by "Ada Okafor""``), without a name."""
    at = start
    attributes = (found.span() for found in _ATTRIBUTE.finditer(value, start, end) if found[1])
    for first, last in (*attributes, (end, end)):
        for found in _LOOSE.finditer(value, at, first):
            yield Attribute("", *found.span(), found[0], element, bare=True)
        at = last


def _pieces(value: str, *, lenient: bool) -> Iterator[re.Match[str]]:
    """The markup of ``value``; inside of scripts and style sheets there is none.

    In XML there are no tags in comments, CDATA sections and instructions either. A browser finds the end of a
    comment in more ways than we know, so on a page (``lenient``) what is a tag there is one everywhere.
    """
    pattern = _LENIENT if lenient else _STRICT
    at = 0
    while at < len(value):
        resume = len(value)
        for piece in pattern.finditer(value, at):
            yield piece
            if piece[2] and not piece[1] and (close := _CLOSE.get(piece[2].lower())) and piece[3][-1:] != "/":
                if found := close.search(value, piece.end()):
                    resume = found.start()
                break
            if piece.lastindex is None and not lenient:  # a comment, or the like, begins or ends
                start = "<?" if piece[0].startswith("<?") else piece[0]
                pattern = _INSIDE.get(start, _STRICT)
                resume = piece.end()
                break
        at = resume


def _meaning(piece: re.Match[str], inline: frozenset[str], elements: frozenset[str] | None) -> str | None:
    """What a piece is read as: a character, ``_JOINT``, nothing (a gap), or None for text as it stands."""
    match piece.lastindex:
        case 3:
            name = piece[2].lower()
            if name in inline:
                return ""
            is_tag = _NAME.fullmatch(name) if elements is None else name in elements or ":" in name
            return _JOINT if is_tag else None
        case 4:
            return _character(piece[4]) or None
        case 5:
            return " "
        case _:
            return _JOINT


def _character(entity: str) -> str:
    """The one character that an entity stands for; empty where it is none."""
    if entity[1] != "#":
        char = html5.get(entity[1:], "")
        return char if len(char) == 1 and char != _JOINT else ""
    digits = entity[2:].rstrip(";")
    code = int(digits[1:], 16) if digits[0] in "xX" else int(digits)
    if 0x80 <= code < 0xA0:
        return unescape(f"&#{code};")  # browsers read these as windows-1252
    return chr(code) if 0x20 <= code < 0xD800 or 0xE000 <= code < 0x110000 or code == 9 else ""


def _without_dashes(text: str) -> str:
    """Two hyphens end a comment in XML, and one of ours may meet one that stands beside it."""
    text = _DASHES.sub("-", text)
    before = " " if not text or text[0] == "-" else ""
    return before + text + (" " if text.endswith("-") else "")
