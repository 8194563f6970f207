"""Looking through dead letters and putting records back: what transports offer, and how letters are chosen."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from deid_agent.agent.letterhead import LetterHead
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.ports import Record

Opener = Callable[[PrivateKey | None], Record]


@dataclass(frozen=True, slots=True)
class Found:
    """One letter. ``place`` is where it lies, ``replayed`` how often its record was put back since.

    ``opened(private)`` gives the record as it came, or raises ``LetterError``.
    """

    head: LetterHead
    place: str
    replayed: int
    opened: Opener = field(repr=False)


@dataclass(frozen=True, slots=True)
class Damaged:
    """Something among the letters that cannot be read."""

    place: str
    why: str


Pick = Callable[[Found | Damaged], Record | None]
"""Says of each letter which record is to be put back: the one that it holds, or none."""
Told = Callable[[Found, str], None]
"""Told of each record that was picked: why it could not be put back, nothing where it stands there now."""


class LetterBox(Protocol):
    """The dead letters of one agent. Letters are read one by one: no more than one body is held at a time.

    All methods raise ``ConfigurationError`` where the letters cannot be reached, ``UnsafeError`` where the outside
    fails meanwhile.
    """

    def letters(self) -> AsyncIterator[Found | Damaged]:
        """Every letter there is now, in order per partition."""

    async def replay(self, pick: Pick, told: Told) -> None:
        """Put back what ``pick`` says, each record once, and mark its letter: both or neither.

        One replay is at work at a time: a second one ends the first (``UnsafeError``) or is refused.
        """


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``first`` to ``last``, both included; None is no bound."""

    first: int | None = None
    last: int | None = None

    def holds(self, number: int) -> bool:
        return (self.first is None or self.first <= number) and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant: those that fit every member. An empty one fits all."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    offsets: tuple[Span, ...] = ()
    codes: frozenset[str] = frozenset()
    times_ms: Span = Span()

    @property
    def everything(self) -> bool:
        """True where nothing was said."""
        return self == Choice()

    def takes(self, head: LetterHead) -> bool:
        """True for a letter that is meant."""
        return (
            (not self.topics or head.at.topic in self.topics)
            and (not self.partitions or head.at.partition in self.partitions)
            and (not self.offsets or any(span.holds(head.at.offset) for span in self.offsets))
            and (not self.codes or head.code in self.codes)
            and self.times_ms.holds(head.time_ms)
        )


def as_dict(found: Found) -> dict[str, object]:
    """A letter as ``letters list --json`` and the console tell it: coordinates, codes and digests, never a value."""
    head = found.head
    return {
        "record": str(head.at),
        "code": head.code,
        "stage": head.stage,
        "fault": head.fault,
        "where": head.where,
        "attempts": head.attempts,
        "version": head.version,
        "build": dict(head.build),
        "refused": iso(head.time_ms),
        "form": head.form.value,
        "key": head.key or None,
        "letter": found.place,
        "replayed": found.replayed,
        "replay_of": None if head.first is None else str(head.first),
    }


def iso(time_ms: int) -> str:
    """Milliseconds since 1970 in ISO 8601, UTC; a question mark for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "?"
