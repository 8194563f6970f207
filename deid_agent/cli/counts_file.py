"""A file of counts that a running agent writes at intervals: the ledger of unexamined values, the state of drift."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path


def replace_counts(path: Path, data: bytes) -> None:
    """Write the file; a reader never sees an incomplete one. Raises ``OSError``; the old file then remains."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


@asynccontextmanager
async def written_at_intervals(write: Callable[[], None], interval_s: float) -> AsyncIterator[None]:
    """Call ``write`` at intervals inside the ``with`` block, and at its end."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(interval_s)
            write()

    writer = asyncio.create_task(repeat())
    try:
        yield
    finally:
        writer.cancel()
        write()
