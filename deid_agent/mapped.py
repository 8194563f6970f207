"""Text that stands in a message in another form: a map from characters to raw bytes.

One mechanism for HL7 escapes, lines spread over many OBX, JSON escapes and
markup: recognizers read ``text``, the writer gets byte ranges back.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.spans import Replacement, splice


@dataclass(frozen=True, slots=True)
class MappedText:
    """``text[i]`` stands for raw bytes ``[starts[i], ends[i])``.

    ``joints`` are characters that stand for structure (a segment break between
    two OBX, a repetition separator): they are read as white space and never written over.
    Bytes between ``ends[i]`` and ``starts[i + 1]`` (a highlight escape, a tag) are kept too.
    Neighbours with one and the same byte range are an atom (several characters of one escape, a run between two
    charset shifts): bytes that can only be rewritten as a whole.
    """

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]
    joints: frozenset[int] = frozenset()

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """Raw byte ranges with their new text, for replacements in characters of ``text``.

        A replacement over several fragments is dealt out line by line where it has as
        many lines as fragments, else it stands whole in the first and the others become empty.
        One that touches an atom rewrites all of it, its other characters as they were.
        """
        for item in self._whole(replacements):
            runs = list(self._runs(item.start, item.end))
            lines = item.text.split("\n")
            if len(lines) != len(runs):
                lines = [item.text.replace("\n", " ") if len(runs) > 1 else item.text]
                lines += [""] * (len(runs) - 1)
            for (first, last), line in zip(runs, lines, strict=True):
                yield self.starts[first], self.ends[last], line

    def _whole(self, replacements: Iterable[Replacement]) -> Iterator[Replacement]:
        """The replacements, widened to the atoms they touch; those that meet in one atom become one."""
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
        """True where character ``i`` shares its bytes with the one before."""
        if i == 0 or self.starts[i] == self.ends[i]:
            return False
        return self.starts[i] == self.starts[i - 1] and self.ends[i] == self.ends[i - 1]

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Stretches of characters (first and last index) whose raw bytes touch."""
        first: int | None = None
        for i in range(start, end):
            if i in self.joints:
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
