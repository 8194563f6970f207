"""Where characters stand, kept by stretches: a long narrative costs what its tags and escapes cost."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class Places(Sequence[int]):
    """One number per character. Stretch ``k`` begins at character ``first[k]`` with ``where[k]`` and sizes up by one.

    ``through`` reads the result as an index of another sequence: text of markup to markup to bytes.
    """

    first: Sequence[int]
    where: Sequence[int]
    size: int
    through: Sequence[int] | None = None

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        many = self.through is not None and self.size > 64
        below = list(self.through or ()) if many else self.through
        for stretch, start in enumerate(self.first):
            end = self.first[stretch + 1] if stretch + 1 < len(self.first) else self.size
            shift = self.where[stretch] - start
            for index in range(start + shift, end + shift):
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
        found = self.where[stretch] + index - self.first[stretch]
        return found if self.through is None else self.through[found]
