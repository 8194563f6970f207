"""Calls of the client library that may be cut off.

Cancelled between a first connection and its note of it, aiokafka leaves the connection open; cancelled while
a client closes, it loses the cancellation, and whoever asked for the end waits for ever. So what opens or
closes a client runs in a task of its own, which gets a moment to end by itself.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

_MOMENT_S = 0.5


async def uncut(call: Coroutine[object, object, T]) -> T:
    """The result of ``call``. Where the caller is cancelled, it may end by itself for half a second, then is cut off.

    The cancellation comes through in any case, and ``call`` has ended by then, also one that overhears it.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        # In a task of its own: a second cancellation must not leave the call running.
        ending = asyncio.ensure_future(_end(task))
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({ending})
        raise
    return task.result()


async def briefly(call: Coroutine[object, object, object]) -> None:
    """Let ``call`` end by itself for half a second, then cut it off. What it raised is nobody's."""
    await uncut(_end(asyncio.ensure_future(call)))


async def _end(task: "asyncio.Future[T]") -> None:
    await asyncio.wait({task}, timeout=_MOMENT_S)
    await cut(task)


async def cut(task: "asyncio.Future[T]") -> None:
    """Cancel until it has ended, without raising what it raised."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_MOMENT_S)
    if not task.cancelled():
        task.exception()
