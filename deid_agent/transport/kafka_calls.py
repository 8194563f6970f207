"""Calls of the client library that may be cut off.

Cancelled between a first connection and its note of it, aiokafka leaves the connection open; cancelled while
a client closes, it loses the cancellation, and whoever asked for the end waits for ever. So what opens or
closes a client runs in a task of its own, which gets a moment to end by itself.
"""

import asyncio
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
        await asyncio.wait({task}, timeout=_MOMENT_S)
        await cut(task)
        raise
    finally:
        task.cancel()
    return task.result()


async def cut(task: "asyncio.Task[T]") -> None:
    """Cancel until it has ended, without raising what it raised."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_MOMENT_S)
    if not task.cancelled():
        task.exception()
