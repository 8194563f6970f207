"""A message in another syntax of the same standard: FHIR XML as FHIR JSON, HL7 v2 XML as HL7 v2.

The codec of the usual syntax reads the rendering, so that each rule exists once. All that it finds is mapped to bytes
of the original, character by character, and only the original is edited.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from deid_agent.codec.charsets import slice_offsets
from deid_agent.codec.markup.document import MarkupMessage, has_closing_bracket
from deid_agent.codec.markup.elements import XmlTree, read_remarks
from deid_agent.codec.markup.readable import MarkupText
from deid_agent.model import Attachment, Dropped, MappedText, Message, MessageError, Narrative, Reason, Site

Range = tuple[int, int]


@dataclass(slots=True)
class _Value:
    """A value: rendered bytes ``[start, end)``, and the range of each of its characters in the original.

    ``chars`` is the index of the character of each rendered byte; None if each character is one byte.
    """

    start: int
    end: int
    chars: Sequence[int] | None
    starts: Sequence[int] = field(repr=False)
    ends: Sequence[int] = field(repr=False)

    def char(self, byte: int) -> int:
        """The index of the character of a rendered byte."""
        at = byte - self.start
        return at if self.chars is None else self.chars[at]


@dataclass(frozen=True, slots=True)
class _Unit:
    """A member or an item: its rendered bytes, and the bytes of the original that go with it."""

    start: int
    end: int
    source: Range


class Rendering:
    """Writes a rendering and maps its bytes to those of the original."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._values: list[_Value] = []
        self._begins: list[int] = []
        self._units: list[_Unit] = []
        self._last = 0

    @property
    def raw(self) -> bytes:
        """The rendering."""
        return bytes(self._out)

    def __len__(self) -> int:
        return len(self._out)

    def write(self, data: bytes) -> None:
        """Write bytes that have no counterpart in the original."""
        self._out += data

    def write_value(self, data: bytes, sizes: Iterable[int] | None, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Write a value whose character ``i`` is bytes ``[starts[i], ends[i])`` of the original.

        ``sizes`` are the numbers of rendered bytes of each character; None if each is one byte.
        """
        if data:
            start = len(self._out)
            chars = None if sizes is None else array("L", (n for n, size in enumerate(sizes) for _ in range(size)))
            self._begins.append(start)
            self._values.append(_Value(start, start + len(data), chars, starts, ends))
            self._out += data

    def add_unit(self, start: int, source: Range) -> None:
        """Note that the rendering from ``start`` on is a member or an item with the bytes ``source``."""
        self._units.append(_Unit(start, len(self._out), source))

    def source_range(self, start: int, end: int) -> Range:
        """The bytes of the original for rendered bytes ``[start, end)``.

        Raises ``MessageError(UNSUPPORTED)`` if they are not in values.
        """
        value = self._find(start)
        if not start < end <= value.end:
            raise _no_counterpart()
        return value.starts[value.char(start)], value.ends[value.char(end - 1)]

    def covers(self, byte: int) -> bool:
        """True if a rendered byte is in a value."""
        return self._value_at(byte) is not None

    def values_in(self, start: int, end: int) -> list[Range]:
        """The ranges in the original of the values in rendered bytes ``[start, end)``."""
        first = bisect_right(self._begins, start - 1)
        inside = self._values[first : bisect_right(self._begins, end - 1)]
        return [(value.starts[0], value.ends[-1]) for value in inside]

    def _start(self, byte: int) -> int:
        value = self._find(byte)
        return value.starts[value.char(byte)]

    def _value_at(self, byte: int) -> _Value | None:
        """The value with a rendered byte; None if the byte is structure. Neighbors ask for the same value."""
        found = self._values[self._last] if self._values else None
        if found is not None and found.start <= byte < found.end:
            return found
        self._last = max(bisect_right(self._begins, byte) - 1, 0)
        found = self._values[self._last] if self._values else None
        return found if found is not None and found.start <= byte < found.end else None

    def _find(self, byte: int) -> _Value:
        found = self._value_at(byte)
        if found is None:
            raise _no_counterpart()
        return found

    # What a codec found in the rendering, in bytes of the original.

    def site(self, site: Site) -> Site:
        """The site in the original."""
        start, end = self.source_range(site.start, site.end)
        return site._replace(start=start, end=end)

    def text(self, mapped: MappedText) -> MarkupText:
        """The text in the original. Its message escapes replacements.

        A character that is no part of a value is structure there: a line break between values, or a separator.
        """
        if (whole := self._plain_offsets(mapped)) is not None:
            return MarkupText(mapped.text, *whole)
        starts, ends, breaks = array("Q"), array("Q"), set(mapped.separators)
        value: _Value | None = None
        for n, (start, end) in enumerate(zip(mapped.starts, mapped.ends, strict=True)):
            if value is None or not value.start <= start < value.end:
                value = self._value_at(start)
            if start == end or value is None:
                breaks.add(n)
                starts.append(ends[-1] if ends else 0)
                ends.append(starts[-1])
            elif end > value.end:
                raise _no_counterpart()
            else:
                starts.append(value.starts[value.char(start)])
                ends.append(value.ends[value.char(end - 1)])
        lead = next((n for n in range(len(starts)) if n not in breaks), 0)
        for n in range(lead):
            starts[n] = ends[n] = starts[lead]
        comments = mapped.comments if isinstance(mapped, MarkupText) else ()
        bare = isinstance(mapped, MarkupText) and mapped.bare
        return MarkupText(mapped.text, starts, ends, frozenset(breaks), tuple(map(self._start, comments)), bare)

    def _plain_offsets(self, mapped: MappedText) -> tuple[Sequence[int], Sequence[int]] | None:
        """The offsets of a text that is a part of one value and has one byte for each character; else None."""
        if not isinstance(mapped.starts, range) or not mapped.text or mapped.separators:
            return None
        first, end = mapped.starts[0], mapped.starts[0] + len(mapped.text)
        value = self._value_at(first)
        if value is None or value.chars is not None or end > value.end or mapped.starts.step != 1:
            return None
        span = first - value.start, end - value.start
        return slice_offsets(value.starts, *span), slice_offsets(value.ends, *span)

    def narrative(self, narrative: Narrative) -> Narrative:
        """The narrative or leaf in the original."""
        return Narrative(narrative.path, self.text(narrative.mapped), narrative.role)

    def attachment(self, found: Attachment, charset: str) -> Attachment:
        """The attachment in the original, with the ranges of its siblings and its media type in ``charset``."""
        start, end = self.source_range(found.start, found.end)
        return replace(
            found,
            start=start,
            end=end,
            size=self._optional(found.size),
            digest=self._optional(found.digest),
            media=self._optional(found.media),
            plain=found.plain.decode("ascii").encode(charset),
            parts=tuple(self.source_range(*part) for part in found.parts),
            labels=tuple(self.source_range(*label) for label in found.labels),
        )

    def _optional(self, span: Range | None) -> Range | None:
        return None if span is None else self.source_range(*span)

    def dropped(self, ranges: Iterable[Dropped]) -> Iterator[Dropped]:
        """The ranges of the original for dropped members and items. A range inside another one is left out."""
        units = sorted(self._units, key=lambda unit: unit.start)
        begins = [unit.start for unit in units]
        found = []
        for each in ranges:
            for unit in units[bisect_right(begins, each.start - 1) :]:
                if unit.start >= each.end:
                    break
                if unit.end <= each.end:
                    found.append(Dropped(each.path, *unit.source))
        yield from outermost(found)


def _no_counterpart() -> MessageError:
    return MessageError(Reason.UNSUPPORTED, "byte 0", "a value that is several elements")


def outermost(found: Iterable[Dropped]) -> Iterator[Dropped]:
    """The ranges that are in no other range, in byte order."""
    end = 0
    for each in sorted(found, key=lambda each: (each.start, -each.end)):
        if each.end > end:
            yield each
            end = each.end


# The message of an original, with all that its rendering does not show.


def build_message(
    tree: XmlTree,
    raw: bytes,
    found: Message,
    sites: Iterable[Site],
    narratives: Iterable[Narrative],
    attachments: Iterable[Attachment],
    *,
    lines: bool = False,
) -> MarkupMessage:
    """The message ``raw``: ``found`` in its rendering, with the values in bytes of the original.

    For ``lines`` see ``MarkupMessage``.
    """
    return MarkupMessage(
        raw,
        found.identity,
        tuple(found.patients),
        tuple(sorted(sites, key=attrgetter("start"))),
        tuple(sorted(narratives, key=lambda narrative: narrative.mapped.starts[0])),
        tuple(sorted(attachments, key=attrgetter("start"))),
        tree.view.charset,
        has_closing_bracket(tree.view),
        lines,
        found.sexes,
    )


def read_beside(tree: XmlTree, loose: Iterable[Narrative]) -> list[Narrative]:
    """Text that is no value: comments and instructions, and ``loose`` text between elements."""
    return [each for each in (*loose, *read_remarks(tree)) if each.mapped.text.strip()]


def drop_beside(tree: XmlTree, loose: Iterable[Narrative]) -> Iterator[Dropped]:
    """The text that is no value as ranges that are not published."""
    for _, token in tree.remarks:
        yield Dropped("?/comment()", *tree.view.span(token.start, token.end))
    for each in loose:
        yield Dropped(each.path, each.mapped.starts[0], each.mapped.ends[-1])
