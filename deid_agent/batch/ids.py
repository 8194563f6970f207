"""Identifiers of tables: the surrogates of the stream, in the range of a column's type.

A number keeps its number of figures, and most ten-digit surrogates do not fit an int32 column. The map of identifiers
visits every number of the same form (``keyed.Permutation``), so it is applied until the value fits: that is still one
to one, and a column of the same type in another table gets the same value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.model import MessageError, Reason

_STAYS = re.compile(r"-[0-9]+|0+")
"""Marks of no identifier, such as -1: they stay, as in a column of numbers."""

MapText = Callable[[str], str]
"""The surrogate of an identifier in the stream."""


@dataclass(frozen=True, slots=True)
class IdMap:
    """Maps identifiers. ``numbers`` and ``texts`` are the surrogates of this map so far; it is cleared when large."""

    surrogate: MapText
    most: int = 200_000
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    _texts: dict[str, str] = field(default_factory=dict, repr=False)

    def map_number(self, value: int, highest: int) -> int:
        """The surrogate of a number in a column that holds at most ``highest``. 0 and negative numbers stay.

        Raises ``MessageError(UNSUPPORTED)`` if no other number of its form fits.
        """
        if value <= 0:
            return value
        known = self._numbers.get((value, highest))
        if known is None:
            known = self._walk(value, highest)
            if len(self._numbers) >= self.most:
                self._numbers.clear()
            self._numbers[value, highest] = known
        return known

    def map_text(self, value: str) -> str:
        """The surrogate of an identifier that is written as text."""
        if _STAYS.fullmatch(value.strip()):
            return value
        known = self._texts.get(value)
        if known is None:
            known, form = self.surrogate(value), _form(value)
            while _STAYS.fullmatch(known.strip()) or _form(known) != form:
                known = self.surrogate(known)
            if len(self._texts) >= self.most:
                self._texts.clear()
            self._texts[value] = known
        return known

    def _walk(self, value: int, highest: int) -> int:
        text = str(value)
        while True:
            text = self.surrogate(text)
            new = int(text) if _form(text) == _NUMBER else 0
            if new == value:
                raise MessageError(Reason.UNSUPPORTED, "id", "no other number of this form fits the type of the column")
            if 0 < new <= highest:
                return new


def _form(text: str) -> tuple[bool, bool]:
    """Whether a text is a number, and whether that begins with a zero.

    The stream keeps both except in the numbers of vehicles (17 signs), where a figure may become an X or a zero.
    """
    number = text.isascii() and text.isdigit()
    return number, number and text.startswith("0")


_NUMBER = (True, False)


@dataclass(frozen=True, slots=True)
class Template:
    """An identifier that joins other columns: ``10000032-DS-21``. ``separators`` surround and divide the ``parts``."""

    parts: tuple[str, ...]
    separators: tuple[str, ...]

    def split(self, value: str) -> list[str] | None:
        """The part of each column; None if the value has another form. No part contains the separator after it."""
        if not value.startswith(self.separators[0]):
            return None
        rest, found = value[len(self.separators[0]) :], []
        for separator in self.separators[1:-1]:
            part, divided, rest = rest.partition(separator)
            if not part or not divided:
                return None
            found.append(part)
        last = self.separators[-1]
        if not rest.endswith(last) or not (part := rest[: len(rest) - len(last)]):
            return None
        return None if last and last in part else [*found, part]

    def join(self, parts: Sequence[str]) -> str:
        """The identifier of these parts."""
        texts = [self.separators[0]]
        for part, separator in zip(parts, self.separators[1:], strict=True):
            texts += (part, separator)
        return "".join(texts)


def map_template(template: Template, value: str, maps: Mapping[str, MapText]) -> str:
    """The identifier with each part mapped as the column of that name, by ``maps``; others stay.

    Raises ``MessageError(MALFORMED)`` if the value has another form.
    """
    parts = template.split(value)
    if parts is None:
        raise MessageError(Reason.MALFORMED, "template", "the value has not the form of its template")
    return template.join(
        [maps[name](part) if name in maps else part for name, part in zip(template.parts, parts, strict=True)]
    )
