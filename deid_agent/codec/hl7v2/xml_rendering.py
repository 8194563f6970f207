"""HL7 v2 XML as HL7 v2: the rendering that ``Hl7Codec`` reads, with each value mapped to the XML.

The names of elements end with the number of a field, a component or a subcomponent (``PID.5``, ``XPN.1``, ``FN.1``), a
repeated field is a repetition, and all elements without a segment's name are groups. The rendering always has the usual
separators and UTF-8. A name, a number or a nesting that HL7 v2 cannot express is refused, so that no value is lost.
Source: HL7 Version 2: XML Encoding Syntax, release 2, chapters 2 and 3 (escape sequences: ``<escape V=".br"/>``).
"""

import re
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from deid_agent.codec.hl7v2.charset import is_charset_name
from deid_agent.codec.hl7v2.structure import DEFAULT_SEPARATORS, HEADERS
from deid_agent.codec.markup.document import MarkupView, XmlPart, XmlToken
from deid_agent.codec.markup.elements import XmlElement, XmlTree, read_attribute, read_token
from deid_agent.codec.rendering import Rendering
from deid_agent.model import LeafRole, MappedText, MessageError, Narrative, Reason

_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}")
_FIELD = re.compile(r"([A-Z][A-Z0-9]{2})\.[1-9][0-9]{0,2}")
_PART = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\.([1-9][0-9]{0,2})")
_STRUCTURE = re.compile(r"(?:ACK|[A-Z]{3}_[A-Z0-9]{2,3}|V[0-9]{2,3})(?:\.([A-Z0-9_]{1,60}))?")
_REPEATED = re.compile(r"[0-9]{1,3}\Z")
_DATATYPE = re.compile(r"(?:[A-Z][A-Z0-9]{1,2}|UNKNOWN)\.[0-9]+")
_ESCAPE = re.compile(r"[A-Za-z0-9.+\- ]{1,4000}")
_SEPARATORS = re.compile(r"[!-/:-@\[-`{-~]{1,6}")
_SPACES = frozenset({("xml:space", "preserve"), ("xml:space", "default")})
_ATTRIBUTES = frozenset({"space", "lang", "type", "Name", "LongName", "Type", "Table", "Item", "Length", "Usage", "V"})
_ESCAPES = {
    "|": b"\\F\\",
    "^": b"\\S\\",
    "&": b"\\T\\",
    "~": b"\\R\\",
    "\\": b"\\E\\",
    "\n": b"\\.br\\",
    "\r": b"\\.br\\",
    "\t": b" ",
    "\x0b": b" ",
    "\x1c": b" ",
}
_PLAIN = re.compile(r"[ !-%'-\[\]_-}]*")
"""ASCII without separators, escapes and line ends."""
_CHARSET_FIELD = 18
_GROWTH, _SPARE = 4, 1_000_000
"""The most bytes of a rendering for each character, and in addition: ``<PV1.999/>`` is a thousand separators."""
_MARKS = b"|^~&"
"""The separators of fields, components, repetitions and subcomponents."""


@dataclass(slots=True)
class _Written:
    """A value while it is written: its bytes, and of each character the number of bytes and the range in the XML."""

    data: bytearray = field(default_factory=bytearray, repr=False)
    sizes: list[int] = field(default_factory=list, repr=False)
    starts: list[int] = field(default_factory=list, repr=False)
    ends: list[int] = field(default_factory=list, repr=False)

    def add(self, piece: bytes, start: int, end: int) -> None:
        """Add the bytes of one character."""
        self.data += piece
        self.sizes.append(len(piece))
        self.starts.append(start)
        self.ends.append(end)


