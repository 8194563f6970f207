"""Cancelled calls end, even if they ignore the first cancellation."""

import asyncio

import pytest
from support.runner_bench import virtual
from support.virtual import pass_time

from deid_agent.transport.kafka.client import cancel_and_wait, run_briefly, run_to_completion


async def deaf(times: int) -> str:
    """Ignores so many cancellations, as aiokafka ignores one during the end of a client."""
    forever = asyncio.Event()
    while times:
        try:
            await forever.wait()
        except asyncio.CancelledError:
            times -= 1
    return "done"


@virtual
async def test_a_cancelled_call_may_finish() -> None:
    ended = []

    async def call() -> None:
        await asyncio.sleep(0.3)
        ended.append(True)

    task = asyncio.create_task(run_to_completion(call()))
    await pass_time(0.1)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), ended) == (True, [True])


@virtual
async def test_a_call_that_ignores_cancellation_is_cancelled_again() -> None:
    for times in (1, 3):
        task = asyncio.create_task(run_to_completion(deaf(times)))
        await pass_time(0.1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


@virtual
async def test_a_call_ends_even_if_its_caller_is_cancelled_twice() -> None:
    """A time-out, then a stop."""
    inner = asyncio.Event()

    async def call() -> None:
        try:
            await deaf(2)
        finally:
            inner.set()

    task = asyncio.create_task(run_to_completion(call()))
    await pass_time(0.1)
    task.cancel()
    await pass_time(0.1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert inner.is_set()


@virtual
async def test_run_briefly_lets_a_call_end() -> None:
    for times in (0, 2):
        ended = asyncio.create_task(run_briefly(deaf(times)))
        async with asyncio.timeout(3):
            await ended


@virtual
async def test_an_uncancelled_call_returns_its_result_or_error() -> None:
    async def fails() -> None:
        raise ValueError("of the call")

    assert await run_to_completion(deaf(0)) == "done"
    with pytest.raises(ValueError, match="of the call"):
        await run_to_completion(fails())


@virtual
async def test_a_task_is_cancelled_until_it_has_ended() -> None:
    async def fails() -> None:
        raise ValueError("nobody asks for it")

    for call in (deaf(0), deaf(2), fails()):
        task = asyncio.ensure_future(call)
        await cancel_and_wait(task)
        assert task.done()
