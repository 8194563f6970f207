"""Work beside the loop: one run at a time, kept while it is fresh, told without its text where it fails."""

import asyncio
import threading

import pytest

from deid_agent.console.aside import Kept, aside
from deid_agent.errors import ConfigurationError


class Work:
    """Counts its runs; each ends when it may."""

    def __init__(self) -> None:
        self.runs = 0
        self.may_end = threading.Event()
        self.error: Exception | None = None

    def __call__(self) -> int:
        self.runs += 1
        self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        return self.runs


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_one_run_at_a_time_and_a_result_as_long_as_it_is_fresh() -> None:
    work, clock = Work(), Clock()
    kept = Kept(work, fresh_s=10, clock=clock)
    assert kept.ask() == ("running", None, None, "")
    assert kept.ask()[0] == "running"
    work.may_end.set()
    assert await kept.soon(10) == ("done", 100.0, 1, "")
    clock.now += 9
    assert kept.ask() == ("done", 100.0, 1, "")
    clock.now += 2
    assert kept.ask() == ("running", 100.0, 1, ""), "the old one stands until the new one is there"
    assert await kept.soon(10) == ("done", 111.0, 2, "")
    assert work.runs == 2


async def test_what_took_long_is_kept_long() -> None:
    work, clock = Work(), Clock()
    kept = Kept(work, fresh_s=1, clock=clock)
    kept.ask()
    await asyncio.sleep(0)  # it has begun
    clock.now += 30
    work.may_end.set()
    await kept.soon(10)
    clock.now += 599
    assert kept.ask()[0] == "done"
    clock.now += 2
    assert kept.ask()[0] == "running"
    await kept.soon(10)


@pytest.mark.parametrize(
    ("error", "told"),
    [(ConfigurationError("mend the folder"), "mend the folder"), (KeyError("Okonkwo"), "KeyError at test_aside.py")],
)
async def test_a_failure_is_told_without_the_text_of_a_stranger(error: Exception, told: str) -> None:
    work = Work()
    work.error = error
    work.may_end.set()
    kept = Kept(work, fresh_s=10)
    state, _, result, problem = await kept.soon(10)
    assert (state, result) == ("failed", None)
    assert problem.startswith(told) and "Okonkwo" not in problem


async def test_the_loop_turns_meanwhile_and_the_end_waits_for_nobody() -> None:
    work = Work()
    waiting = asyncio.create_task(aside(work))
    await asyncio.sleep(0)
    (thread,) = (t for t in threading.enumerate() if t.name == "console")
    assert thread.daemon
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    work.may_end.set()
    thread.join(10)
