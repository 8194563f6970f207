"""The selection of an allow-list policy: the paths that are published, and the byte ranges of everything else."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from deid_agent.model.sites import Edit

_STEP = re.compile(r"[.\-/]")
_VARIANT = re.compile(r"\([A-Z]+\)")


class PublishedPaths:
    """The listed paths. ``PID-8`` lists everything below it; ``leads`` is true for a path above a listed one."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        above = {path[: step.start()] for path in self.paths for step in _STEP.finditer(path)}
        self._above = frozenset(above | {_VARIANT.sub("", path) for path in above})

    def lists(self, path: str) -> bool:
        """True if ``path`` itself is listed."""
        return path in self.paths

    def leads(self, path: str) -> bool:
        """True if a path below ``path`` is listed."""
        return path in self._above


@dataclass(frozen=True, slots=True)
class Dropped:
    """Bytes ``[start, end)`` that are not published, and what is written for them.

    ``path`` has no numbers and no name that no standard knows.
    """

    path: str
    start: int
    end: int
    blank: bytes = b""


@dataclass(frozen=True, slots=True)
class DroppedRanges:
    """The dropped ranges of one message: disjoint, in byte order."""

    ranges: tuple[Dropped, ...] = ()
    _starts: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, found: Iterable[Dropped]) -> "DroppedRanges":
        """The ranges of ``found``, sorted."""
        ranges = tuple(sorted(found, key=attrgetter("start")))
        return cls(ranges, tuple(each.start for each in ranges))

    def cover(self, start: int, end: int) -> bool:
        """True if bytes ``[start, end)`` are inside one dropped range."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and start <= end <= self.ranges[at].end

    def apply_to(self, edits: Sequence[Edit]) -> list[Edit]:
        """``edits`` and the removal of every range. An edit that reaches into a range is removed with it."""
        kept: list[Edit] = []
        removed = [(each.start, each.end) for each in self.ranges]
        for edit in edits:
            if self._touches(edit):
                removed.append((edit.start, edit.end))
            else:
                kept.append(edit)
        blanks = {each.start: each.blank for each in self.ranges}
        return [*kept, *(Edit(start, end, blanks.get(start, b"")) for start, end in _union(removed))]

    def _touches(self, edit: Edit) -> bool:
        at = bisect_right(self._starts, edit.start) - 1
        before = at >= 0 and edit.start < self.ranges[at].end
        return before or (at + 1 < len(self.ranges) and self.ranges[at + 1].start < edit.end)


def _union(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, overlapping ones joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
