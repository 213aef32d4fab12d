"""A TCP proxy in front of PostgreSQL, one port per member, that cuts, drops, delays or holds what goes through it.

A process of its own, so that it is not the harness that is slow: `python -m chaos.proxy SOCKET NAME…`. It tells its ports on
standard output, then obeys one JSON command per line of standard input, and ends with that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any

import uvloop

CHUNK = 65_536


class Line:
    """The way of one member to the server and back, with all its connections."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._dropped: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self.delay_s = {"up": 0.0, "down": 0.0}
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.hold(up=False, down=False)

    def hold(self, *, up: bool, down: bool) -> None:
        """What is held is not lost: it goes on its way when the line heals, as TCP would have it."""
        for direction, held in (("up", up), ("down", down)):
            (self._open[direction].clear if held else self._open[direction].set)()

    def cut(self) -> int:
        """Both sides of every connection are gone at once; new ones are free to come."""
        pairs = list(self._pairs)
        for pair in pairs:
            for writer in pair:
                writer.transport.abort()
        return len(pairs)

    def drop(self) -> int:
        """The server's side is gone, and the member is never told; new connections are free to come."""
        self._dropped |= self._pairs
        for _, server in self._pairs:
            server.transport.abort()
        return len(self._pairs)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, server = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, server)
        self._pairs.add(pair)
        pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, server, "up"), (upstream, writer, "down"))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            server.close()
        with suppress(OSError):
            while pair in self._dropped and await reader.read(CHUNK):
                pass  # into the void
        self._dropped.discard(pair)
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.delay_s[direction]:
                    await asyncio.sleep(self.delay_s[direction])
                await self._open[direction].wait()
                writer.write(data)
                await writer.drain()
            await self._open[direction].wait()  # nobody hears of an end either while the line is held


def obey(lines: dict[str, Line], command: dict[str, Any]) -> dict[str, Any]:
    chosen = [lines[name] for name in command["names"]]
    match command["do"]:
        case "cut":
            return {"count": sum(line.cut() for line in chosen)}
        case "drop":
            return {"count": sum(line.drop() for line in chosen)}
        case "delay":
            for line in chosen:
                line.delay_s.update(up=command["up_s"], down=command["down_s"])
        case "hold":
            for line in chosen:
                line.hold(up=command["up"], down=command["down"])
        case "heal":
            for line in chosen:
                line.delay_s.update(up=0.0, down=0.0)
                line.hold(up=False, down=False)
        case unknown:
            raise ValueError(f"there is no command {unknown!r}")
    return {"count": len(chosen)}


async def main(socket_path: str, names: list[str]) -> None:
    lines = {name: Line(socket_path) for name in names}
    servers = {name: await asyncio.start_server(line.serve, "127.0.0.1", 0) for name, line in lines.items()}
    print(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while order := await orders.readline():
        print(json.dumps(obey(lines, json.loads(order))), flush=True)
    os._exit(0)  # with the harness, and without a word about connections that are still open


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2:]))
