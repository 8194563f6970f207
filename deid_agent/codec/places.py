"""Where characters stand, kept by stretches: a long narrative costs what its tags and escapes cost."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class Places(Sequence[int]):
    """One number per character. Stretch ``k`` begins at character ``first[k]`` with ``where[k]`` and sizes up by one.

    ``through`` reads the result as an index of another sequence: text of markup to markup to bytes.
    ``steps`` is by how much each stretch sizes up where that is not one (characters of several bytes).
    """

    first: Sequence[int]
    where: Sequence[int]
    size: int
    through: Sequence[int] | None = None
    steps: Sequence[int] | None = None

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        many = self.through is not None and self.size > 64
        below = list(self.through or ()) if many else self.through
        for stretch, start in enumerate(self.first):
            end = self.first[stretch + 1] if stretch + 1 < len(self.first) else self.size
            step = 1 if self.steps is None else self.steps[stretch]
            at = self.where[stretch]
            for index in range(at, at + (end - start) * step, step):
                yield index if below is None else below[index]

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if index < 0:
            index += self.size
        if not 0 <= index < self.size:
            raise IndexError("no such character")
        stretch = bisect_right(self.first, index) - 1
        step = 1 if self.steps is None else self.steps[stretch]
        found = self.where[stretch] + (index - self.first[stretch]) * step
        return found if self.through is None else self.through[found]


def part(places: Sequence[int], start: int, end: int) -> Sequence[int]:
    """``places[start:end]`` without a copy."""
    if isinstance(places, range):
        return places[start:end]
    return Places((0,), (start,), end - start, places)
