"""The dead letters for the console: their list without bodies, and replays.

The functions block and run an event loop of their own, so the console calls them in a thread.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from deid_agent.agent import (
    Coordinates,
    DamagedDeadLetter,
    DeadLetterStore,
    FoundDeadLetter,
    PrivateKey,
    Record,
    dead_letter_summary,
)
from deid_agent.model import DeadLetterError, UnsafeError

MAX_LISTED = 1_000
"""The number of dead letters that are listed, the last ones found. Counts include all."""
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class DeadLetterListing:
    """Dead letters, newest first, and the files or records that could not be read.

    ``counts`` are by reason and include the dead letters that are not listed. ``cut`` is True if the time limit ended
    the reading, so that the counts are incomplete.
    """

    dead_letters: tuple[dict[str, object], ...]
    damaged: tuple[dict[str, str], ...]
    counts: dict[str, int]
    total: int
    cut: bool = False


def list_dead_letters(open_store: Callable[[], DeadLetterStore], patience_s: float = _PATIENCE_S) -> DeadLetterListing:
    """Read the dead letters for up to ``patience_s`` seconds. Their bodies are neither decrypted nor kept.

    Raises the errors of ``DeadLetterStore.dead_letters``.
    """
    return asyncio.run(_list_dead_letters(open_store(), patience_s))


async def _list_dead_letters(store: DeadLetterStore, patience_s: float) -> DeadLetterListing:
    dead_letters: deque[dict[str, object]] = deque(maxlen=MAX_LISTED)
    damaged: deque[dict[str, str]] = deque(maxlen=MAX_LISTED)
    counts: Counter[str] = Counter()
    cut = False
    try:
        async with asyncio.timeout(patience_s):
            async for found in store.dead_letters():
                if isinstance(found, DamagedDeadLetter):
                    damaged.append({"place": found.location, "why": found.problem})
                else:
                    counts[found.head.code] += 1
                    dead_letters.append(dead_letter_summary(found))
                await asyncio.sleep(0)  # reading a folder never waits, so the timeout would never take effect
    except TimeoutError:
        cut = True
    return DeadLetterListing(
        tuple(reversed(dead_letters)), tuple(damaged), dict(counts.most_common()), counts.total(), cut
    )


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The records that a replay wrote to the input again, and those that it did not write, each with a reason.

    ``problem`` is the error that ended the replay early, else empty.
    """

    done: tuple[str, ...]
    failed: tuple[dict[str, str], ...]
    problem: str = ""


def replay_dead_letters(
    open_store: Callable[[], DeadLetterStore],
    wanted: Collection[Coordinates],
    private_key: PrivateKey | None,
    *,
    again: bool,
) -> ReplayResult:
    """Write the records of these dead letters to the input again. An interrupted replay duplicates no record.

    ``private_key`` opens sealed dead letters. ``again`` includes dead letters that were replayed before.
    """
    job = _ReplayJob(frozenset(wanted), private_key, again)
    problem = ""
    try:
        asyncio.run(open_store().replay(job.choose, job.report))
    except UnsafeError as error:
        problem = str(error)
    missing = sorted(map(str, job.wanted - job.met))
    job.failed += ({"record": name, "why": "this dead letter no longer exists"} for name in missing if not problem)
    return ReplayResult(tuple(job.done), tuple(job.failed), problem)


@dataclass(slots=True)
class _ReplayJob:
    """Chooses the wanted dead letters and collects the result of each."""

    wanted: frozenset[Coordinates]
    private_key: PrivateKey | None
    again: bool
    done: list[str] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)
    met: set[Coordinates] = field(default_factory=set)

    def choose(self, found: FoundDeadLetter | DamagedDeadLetter) -> Record | None:
        """The record of a wanted dead letter; None for all others."""
        if isinstance(found, DamagedDeadLetter) or found.head.at not in self.wanted:
            return None
        self.met.add(found.head.at)
        if found.replayed and not self.again:
            self._fail(found, "it was replayed before")
            return None
        try:
            return found.open_record(self.private_key)
        except DeadLetterError as problem:
            self._fail(found, str(problem).replace("give --private-key", "choose its private key file"))
            return None

    def report(self, found: FoundDeadLetter, problem: str) -> None:
        """Note the result of a chosen record; ``problem`` is empty if it was written."""
        if problem:
            self._fail(found, problem)
        else:
            self.done.append(str(found.head.at))

    def _fail(self, found: FoundDeadLetter, why: str) -> None:
        self.failed.append({"record": str(found.head.at), "why": why})
