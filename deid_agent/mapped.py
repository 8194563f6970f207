"""Text that stands in a message in another form: a map from characters to raw bytes.

One mechanism for HL7 escapes, lines spread over many OBX, JSON escapes and
markup: recognizers read ``text``, the writer gets byte ranges back.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.spans import Replacement


@dataclass(frozen=True, slots=True)
class MappedText:
    """``text[i]`` stands for raw bytes ``[starts[i], ends[i])``.

    ``joints`` are characters that stand for structure (a segment break between
    two OBX, a repetition separator): they are read as white space and never written over.
    Bytes between ``ends[i]`` and ``starts[i + 1]`` (a highlight escape, a tag) are kept too.
    """

    text: str = field(repr=False)
    starts: Sequence[int]
    ends: Sequence[int]
    joints: frozenset[int] = frozenset()

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        """Raw byte ranges with their new text, for replacements in characters of ``text``.

        A replacement over several fragments is dealt out line by line where it has as
        many lines as fragments, else it stands whole in the first and the others become empty.
        """
        for item in replacements:
            runs = list(self._runs(item.start, item.end))
            lines = item.text.split("\n")
            if len(lines) != len(runs):
                lines = [item.text.replace("\n", " ") if len(runs) > 1 else item.text]
                lines += [""] * (len(runs) - 1)
            for (first, last), line in zip(runs, lines, strict=True):
                yield self.starts[first], self.ends[last], line

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
            elif self.starts[i] != self.ends[i - 1]:
                yield first, i - 1
                first = i
        if first is not None:
            yield first, end - 1
