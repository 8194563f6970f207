"""The text of an XHTML fragment, character by character mapped to where it stands.

Tags inside of a line are gaps, all others end a line; an entity is one character,
a stretch of white space is one space. What stands in comments and CDATA sections is
text too: people leave names there. One pass, linear: no alternative of the pattern
looks past the next ``<``, so markup that is never closed costs nothing.
Source: FHIR R5, 2.1.28 (Narrative); XHTML 1.0, Appendix A (entities).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from html.entities import html5

from deid_agent.codec.fhir.places import Places
from deid_agent.mapped import MappedText
from deid_agent.spans import Replacement

_PIECE = re.compile(
    r"""<(/?)([A-Za-z][\w:.-]*+)((?:"[^"<]*+"|'[^'<]*+'|[^'"<>])*+)>"""
    r"|(&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)"
    r"|([ \t\r\n]{2,}+|[\t\r\n])"
    r"|<!--|-->|<!\[CDATA\[|\]\]>|<\?|\?>|<![A-Za-z][^<>]*+>"
)
_JOINT = "\n"  # no entity or white space is read as one
_ATTRIBUTE = re.compile(r"""([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")


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


def read(
    value: str,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    offset: int = 0,
    inline: frozenset[str] = frozenset(),
    quoted: bool = False,
) -> tuple[MarkupText, tuple[Attribute, ...]]:
    """The text of ``value`` and the attributes of its tags.

    ``starts[offset + i]`` and ``ends[offset + i]`` say where ``value[i]`` stands in the
    message; ``quoted`` is for the value of an attribute.
    """
    text: list[str] = []
    stretches: list[tuple[int, int, int]] = []  # in the text, first and last character stood for
    joints: list[int] = []
    attributes: list[Attribute] = []
    meanings: dict[str, str | None] = {}
    at = count = literal = 0
    joined = True  # at the start of a line: another end of line, or space, says nothing
    for piece in _PIECE.finditer(value):
        markup = piece[0]
        if markup in meanings:
            char = meanings[markup]
        else:
            char = meanings[markup] = _meaning(piece, inline)
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
        if "=" in markup:
            attributes += _attributes(value, *piece.span(3))
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
        quoted,
    )
    return mapped, tuple(attributes)


def _meaning(piece: re.Match[str], inline: frozenset[str]) -> str | None:
    """What a piece is read as: a character, ``_JOINT``, nothing (a gap), or None for text as it stands."""
    match piece.lastindex:
        case 3:
            return "" if piece[2].lower() in inline else _JOINT
        case 4:
            return _character(piece[4]) or None
        case 5:
            return " "
        case _:
            return _JOINT


def _attributes(value: str, start: int, end: int) -> Iterator[Attribute]:
    for found in _ATTRIBUTE.finditer(value, start, end):
        group = 2 if found[2] is not None else 3
        yield Attribute(found[1].lower(), *found.span(group), found[group])


def _character(entity: str) -> str:
    """The one character that an entity stands for; empty where it is none."""
    if entity[1] != "#":
        char = html5.get(entity[1:], "")
        return char if len(char) == 1 and char != _JOINT else ""
    code = int(entity[3:-1], 16) if entity[2] in "xX" else int(entity[2:-1])
    return chr(code) if 0x20 <= code < 0xD800 or 0xE000 <= code < 0x110000 or code == 9 else ""
