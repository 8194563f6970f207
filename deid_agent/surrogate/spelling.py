"""Words that are one typing error apart."""

from typing import Final

_LONGEST_SPELT: Final = 48
_MOST_ALIKE: Final = 64
"""Words kept for one form: more share it only if somebody made them up."""


class SpellingIndex:
    """Words, to find those one typing error away from another word without comparing it with all of them.

    Two such words have one form in common: the word, or the word without one letter. Words of more than
    ``_LONGEST_SPELT`` letters are left out, because their forms take the square of their length.
    """

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._near: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, word: str) -> None:
        """Add a word."""
        if word in self._order or len(word) > _LONGEST_SPELT:
            return
        self._order[word] = len(self._order)
        for form in _forms_of(word):
            alike = self._near.setdefault(form, [])
            if len(alike) < _MOST_ALIKE:
                alike.append(word)

    def find(self, word: str) -> list[str]:
        """The words with the same first letter that are one typing error away, in the order in which they came."""
        if not word or len(word) > _LONGEST_SPELT:
            return []
        near = {other for form in _forms_of(word) for other in self._near.get(form, ())}
        found = [other for other in near if other[0] == word[0] and one_edit_apart(other, word)]
        return sorted(found, key=self._order.__getitem__)


def _forms_of(word: str) -> set[str]:
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def one_edit_apart(a: str, b: str) -> bool:
    """True if one insertion, deletion, substitution or swap of neighbours turns ``a`` into ``b``."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    left, right = a[start:], b[start:]
    if len(left) == len(right):
        swapped = left[1::-1] + left[2:] if len(left) > 1 else left
        return left[1:] == right[1:] or swapped == right
    return left[1:] == right or left == right[1:]
