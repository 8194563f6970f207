"""Calls that are cut off end, also those that overhear it."""

import asyncio

import pytest
from support.runner_bench import virtual
from support.virtual import pass_time

from deid_agent.transport.kafka_calls import cut, uncut


async def deaf(times: int) -> str:
    """Overhears so many cancellations, as aiokafka does one that meets the end of a client."""
    forever = asyncio.Event()
    while times:
        try:
            await forever.wait()
        except asyncio.CancelledError:
            times -= 1
    return "done"


@virtual
async def test_a_call_that_is_cut_off_may_end_by_itself() -> None:
    ended = []

    async def call() -> None:
        await asyncio.sleep(0.3)
        ended.append(True)

    task = asyncio.create_task(uncut(call()))
    await pass_time(0.1)
    task.cancel()
    await asyncio.wait({task})
    assert (task.cancelled(), ended) == (True, [True])


@virtual
async def test_a_call_that_overhears_its_end_is_told_again() -> None:
    for times in (1, 3):
        task = asyncio.create_task(uncut(deaf(times)))
        await pass_time(0.1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


@virtual
async def test_a_call_that_nobody_cuts_off_gives_its_result_or_its_error() -> None:
    async def fails() -> None:
        raise ValueError("of the call")

    assert await uncut(deaf(0)) == "done"
    with pytest.raises(ValueError, match="of the call"):
        await uncut(fails())


@virtual
async def test_a_task_is_cut_until_it_has_ended() -> None:
    async def fails() -> None:
        raise ValueError("nobody asks for it")

    for call in (deaf(0), deaf(2), fails()):
        task = asyncio.ensure_future(call)
        await cut(task)
        assert task.done()
