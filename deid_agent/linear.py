"""Linear-time matching: the one typed door to RE2.

RE2 never backtracks, so no input can stall a rule. It has no look-around and
its ``\\b`` knows ASCII only: ``ruleset`` builds edges and conditions outside.
Source: RE2 syntax, github.com/google/re2/wiki/Syntax.
"""

from typing import Protocol, cast

import re2  # type: ignore[import-untyped]


class Match(Protocol):
    """Byte offsets of one match; ``(-1, -1)`` for a group that took no part."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Start and end of a group in bytes."""


class Regexp(Protocol):
    """A compiled pattern over UTF-8 bytes."""

    @property
    def groups(self) -> int:
        """How many capturing groups the pattern has."""

    @property
    def groupindex(self) -> dict[str, int]:
        """Named groups and their numbers."""

    def search(self, text: bytes, pos: int | None = None, endpos: int | None = None) -> Match | None:
        """The leftmost match that starts at ``pos`` or later; ``\\A`` and ``^`` still mean the text's own."""

    def match(self, text: bytes, pos: int | None = None, endpos: int | None = None) -> Match | None:
        """A match that starts at ``pos``."""


_MAX_MEMORY = 8 << 20


def compile_pattern(pattern: str) -> Regexp:
    """``pattern`` in RE2 syntax, compiled for UTF-8.

    Raises ``ValueError`` with RE2's own words where it does not compile.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return cast(Regexp, re2.compile(pattern, options))
    except re2.error as fault:
        detail = fault.args[0] if fault.args else ""
        raise ValueError(detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)) from None
