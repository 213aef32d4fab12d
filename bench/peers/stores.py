"""The stores of the peers: one durable PostgreSQL with default settings for all of them, with a separate database for every
measurement; and one Redis with default settings."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import psutil

from bench import machine
from bench.server import SETTINGS_THAT_MATTER
from sexton.store.embedded.server import EmbeddedPostgres

from . import install

START_S = 10.0


class Store(Protocol):
    """An empty store for one peer and one measurement."""

    url: str

    async def settle(self) -> None:
        """Runs after the jobs were submitted: vacuum and checkpoint, which a server would soon do by itself."""

    async def is_idle(self, question: str) -> bool: ...

    async def wal_bytes(self) -> int | None: ...

    def cpu_s(self) -> float: ...


class PostgresStore:
    def __init__(self, url: str, postmaster: int, monitor: asyncpg.Connection[asyncpg.Record]) -> None:
        self.url = url
        self._postmaster = postmaster
        self._monitor = monitor

    async def settle(self) -> None:
        await self._monitor.execute("ANALYZE")

    async def is_idle(self, question: str) -> bool:
        return bool(await self._monitor.fetchval(question))

    async def wal_bytes(self) -> int | None:
        return int(await self._monitor.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))

    def cpu_s(self) -> float:
        """CPU of the postmaster and all its descendants, without the cost of the harness's own queries."""
        times = psutil.Process(self._monitor.get_server_pid()).cpu_times()
        return machine.tree_cpu_s(self._postmaster) - times.user - times.system


class RedisStore:
    def __init__(self, socket: Path, pid: int) -> None:
        self.url = f"redis+socket://{socket}"
        self._socket = socket
        self._pid = pid

    async def settle(self) -> None:
        """Nothing to do."""

    async def is_idle(self, question: str) -> bool:
        return int(await self.ask(f"EXISTS {question}")) == 0

    async def wal_bytes(self) -> int | None:
        return None

    def cpu_s(self) -> float:
        return machine.tree_cpu_s(self._pid)

    async def until_ready(self, within_s: float) -> None:
        ends_at = time.monotonic() + within_s
        while True:
            try:
                await self.ask("PING")
            except OSError:
                if time.monotonic() > ends_at:
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    async def ask(self, command: str) -> str:
        """For one-line replies: a status or a number."""
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            writer.write(f"{command}\r\n".encode())
            line = (await reader.readline()).decode().strip()
        finally:
            writer.close()
            await writer.wait_closed()
        if line[:1] not in {"+", ":"}:
            raise RuntimeError(f"Redis says {line!r} to {command!r}")
        return line[1:]


class Postgres:
    """The server; databases are created and dropped as needed."""

    def __init__(self, embedded: EmbeddedPostgres, admin: asyncpg.Connection[asyncpg.Record]) -> None:
        self._embedded = embedded
        self._admin = admin

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, bin_dir: Path | None) -> AsyncIterator[Postgres]:
        with EmbeddedPostgres.start(folder / "postgres", bin_dir=bin_dir) as embedded:
            admin = await asyncpg.connect(embedded.url("postgres"))
            try:
                yield cls(embedded, admin)
            finally:
                await admin.close()

    async def description(self) -> dict[str, Any]:
        rows = await self._admin.fetch(
            "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY ($1)", list(SETTINGS_THAT_MATTER)
        )
        version = str(await self._admin.fetchval("SHOW server_version"))
        return {"version": version, "settings": {row["name"]: row["value"] for row in rows}}

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[PostgresStore]:
        name = f"bench_{secrets.token_hex(6)}"
        postmaster = self._embedded.pid
        if postmaster is None:
            raise RuntimeError("PostgreSQL has ended")
        await self._admin.execute(f"CREATE DATABASE {name}")
        try:
            url = self._embedded.url(name)
            monitor = await asyncpg.connect(url)
            try:
                await monitor.execute("CHECKPOINT")  # so that no peer pays for the writes of the one before
                yield PostgresStore(url, postmaster, monitor)
            finally:
                await monitor.close()
        finally:
            await self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Redis:
    def __init__(self, store: RedisStore, program: str) -> None:
        self._store = store
        self._program = program

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path) -> AsyncIterator[Redis]:
        program = install.redis_server()
        if program is None:
            raise RuntimeError("redis-server is not installed")
        socket, log = folder / "redis.sock", folder / "redis.log"
        server = await asyncio.create_subprocess_exec(
            program, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--logfile", str(log)
        )
        store = RedisStore(socket, server.pid)
        try:
            await store.until_ready(START_S)
            yield cls(store, program)
        finally:
            server.terminate()
            await server.wait()

    async def description(self) -> dict[str, Any]:
        asked = await asyncio.create_subprocess_exec(self._program, "--version", stdout=asyncio.subprocess.PIPE)
        told = (await asked.communicate())[0].decode()
        version = next((word[2:] for word in told.split() if word.startswith("v=")), told.strip())
        return {"version": version, "settings": "default settings: saved from time to time, no append-only file"}

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[RedisStore]:
        await self._store.ask("FLUSHALL")
        yield self._store
