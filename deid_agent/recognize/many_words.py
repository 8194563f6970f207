"""The places of many words in a text, in time that does not depend on their number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class ManyWords:
    """Finds ``words``, which are not empty, anywhere in a text. Time is linear in the text, for up to 48 lengths."""

    words: frozenset[str] = field(repr=False)

    @classmethod
    def of(cls, words: Iterable[str]) -> "ManyWords":
        """The search for these words."""
        return cls(frozenset(words))

    def occur_in(self, text: str) -> bool:
        """Return true if one of the words is in the text."""
        return next(iter(self._hits(text)), None) is not None

    def places(self, text: str) -> Mapping[str, list[int]]:
        """The places of each word that is in the text, in order; they may overlap."""
        found: dict[str, list[int]] = {}
        for at, word in self._hits(text):
            found.setdefault(word, []).append(at)
        return found

    def _hits(self, text: str) -> Iterable[tuple[int, str]]:
        words, lengths, begins = self.words, self._lengths, self._begins
        if not lengths:
            return
        least = lengths[0]
        for at in range(len(text) - least + 1):
            if text[at : at + least] in begins:
                for length in lengths:
                    if (piece := text[at : at + length]) in words and len(piece) == length:
                        yield at, piece

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted({len(word) for word in self.words}))

    @cached_property
    def _begins(self) -> frozenset[str]:
        return frozenset(word[: self._lengths[0]] for word in self.words)
