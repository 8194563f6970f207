"""W3C Trace Context (Recommendation, level 1; the random flag of level 2): which trace a record belongs to."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

HEADER = "traceparent"
_FORM = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_FLAGS = 0x03
"""Sampled and random. The others are reserved, and whoever passes them on must clear them."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace and the span in it that sent the record; lower-case hex, neither is all zeros."""

    id: str
    span: str
    flags: int

    def header(self) -> bytes:
        """The value of ``traceparent``."""
        return f"00-{self.id}-{self.span}-{self.flags:02x}".encode()

    def below(self, name: str) -> "Trace":
        """The same trace with a span of our own: made from ``name``, so that a retry of one work is one span."""
        made = hashlib.blake2b(f"{self.id}-{self.span}-{name}".encode(), person=b"deid-span", digest_size=8)
        return Trace(self.id, made.hexdigest(), self.flags)


def parse(value: bytes) -> Trace | None:
    """The trace of a ``traceparent`` of version 00; None for anything that does not match its grammar to the letter."""
    if (found := _FORM.fullmatch(value)) is None:
        return None
    trace, span, flags = found.groups()
    return Trace(trace.decode(), span.decode(), int(flags, 16) & _FLAGS)


def of(headers: Iterable[tuple[str, bytes]]) -> Trace | None:
    """The trace that a record's headers tell; None where they tell none, or more than one."""
    values = [value for name, value in headers if name.lower() == HEADER]
    return parse(values[0]) if len(values) == 1 else None
