"""A TCP proxy between an agent and its broker: passes bytes on late, or not at all for a while."""

import asyncio
from types import TracebackType


class SlowProxy:
    """Listens on ``port`` and forwards all bytes to ``target`` and back, delayed by ``delay_s``.

    While ``stall()`` holds, connections stay open and bytes wait; ``release()`` forwards them, late, in order.
    """

    def __init__(self, port: int, target: int, delay_s: float = 0.0) -> None:
        self.passed = 0
        """Bytes so far, both ways."""
        self._port = port
        self._target = target
        self._delay_s = delay_s
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "SlowProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for pump in self._pumps:
            pump.cancel()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def stall(self) -> None:
        """Hold all bytes back from now on."""
        self._open.clear()

    def release(self) -> None:
        """Undo ``stall``."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await asyncio.sleep(self._delay_s)
                await self._open.wait()
                self.passed += len(data)
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # one side is closed; the close below ends the other
        finally:
            sink.close()
