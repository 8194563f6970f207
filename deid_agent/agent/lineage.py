"""Records that were put back from the dead letters: the headers that say so, and when they are believed."""

import re
from dataclasses import dataclass
from typing import Final

from deid_agent.agent.ports import Coordinates, Headers, Record

REPLAY_OF: Final = "deid-replay-of"
"""``topic/partition/offset`` where the record first stood; on inputs that were put back, their outputs and letters."""
REPLAY_ATTEMPTS: Final = "deid-replay-attempts"
"""How often the record was tried before it was put back; on inputs only."""

_OFFSET = re.compile(rb"0|[1-9][0-9]{0,18}")
_COUNT = re.compile(rb"[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a record first stood, and how often it was tried there and since; ``first`` is None for a new record."""

    first: Coordinates | None = None
    attempts: int = 0

    def headers(self) -> Headers:
        """What an output or a letter says of it."""
        return () if self.first is None else ((REPLAY_OF, str(self.first).encode()),)


NEW: Final = Lineage()


def ours(name: str) -> bool:
    """True for a header that only a replay may have written."""
    return name.lower() in {REPLAY_OF, REPLAY_ATTEMPTS}


def lineage_of(record: Record) -> Lineage:
    """What the record's headers say of an earlier life.

    Any sender can write a header, and a header may hold PHI. So one is believed only where a replay could
    have written it: once, for an earlier offset of the record's own partition, in plain digits.
    """
    values = _values(record.headers, REPLAY_OF)
    if len(values) != 1:
        return NEW
    at = record.coordinates
    before = f"{at.topic}/{at.partition}/".encode()
    if not values[0].startswith(before):
        return NEW
    digits = values[0][len(before) :]
    if not _OFFSET.fullmatch(digits) or int(digits) >= at.offset:
        return NEW
    counts = _values(record.headers, REPLAY_ATTEMPTS)
    attempts = int(counts[0]) if len(counts) == 1 and _COUNT.fullmatch(counts[0]) else 0
    return Lineage(Coordinates(at.topic, at.partition, int(digits)), attempts)


def headers_of_replay(record: Record, attempts: int) -> Headers:
    """The headers under which a record is put back: its own, and where it first stood after how many tries."""
    first = lineage_of(record).first or record.coordinates
    kept = tuple(item for item in record.headers if not ours(item[0]))
    return (*kept, (REPLAY_OF, str(first).encode()), (REPLAY_ATTEMPTS, str(max(1, attempts)).encode()))


def _values(headers: Headers, name: str) -> list[bytes]:
    return [value for other, value in headers if other == name]
