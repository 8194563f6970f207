"""The dead letters for the console: where from, why, whether put back. No body is opened to be looked at, or kept."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from deid_agent.agent.letterbox import Damaged, Found, LetterBox, as_dict
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.errors import LetterError, UnsafeError

MOST = 1_000
"""Letters that are listed: the last ones that were found. Counts are of all."""
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found. ``counts`` are by reason, of all; ``cut`` says that time was up before the end."""

    letters: tuple[dict[str, object], ...]
    damaged: tuple[dict[str, str], ...]
    counts: dict[str, int]
    total: int
    cut: bool = False


def listing(box: Callable[[], LetterBox], patience_s: float = _PATIENCE_S) -> Listing:
    """Read all letters; for a thread, it has a loop of its own. Raises what ``LetterBox.letters`` raises."""
    return asyncio.run(_listing(box(), patience_s))


async def _listing(box: LetterBox, patience_s: float) -> Listing:
    letters: deque[dict[str, object]] = deque(maxlen=MOST)
    damaged: deque[dict[str, str]] = deque(maxlen=MOST)
    counts: Counter[str] = Counter()
    cut = False
    try:
        async with asyncio.timeout(patience_s):
            async for found in box.letters():
                if isinstance(found, Damaged):
                    damaged.append({"place": found.place, "why": found.why})
                else:
                    counts[found.head.code] += 1
                    letters.append(as_dict(found))
                await asyncio.sleep(0)  # a folder never waits, and time could not be up
    except TimeoutError:
        cut = True
    return Listing(tuple(reversed(letters)), tuple(damaged), dict(counts.most_common()), counts.total(), cut)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: the records that stand in the input again, and those that do not, each with its reason."""

    done: tuple[str, ...]
    failed: tuple[dict[str, str], ...]
    problem: str = ""


def replay(
    box: Callable[[], LetterBox], wanted: Collection[Coordinates], private: PrivateKey | None, *, again: bool
) -> Replayed:
    """Put back the letters of these records; for a thread. Cut off anywhere it doubles nothing."""
    work = _Work(frozenset(wanted), private, again, [], [])
    problem = ""
    try:
        asyncio.run(box().replay(work.pick, work.told))
    except UnsafeError as error:
        problem = str(error)
    missing = sorted(map(str, work.wanted - work.met))
    work.failed += ({"record": name, "why": "there is no such letter any more"} for name in missing if not problem)
    return Replayed(tuple(work.done), tuple(work.failed), problem)


class _Work:
    """Picks what is meant, and notes what became of it."""

    def __init__(
        self,
        wanted: frozenset[Coordinates],
        private: PrivateKey | None,
        again: bool,
        done: list[str],
        failed: list[dict[str, str]],
    ) -> None:
        self.wanted = wanted
        self.done = done
        self.failed = failed
        self.met: set[Coordinates] = set()
        self._private = private
        self._again = again

    def pick(self, found: Found | Damaged) -> Record | None:
        """The record of a letter that is meant."""
        if isinstance(found, Damaged) or found.head.at not in self.wanted:
            return None
        self.met.add(found.head.at)
        if found.replayed and not self._again:
            self._fail(found, "it was put back before")
            return None
        try:
            return found.opened(self._private)
        except LetterError as problem:
            self._fail(found, str(problem).replace("give --private-key", "choose the file of its private key"))
            return None

    def told(self, found: Found, problem: str) -> None:
        """A record that was picked stands in the input again, or does not."""
        if problem:
            self._fail(found, problem)
        else:
            self.done.append(str(found.head.at))

    def _fail(self, found: Found, why: str) -> None:
        self.failed.append({"record": str(found.head.at), "why": why})
