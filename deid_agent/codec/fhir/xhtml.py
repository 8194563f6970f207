"""The text of an XHTML fragment, character by character mapped to where it stands.

Tags inside of a line are gaps, all others end a line; an entity is one
character, a stretch of white space is one space. Linear: after a few tags that
are never closed the rest is read as text.
Source: FHIR R5, 2.1.28 (Narrative); XHTML 1.0, Appendix A (entities).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from html.entities import html5

from deid_agent.mapped import MappedText
from deid_agent.spans import Replacement

_TAG = re.compile(r"""<(/?)([A-Za-z][\w:.-]*+)((?:"[^"]*+"|'[^']*+'|[^'"<>])*+)>""")
_ATTRIBUTE = re.compile(r"""([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ODD = re.compile(_ENTITY.pattern + r"|[ \t\r\n]{2,}+|[\t\r\n]")
_PATIENCE = 16  # tags that are never closed: each may cost one look at the rest of the fragment
_OTHER = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">"))


@dataclass(frozen=True, slots=True)
class MarkupText(MappedText):
    """Mapped text inside of markup: what is written over it leaves with ``& < >`` as entities."""

    quoted: bool = False

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """As ``MappedText.place``; inside of an attribute quotes become entities too."""
        for start, end, text in MappedText.place(self, replacements):
            yield start, end, escape(text, quote=self.quoted)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's value: characters ``[start, end)`` of the fragment."""

    name: str
    start: int
    end: int
    value: str = field(repr=False)


@dataclass(slots=True)
class _Page:
    """The text so far; offsets in characters of the fragment."""

    starts: Sequence[int]
    ends: Sequence[int]
    text: list[str] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    joints: set[int] = field(default_factory=set)
    literal: int = 0

    def plain(self, value: str, start: int, end: int) -> None:
        self.text.append(value[start:end])
        self.first.extend(self.starts[start:end])
        self.last.extend(self.ends[start:end])

    def one(self, char: str, start: int, end: int) -> None:
        self.text.append(char)
        self.first.append(self.starts[start])
        self.last.append(self.ends[end - 1])

    def joint(self, start: int, end: int) -> None:
        if self.first and len(self.first) - 1 not in self.joints:
            self.joints.add(len(self.first))
            self.one("\n", start, end)

    def words(self, value: str, start: int, end: int) -> None:
        at = start
        for odd in (_ENTITY if self.literal else _ODD).finditer(value, start, end):
            self.plain(value, at, odd.start())
            char = _char(odd[0])
            if char:
                self.one(char, odd.start(), odd.end())
            else:
                self.plain(value, odd.start(), odd.end())
            at = odd.end()
        self.plain(value, at, end)


def read(
    value: str, starts: Sequence[int], ends: Sequence[int], inline: frozenset[str]
) -> tuple[MarkupText, tuple[Attribute, ...]]:
    """The text of ``value`` and the attributes of its tags.

    ``starts`` and ``ends`` say where each character of ``value`` stands in the message.
    """
    page = _Page(starts, ends)
    attributes: list[Attribute] = []
    at = search = 0
    patience = _PATIENCE
    while patience and (here := value.find("<", search)) >= 0:
        if tag := _TAG.match(value, here):
            page.words(value, at, here)
            if tag[2].lower() not in inline:
                page.joint(here, tag.end())
            if tag[2].lower() == "pre":
                page.literal += -1 if tag[1] else 1
            attributes += _attributes(value, *tag.span(3))
            at = search = tag.end()
        elif inside := _inside(value, here):
            page.words(value, at, here)
            page.joint(here, here + 1)
            page.words(value, *inside)
            at = search = value.index(">", inside[1]) + 1
            page.joint(at - 1, at)
        else:
            search = here + 1
            patience -= value[search : search + 1].isalpha() or value[search : search + 1] in {"!", "?", "/"}
    page.words(value, at, len(value))
    return MarkupText("".join(page.text), page.first, page.last, frozenset(page.joints)), tuple(attributes)


def inner(value: str, starts: Sequence[int], ends: Sequence[int]) -> MarkupText:
    """The text of one attribute's value."""
    page = _Page(starts, ends)
    page.words(value, 0, len(value))
    return MarkupText("".join(page.text), page.first, page.last, quoted=True)


def _inside(value: str, here: int) -> tuple[int, int] | None:
    """The content of a comment, CDATA section or instruction: people leave names in those too."""
    for opening, closing in _OTHER:
        if value.startswith(opening, here):
            end = value.find(closing, here + len(opening))
            return None if end < 0 else (here + len(opening), end)
    return None


def _attributes(value: str, start: int, end: int) -> Iterator[Attribute]:
    for found in _ATTRIBUTE.finditer(value, start, end):
        group = 2 if found[2] is not None else 3
        yield Attribute(found[1].lower(), *found.span(group), found[group])


def _char(found: str) -> str:
    """The one character that an entity or white space stands for; empty where it is none."""
    if found[0] != "&":
        return " "
    if found[1] != "#":
        char = html5.get(found[1:], "")
        return char if len(char) == 1 else ""
    code = int(found[3:-1], 16) if found[2] in "xX" else int(found[2:-1])
    return chr(code) if 0x20 <= code < 0xD800 or 0xE000 <= code < 0x110000 or code in {9, 10, 13} else ""
