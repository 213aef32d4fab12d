"""A slow link between two nodes: every byte arrives late by the same time. Bytes in transit when one end dies are lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

CHUNK = 1 << 16


class DelayedLink:
    def __init__(self, target_port: int, delay_s: float) -> None:
        self._target_port, self._delay_s = target_port, delay_s
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Returns the port to connect to."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # ends only when `close` cancels it
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
                try:
                    await self._carry((reader, there_writer), (there_reader, writer))
                finally:
                    there_writer.transport.abort()
        finally:
            writer.transport.abort()
            self._open.discard(task)

    async def _carry(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Copies in both directions until one end closes."""
        pumps = [asyncio.ensure_future(self._pump(*way)) for way in ways]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        travelling: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1024)

        async def arrive() -> None:
            while True:
                due, data = await travelling.get()
                await asyncio.sleep(due - clock())
                writer.write(data)
                await writer.drain()

        arriving = asyncio.ensure_future(arrive())
        try:
            while data := await reader.read(CHUNK):
                if arriving.done():
                    break
                await travelling.put((clock() + self._delay_s, data))
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)
