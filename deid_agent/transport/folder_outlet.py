"""A folder as an outlet: each output is a file, whole and durable before its sender is answered."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deid_agent.agent.ports import Output, Record
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.transport.folders import Staged


class FolderOutlet:
    """Implements ``Outlet``: ``mllp-<lane>-<offset>.hl7``, a name without PHI that sorts by time within a lane."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._thread: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"FolderOutlet({self._folder})"

    async def start(self) -> None:
        """See ``Outlet.start``."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"mllp.output: {self._folder}: {error.strerror}") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outputs")

    async def deliver(self, record: Record, output: Output) -> None:
        """See ``Outlet.deliver``. The same record has the same name: a second try writes over the first."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, record, output)
        except OSError as error:
            raise UnsafeError(
                f"mllp.output: the folder fails ({error.strerror}): mend it and start again; nothing was lost"
            ) from None

    def _write(self, record: Record, output: Output) -> None:
        at = record.coordinates
        name = f"{at.topic}-{at.partition}-{at.offset}"
        staged = Staged()
        try:
            staged.add(self._folder / f"{name}.hl7", output.payload, 0o666, name)
            staged.show()
        finally:
            staged.drop()

    async def stop(self) -> None:
        """See ``Outlet.stop``."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
