"""Dead letters: the headers that say why, and the limit past which the fault is ours.

Header names follow Kafka Connect (KIP-298) so that tools for its dead letters
read ours. They hold coordinates, codes and paths: never a message, a value or a trace.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from deid_agent import __version__
from deid_agent.agent.lineage import NEW, Lineage
from deid_agent.agent.ports import Coordinates, DeadLetter, Headers, Outcome, Settled
from deid_agent.errors import UnsafeError

_PATH = re.compile(r"[A-Za-z0-9_.:\[\]/ -]{0,128}")


def safe_path(where: str) -> str:
    """``where`` if it reads like a path or an offset, else nothing: a value that strayed into it goes no further."""
    return where if _PATH.fullmatch(where) else ""


def letter_headers(coordinates: Coordinates, letter: DeadLetter, lineage: Lineage = NEW) -> Headers:
    """The headers under which a refused record is kept. Attempts count on from those before a replay."""
    values = (
        ("__connect.errors.topic", coordinates.topic),
        ("__connect.errors.partition", str(coordinates.partition)),
        ("__connect.errors.offset", str(coordinates.offset)),
        ("__connect.errors.stage", letter.stage),
        ("__connect.errors.exception.class.name", letter.fault or "MessageError"),
        ("deid.error.code", str(letter.reason)),
        ("deid.error.where", safe_path(letter.where)),
        ("deid.attempts", str(lineage.attempts + letter.attempts)),
        ("deid.version", __version__),
        *((("traceparent", letter.traceparent),) if letter.traceparent else ()),
    )
    return (*((name, value.encode()) for name, value in values), *lineage.headers())


@dataclass(frozen=True, slots=True)
class LetterLimit:
    """How many refusals of one partition are still the messages' fault.

    ``run``: refusals in a row; ``ratio``: share of refusals among the last ``window`` records
    (looked at once ``window`` records have settled). Both are the last values that are still tolerated.
    """

    run: int = 500
    ratio: float = 0.5
    window: int = 1000

    def __post_init__(self) -> None:
        if self.run < 1 or self.window < 1 or not 0 <= self.ratio <= 1:
            raise ValueError("a dead-letter limit needs run >= 1, window >= 1 and 0 <= ratio <= 1")


class LetterCount:
    """The refusals of one partition up to some record, against a ``LetterLimit``."""

    def __init__(self, limit: LetterLimit) -> None:
        self._limit = limit
        self._recent: deque[bool] = deque(maxlen=limit.window)
        self._refused = 0
        self._run = 0

    def after(self, records: Iterable[Settled]) -> "LetterCount":
        """The count behind these, in offset order; raises ``UnsafeError`` where the limit is passed.

        This one stays as it is: what a record comes to can change until it has settled, and it counts once.
        """
        count = LetterCount(self._limit)
        count._recent, count._refused, count._run = self._recent.copy(), self._refused, self._run
        for settled in records:
            count._see(settled)
        return count

    def _see(self, settled: Settled) -> None:
        refused = settled.outcome is Outcome.DEAD_LETTERED
        if len(self._recent) == self._limit.window:
            self._refused -= self._recent[0]
        self._recent.append(refused)
        self._refused += refused
        self._run = self._run + 1 if refused else 0
        over_run = self._run > self._limit.run
        full = len(self._recent) == self._limit.window
        over_ratio = full and self._refused > self._limit.ratio * self._limit.window
        if over_run or over_ratio:
            what = f"{self._run} in a row" if over_run else f"{self._refused} of the last {self._limit.window}"
            raise UnsafeError(
                f"too many records refused at {settled.record.coordinates} ({what}): look at the dead letters, "
                "mend the configuration or raise the limit, then start again; nothing was lost"
            )
