"""The bounds of the work on one message that do not follow from its size: reading texts, and searching for names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from deid_agent.model import CATEGORY, Fact, MessageError, PhiCategory, Reason

MAX_TEXTS: Final = 20_000
"""Different texts of a message: each costs up to a millisecond, however short it is. Equal texts are read once."""
MAX_CHARACTERS: Final = 3_000_000
"""Characters of all different texts: about 750 pages."""
MAX_SEARCHES: Final = 2_000_000_000
"""Names in the fields of a message times the characters of its texts: 10,000 names and 200,000 characters."""


@dataclass(slots=True)
class TextBudget:
    """Counts the texts of one message. Every method raises ``MessageError(RESOURCE)`` past a bound."""

    _seen: set[str] = field(default_factory=set, repr=False)
    _names: dict[int, int] = field(default_factory=dict, repr=False)
    _kept: list[Sequence[Fact]] = field(default_factory=list, repr=False)
    _characters: int = 0
    _searches: int = 0

    def add(self, path: str, text: str, facts: Sequence[Fact]) -> None:
        """Count a text that is read with these facts."""
        self._searches += (1 + len(text)) * self._count_names(facts)
        if self._searches > MAX_SEARCHES:
            raise MessageError(Reason.RESOURCE, path, "too many names for the length of the texts")
        if text in self._seen:
            return
        self._seen.add(text)
        self._characters += len(text)
        if len(self._seen) > MAX_TEXTS:
            raise MessageError(Reason.RESOURCE, path, f"more than {MAX_TEXTS} different texts")
        if self._characters > MAX_CHARACTERS:
            raise MessageError(Reason.RESOURCE, path, f"more than {MAX_CHARACTERS} characters of text")

    def _count_names(self, facts: Sequence[Fact]) -> int:
        if id(facts) not in self._names:
            self._kept.append(facts)  # another sequence could get its id
            self._names[id(facts)] = len({fact.value for fact in facts if CATEGORY[fact.type] is PhiCategory.NAME})
        return self._names[id(facts)]
