"""Background work: one run at a time, a result that is kept while fresh, and errors without the text of the data."""

import asyncio
import threading

import pytest

from deid_agent.http.background import CachedResult, run_in_thread
from deid_agent.model.errors import ConfigurationError


class Work:
    """Counts its runs. Each run ends when ``may_end`` is set."""

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


async def test_runs_do_not_overlap_and_a_fresh_result_is_reused() -> None:
    work, clock = Work(), Clock()
    cached = CachedResult(work, fresh_s=10, clock=clock)
    assert cached.request() == ("running", None, None, "")
    assert cached.request()[0] == "running"
    work.may_end.set()
    assert await cached.wait(10) == ("done", 100.0, 1, "")
    clock.now += 9
    assert cached.request() == ("done", 100.0, 1, "")
    clock.now += 2
    assert cached.request() == ("running", 100.0, 1, ""), "the previous result remains until the next one is complete"
    assert await cached.wait(10) == ("done", 111.0, 2, "")
    assert work.runs == 2


async def test_a_result_that_took_long_is_kept_long() -> None:
    work, clock = Work(), Clock()
    cached = CachedResult(work, fresh_s=1, clock=clock)
    cached.request()
    await asyncio.sleep(0)  # it has begun
    clock.now += 30
    work.may_end.set()
    await cached.wait(10)
    clock.now += 599
    assert cached.request()[0] == "done"
    clock.now += 2
    assert cached.request()[0] == "running"
    await cached.wait(10)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ConfigurationError("make the folder"), "make the folder"),
        (KeyError("Okonkwo"), "KeyError at test_background.py"),
    ],
)
async def test_only_errors_of_the_agent_show_their_text(error: Exception, shown: str) -> None:
    work = Work()
    work.error = error
    work.may_end.set()
    cached = CachedResult(work, fresh_s=10)
    state, _, result, problem = await cached.wait(10)
    assert (state, result) == ("failed", None)
    assert problem.startswith(shown) and "Okonkwo" not in problem


async def test_the_loop_is_not_blocked_and_the_end_waits_for_no_thread() -> None:
    work = Work()
    waiting = asyncio.create_task(run_in_thread(work))
    await asyncio.sleep(0)
    (thread,) = (t for t in threading.enumerate() if t.name == "console")
    assert thread.daemon
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    work.may_end.set()
    thread.join(10)


async def test_an_expired_result_is_computed_anew_although_it_is_fresh() -> None:
    work, clock = Work(), Clock()
    work.may_end.set()
    cached = CachedResult(work, fresh_s=1000, clock=clock)
    assert (await cached.wait(10))[2] == 1
    cached.expire()
    assert (await cached.wait(10))[2] == 2
    assert (await cached.wait(10))[2] == 2


async def test_a_run_that_began_before_the_expiry_does_not_count() -> None:
    """It may have read the state from before the change."""
    work, clock = Work(), Clock()
    cached = CachedResult(work, fresh_s=1000, clock=clock)
    cached.request()
    await asyncio.sleep(0)  # it has begun
    cached.expire()
    work.may_end.set()
    await cached.wait(10)
    assert (await cached.wait(10))[2] == 2
