"""`unshare --net python -m tests.store.vanishing SOCKET`: a network namespace whose packets vanish from one moment to the next.
Prints after how many seconds each statement failed; none: it still waits."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import asyncpg

from sexton.errors import DatabaseUnavailable
from sexton.store.database import Connection, Postgres
from sexton.store.postgres import tcp_keepalive
from sexton.store.postgres.driver_errors import translated_errors

PATIENCE_S = 4.0  # for statements that never get an answer


def _set_loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def _fails_after_s(connection: Connection, query: str) -> float:
    began_s = time.monotonic()
    try:
        with translated_errors():
            await connection.fetch(query)
    except DatabaseUnavailable:
        return time.monotonic() - began_s
    raise AssertionError("answered, though nothing can come through")


async def main(path: str) -> dict[str, float | None]:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, server = await asyncio.open_unix_connection(path)
        await asyncio.gather(_pump(reader, server), _pump(upstream, writer), return_exceptions=True)

    tcp_keepalive.SILENCE_S, tcp_keepalive.ASK_AFTER_S = 2, 1
    _set_loopback("up")
    listener = await asyncio.start_server(forward, "127.0.0.1", 0)
    url = f"postgresql://postgres@127.0.0.1:{listener.sockets[0].getsockname()[1]}/postgres?sslmode=disable"
    database, plain = await Postgres.open(url), await asyncpg.connect(url)
    async with database.connection() as waiting, database.connection() as idle:
        tries = {
            "waited": asyncio.create_task(_fails_after_s(waiting, "SELECT pg_sleep(60)")),
            "waited_plainly": asyncio.create_task(_fails_after_s(plain, "SELECT pg_sleep(60)")),
        }
        await idle.fetch("SELECT pg_sleep(0.2)")  # by then the other statements wait for their answers
        _set_loopback("down")
        tries["sent"] = asyncio.create_task(_fails_after_s(idle, "SELECT 1"))
        await asyncio.wait(tries.values(), timeout=PATIENCE_S)
        took_s = {name: one.result() if one.done() else None for name, one in tries.items()}
        plain.terminate()
    _set_loopback("up")
    async with database.connection() as again:
        await again.fetch("SELECT 1")
    return took_s


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
    sys.stdout.flush()
