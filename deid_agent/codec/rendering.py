"""A message in another syntax of the same standard: FHIR XML as FHIR JSON, HL7 v2 XML as HL7 v2.

The codec of the usual syntax reads the rendering, so that each rule exists once. All that it finds is mapped to bytes
of the original, character by character, and only the original is edited.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec.markup.readable import MarkupText
from deid_agent.model import Attachment, Dropped, MappedText, MessageError, Narrative, Reason, Site

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
        first, last = self._find(start)[0], self._find(end - 1)[0]
        if first is not last:
            raise _no_counterpart()
        return self._start(start), self._end(end)

    def covers(self, byte: int) -> bool:
        """True if a rendered byte is in a value."""
        found = self._values[self._last] if self._values else None
        if found is not None and found.start <= byte < found.end:
            return True
        at = bisect_right(self._begins, byte) - 1
        return at >= 0 and byte < self._values[at].end

    def values_in(self, start: int, end: int) -> list[Range]:
        """The ranges in the original of the values in rendered bytes ``[start, end)``."""
        first = bisect_right(self._begins, start - 1)
        inside = self._values[first : bisect_right(self._begins, end - 1)]
        return [(value.starts[0], value.ends[-1]) for value in inside]

    def _start(self, byte: int) -> int:
        value, char = self._find(byte)
        return value.starts[char]

    def _end(self, byte: int) -> int:
        value, char = self._find(byte - 1)
        return value.ends[char]

    def _find(self, byte: int) -> tuple[_Value, int]:
        found = self._values[self._last] if self._values else None
        if found is None or not found.start <= byte < found.end:
            self._last = max(bisect_right(self._begins, byte) - 1, 0)
            found = self._values[self._last] if self._values else None
            if found is None or not found.start <= byte < found.end:
                raise _no_counterpart()
        at = byte - found.start
        return found, at if found.chars is None else found.chars[at]

    # What a codec found in the rendering, in bytes of the original.

    def site(self, site: Site) -> Site:
        """The site in the original."""
        start, end = self.source_range(site.start, site.end)
        return site._replace(start=start, end=end)

    def text(self, mapped: MappedText) -> MarkupText:
        """The text in the original. Its message escapes replacements.

        A character that is no part of a value is structure there: a line break between values, or a separator.
        """
        starts, ends, breaks = array("Q"), array("Q"), set(mapped.separators)
        for n, (start, end) in enumerate(zip(mapped.starts, mapped.ends, strict=True)):
            if start == end or not self.covers(start):
                breaks.add(n)
                starts.append(ends[-1] if ends else 0)
                ends.append(starts[-1])
            else:
                starts.append(self._start(start))
                ends.append(self._end(end))
        lead = next((n for n in range(len(starts)) if n not in breaks), 0)
        for n in range(lead):
            starts[n] = ends[n] = starts[lead]
        comments = mapped.comments if isinstance(mapped, MarkupText) else ()
        bare = isinstance(mapped, MarkupText) and mapped.bare
        return MarkupText(mapped.text, starts, ends, frozenset(breaks), tuple(map(self._start, comments)), bare)

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
