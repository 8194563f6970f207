"""Narrative.div: markup inside of a JSON string."""

from collections.abc import Sequence
from dataclasses import replace

from deid_agent.codec.markup import reading
from deid_agent.codec.markup.reading import Attribute, EscapedText

__all__ = ["Attribute", "read"]


def read(
    value: str,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    offset: int = 0,
    inline: frozenset[str] = frozenset(),
    tags: frozenset[str] | None = None,
    quoted: bool = False,
) -> tuple[EscapedText, tuple[Attribute, ...]]:
    """As ``markup.reading.read``; what is written over the text leaves escaped, ``quoted`` inside of an attribute."""
    mapped, attributes = reading.read(value, starts, ends, offset=offset, inline=inline, tags=tags)
    return reading.escaped(mapped, quoted=quoted), tuple(replace(each, name=each.name.lower()) for each in attributes)
