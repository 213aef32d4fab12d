"""A TCP proxy in front of PostgreSQL, with one port per member. It cuts, drops, delays or holds the traffic.

It runs as a process of its own, so that a busy harness does not delay the traffic: `python -m chaos.proxy SOCKET NAME…`. It
prints its ports to standard output, then executes one JSON command per line of standard input, and ends at the end of the
input.
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
    """The connections of one member to the server."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._dropped: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self.delay_s = {"up": 0.0, "down": 0.0}
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.hold(up=False, down=False)

    def hold(self, *, up: bool, down: bool) -> None:
        """Holds traffic. It is not lost: the proxy forwards it when the link heals, as TCP would."""
        for direction, held in (("up", up), ("down", down)):
            (self._open[direction].clear if held else self._open[direction].set)()

    def cut(self) -> int:
        """Closes both sides of every connection; new connections are accepted."""
        pairs = list(self._pairs)
        for pair in pairs:
            for writer in pair:
                writer.transport.abort()
        return len(pairs)

    def drop(self) -> int:
        """Closes the server's side without a sign to the member; new connections are accepted."""
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
                pass  # discarded
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
            await self._open[direction].wait()  # while the link is held, the end of a connection is not passed on either


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
    os._exit(0)  # ends with the harness, without a warning about open connections


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2:]))
