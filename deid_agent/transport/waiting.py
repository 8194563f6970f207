"""How transports wait for records that their connections or requests deliver."""

import asyncio
from collections.abc import Callable
from typing import Final

from deid_agent.agent import Record

_POLL_S: Final = 0.5


async def take_or_wait(
    take: Callable[[], list[Record]], wakeup: asyncio.Event, is_stopped: Callable[[], bool]
) -> list[Record]:
    """The records of ``take``. If there are none, wait for ``wakeup``, at most half a second, and take once more."""
    found = take()
    if not found and not is_stopped():
        wakeup.clear()
        try:
            async with asyncio.timeout(_POLL_S):
                await wakeup.wait()
        except TimeoutError:
            pass
        found = take()
    return found
