"""`python -m bench.http_target PORT`: an HTTP server that does almost nothing, so that the caller is what is measured.

It writes the number in each path, such as `/17`, to the record, and answers 200.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from . import record

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'


class Answering(asyncio.Protocol):
    """One request at a time on each connection, with a Content-Length, as Sexton sends them."""

    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, body = self._held.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, rest = head.lower().partition(b"\r\ncontent-length: ")
        if len(body) < int(rest.partition(b"\r\n")[0] or 0):
            return
        self._held = b""
        record.append(int(head.split(b" ", 2)[1][1:]))
        self._transport.write(ANSWER)


async def serve(port: int) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    server = await loop.create_server(Answering, "127.0.0.1", port, backlog=1024)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