class Hl7XmlRenderer:
    """Renders one message; used once. ``loose`` is text that is no value, ``names`` are unusual names.

    ``groups`` are the usual names of groups.
    """

    def __init__(self, tree: XmlTree, groups: Container[str]) -> None:
        self.rendering = Rendering()
        self.loose: list[Narrative] = []
        self.names: list[Narrative] = []
        self._view: MarkupView = tree.view
        self._noted = sorted(token.start for _, token in tree.remarks)
        self._root = tree.root
        self._groups = groups
        self._longest = _GROWTH * len(tree.view.text) + _SPARE

    def message(self) -> None:
        """Write all segments. Raises ``MessageError``: MALFORMED if the first is no header, UNSUPPORTED."""
        segments = list(self._segments(self._root))
        if not segments or segments[0][1].name not in HEADERS:
            raise MessageError(Reason.MALFORMED, "byte 0", "neither MSH, FHS nor BHS is the first segment")
        for name, segment in segments:
            self._segment(name, segment)

    def _segments(self, group: XmlElement) -> Iterator[tuple[str, XmlElement]]:
        """The segments of a group and of the groups in it, with their names.

        Some writers number the name of a repeated segment (``V251.NTE10``); its fields have the name.
        """
        self._note_beside(group, "?")
        self._note_group(group)
        for child in group.children:
            if _SEGMENT.fullmatch(child.name):
                yield child.name, child
            elif child.children and (first := _FIELD.fullmatch(child.children[0].name)):
                self._note_group(child)
                yield first[1], child
            elif _PART.fullmatch(child.name):
                raise self._refused(child, "a field outside a segment")
            else:
                yield from self._segments(child)

    def _segment(self, name: str, element: XmlElement) -> None:
        out = self.rendering
        self._note_beside(element, name)
        fields = self._numbered(element, f"{name}.")
        start = len(out)
        header = name in HEADERS
        first = 1
        at = element.first if element.name == name else element.children[0].first
        mapped = self._view.mapped(at, at + len(name))
        out.write_value(name.encode(), None, mapped.starts, mapped.ends)
        if header:
            self._check_separators(fields, name)
            marks = DEFAULT_SEPARATORS
            out.write(f"|{marks.component}{marks.repetition}{marks.escape}{marks.subcomponent}".encode())
            first = 3
        last = max(fields, default=0)
        if name == "MSH":
            self._note_charset(fields.pop(_CHARSET_FIELD, []))
            last = max(last, _CHARSET_FIELD)
        for number in range(first, last + 1):
            out.write(b"|")
            if name == "MSH" and number == _CHARSET_FIELD:
                out.write(b"UNICODE UTF-8")
            for index, repetition in enumerate(fields.get(number, ())):
                out.write(b"~" if index else b"")
                self._composite(repetition, f"{name}-{number}", 1)
        out.add_unit(start, self._view.span(element.start, element.end))
        out.write(b"\r")

    def _numbered(self, element: XmlElement, prefix: str) -> dict[int, list[XmlElement]]:
        """The children by the number that ends their name."""
        found: dict[int, list[XmlElement]] = {}
        for child in element.children:
            named = _PART.fullmatch(child.name)
            if named is None or not child.name.startswith(prefix):
                raise self._refused(child, "a name that is no field or component of its element")
            found.setdefault(int(named[1]), []).append(child)
            if not prefix:
                self._note_name(child, _DATATYPE)
        return found

    def _composite(self, element: XmlElement, path: str, level: int) -> None:
        """Write a field (level 1), a component (2) or a subcomponent (3)."""
        out = self.rendering
        start = len(out)
        if start > self._longest:
            raise MessageError(Reason.RESOURCE, path, "numbers of fields and components that are too high")
        if any(child.name != "escape" for child in element.children):
            self._note_beside(element, path)
            parts = self._numbered(element, "")
            if level == len(_MARKS) - 1:  # a time in a range of times, of which HL7 v2 has the first part alone
                if max(parts) > 1 or len(parts[1]) > 1:
                    raise self._refused(element, "nested deeper than a subcomponent")
                self._composite(parts[1][0], path, level)
                return
            for number in range(1, max(parts) + 1):
                out.write(_MARKS[2 * level - 1 : 2 * level] if number > 1 else b"")
                found = parts.get(number, [])
                if len(found) > 1:
                    raise self._refused(found[1], "a component that occurs twice")
                if found:
                    self._composite(found[0], f"{path}.{number}", level + 1)
        else:
            self._note_attributes(element, path)
            self._value(element)
        if len(out) > start:
            out.add_unit(start, self._view.span(element.start, element.end))

    def _value(self, element: XmlElement) -> None:
        """Write the text of an element with its escapes."""
        pieces: list[XmlToken | XmlElement] = [*element.texts, *element.children]
        pieces.sort(key=attrgetter("start"))
        if len(pieces) > 1 and self._has_note(pieces[0].end, pieces[-1].start):
            raise self._refused(element, "a comment in a value")
        if len(pieces) > 1 and any(isinstance(each, XmlToken) and each.part is XmlPart.CDATA for each in pieces):
            raise self._refused(element, "a CDATA section beside other text in a value")
        value = _Written()
        for number, piece in enumerate(pieces, start=1):
            if isinstance(piece, XmlElement):
                self._add_escape(value, piece)
            else:
                _add_text(value, read_token(self._view, piece), first=number == 1, last=number == len(pieces))
        plain = all(size == 1 for size in value.sizes)
        self.rendering.write_value(bytes(value.data), None if plain else value.sizes, value.starts, value.ends)

    def _has_note(self, start: int, end: int) -> bool:
        """True if a comment or an instruction is between two characters."""
        at = bisect_left(self._noted, start)
        return at < len(self._noted) and self._noted[at] < end

    def _add_escape(self, value: _Written, element: XmlElement) -> None:
        """An escape sequence: one character, whose bytes are the whole element."""
        given = element.attribute("V")
        if given is None or element.texts or element.children or len(element.attributes) > 1:
            raise self._refused(element, "an escape without its attribute")
        if not _ESCAPE.fullmatch(given.value):
            raise self._refused(element, "an escape that HL7 does not have")
        value.add(f"\\{given.value}\\".encode(), *self._view.span(element.start, element.end))

    def _check_separators(self, fields: dict[int, list[XmlElement]], name: str) -> None:
        """The separators of the header, which the rendering does not use, are no text."""
        for number in (1, 2):
            for element in fields.get(number, ()):
                text = "".join(read_token(self._view, token).text for token in element.texts).strip()
                if element.children or (text and not _SEPARATORS.fullmatch(text)):
                    raise MessageError(Reason.MALFORMED, f"{name}-{number}", "letters or controls cannot separate")
                self._note_attributes(element, f"{name}-{number}")

    def _note_charset(self, elements: Sequence[XmlElement]) -> None:
        """MSH-18 names the charset of another syntax; anything but a name is text."""
        for element in elements:
            for each in (element, *element.children):
                self._note_attributes(each, "MSH-18")
                tokens = [read_token(self._view, token) for token in each.texts]
                self.loose += (Narrative("MSH-18", text) for text in tokens if not is_charset_name(text.text.strip()))
                if each is not element and each.children:
                    raise self._refused(each, "nested deeper than a component")

    def _note_group(self, element: XmlElement) -> None:
        """Keep the name of a group or of a segment, unless the standard has it, with or without a number."""
        found = _STRUCTURE.fullmatch(element.name)
        group = found[1] if found else ""
        if group is not None and group not in self._groups and _REPEATED.sub("", group) not in self._groups:
            self._keep_name(element)

    def _note_name(self, element: XmlElement, usual: re.Pattern[str]) -> None:
        if not usual.fullmatch(element.name):
            self._keep_name(element)

    def _keep_name(self, element: XmlElement) -> None:
        span = element.first, element.first + len(element.name)
        self.names.append(Narrative("?", self._view.mapped(*span), LeafRole.KEY))

    def _note_beside(self, element: XmlElement, path: str) -> None:
        """Keep the text and the attributes of an element that has no value of its own."""
        self.loose += (Narrative(f"{path}/text()", read_token(self._view, token)) for token in element.texts)
        self._note_attributes(element, path)

    def _note_attributes(self, element: XmlElement, path: str) -> None:
        for each in element.attributes:
            if each.name.rpartition(":")[2] not in _ATTRIBUTES:
                at = self._view.text.rindex(each.name, 0, each.start)
                self.names.append(Narrative("?", self._view.mapped(at, at + len(each.name)), LeafRole.KEY))
            if each.value and (each.name, each.value) not in _SPACES:
                self.loose.append(Narrative(f"{path}/@?", read_attribute(self._view, each)))

    def _refused(self, element: XmlElement, detail: str) -> MessageError:
        return MessageError(Reason.UNSUPPORTED, f"byte {self._view.starts[element.start]}", detail)


def _add_text(value: _Written, mapped: MappedText, *, first: bool, last: bool) -> None:
    """Add a text without the white space around the value."""
    text = mapped.text
    a = len(text) - len(text.lstrip()) if first else 0
    b = len(text.rstrip()) if last else len(text)
    for char, start, end in list(zip(text, mapped.starts, mapped.ends, strict=True))[a:b]:
        value.add(_ESCAPES.get(char) or char.encode(), start, end)
