"""The PostgreSQL under measurement: an embedded one, created for this repetition, durable, with default settings; or a fresh
database on the server in SEXTON_DATABASE_URL."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil

from . import machine, product

OURS = "sexton bench"  # application_name of the harness's own statements, which are not counted
SETTINGS_THAT_MATTER = (
    "autovacuum",
    "autovacuum_naptime",
    "checkpoint_timeout",
    "commit_delay",
    "fsync",
    "full_page_writes",
    "io_method",
    "jit",
    "max_connections",
    "max_wal_size",
    "shared_buffers",
    "shared_preload_libraries",
    "synchronous_commit",
    "wal_compression",
    "wal_level",
    "wal_sync_method",
    "work_mem",
)
# The wheel has no contrib modules, so statements are counted in the log, which costs about 10 µs per statement.
LOGGING = {"log_statement": "all", "log_parameter_max_length": "0", "log_line_prefix": "%a|"}
_STATEMENT = re.compile(rb"^(?!" + OURS.encode() + rb")[^|\n]*\|LOG:  (?:statement|execute [^:]*): ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counters:
    wal_bytes: int
    transactions: int
    dead_tuples: int  # dead row versions, from updates and deletes
    hot_updates: int
    statements: int | None


class Server:
    def __init__(self, url: str, monitor: asyncpg.Connection[asyncpg.Record], log: Path | None, pid: int | None) -> None:
        self.url = url
        self.monitor = monitor
        self._log, self._pid = log, pid

    @property
    def is_local(self) -> bool:
        return self._pid is not None

    @property
    def pid(self) -> int | None:
        """Of the postmaster; none if it runs on another machine."""
        return self._pid

    def cpu_s(self) -> float | None:
        """The postmaster and all its descendants; empty if it runs on another machine."""
        return None if self._pid is None else machine.tree_cpu_s(self._pid)

    async def counters(self) -> Counters:
        """Waits for the counters: a server process publishes them once a second at most, and always when it ends."""
        row = await self.monitor.fetchrow("""
            SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS wal_bytes,
              (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()) AS transactions,
              t.dead_tuples, t.hot_updates
            FROM (SELECT sum(n_tup_upd + n_tup_del)::bigint AS dead_tuples, sum(n_tup_hot_upd)::bigint AS hot_updates
                  FROM pg_stat_user_tables WHERE schemaname = 'sexton') t""")
        if row is None:
            raise RuntimeError("the server's counters cannot be read")
        return Counters(
            row["wal_bytes"], row["transactions"], row["dead_tuples"], row["hot_updates"], statements=await self._statements()
        )

    async def hot_statements(self, limit: int = 6) -> list[dict[str, Any]] | None:
        """Time by statement; only if pg_stat_statements is loaded."""
        if not await self._has_pg_stat_statements():
            return None
        rows = await self.monitor.fetch(
            """SELECT calls, rows, round(total_exec_time::numeric, 1)::float8 AS total_ms,
                 round(mean_exec_time::numeric, 3)::float8 AS mean_ms, wal_bytes::bigint AS wal_bytes,
                 left(regexp_replace(trim(regexp_replace(query, '--[^\n]*\n', '', 'g')), '\\s+', ' ', 'g'), 120) AS query
               FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
               ORDER BY total_exec_time DESC LIMIT $1""",
            limit,
        )
        return [dict(row) for row in rows]

    async def description(self) -> dict[str, Any]:
        rows = await self.monitor.fetch(
            "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY ($1)", list(SETTINGS_THAT_MATTER)
        )
        version = str(await self.monitor.fetchval("SHOW server_version"))
        return {"version": version, "settings": {row["name"]: row["value"] for row in rows}}

    async def _statements(self) -> int | None:
        if self._log is not None:
            return len(_STATEMENT.findall(self._log.read_bytes()))
        if await self._has_pg_stat_statements():
            return int(
                await self.monitor.fetchval(
                    "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements "
                    "WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            )
        return None

    async def _has_pg_stat_statements(self) -> bool:
        return bool(await self.monitor.fetchval("SELECT to_regclass('pg_stat_statements') IS NOT NULL"))


@asynccontextmanager
async def fresh_server(folder: Path, external_url: str | None, bin_dir: Path | None) -> AsyncIterator[Server]:
    """A migrated, empty Sexton database for this measurement only."""
    if external_url is not None:
        async with _fresh_database(external_url) as url, _server(url, log=None) as server:
            yield server
        return
    settings = dict(LOGGING)
    if bin_dir is not None and (bin_dir.parent / "lib" / "pg_stat_statements.so").exists():
        settings["shared_preload_libraries"] = "pg_stat_statements"
    data_dir = folder / "postgres"
    with product.embedded_postgres().start(data_dir, settings=settings, bin_dir=bin_dir) as postgres:
        async with _server(postgres.url(), log=data_dir / "server.log") as server:
            yield server


@asynccontextmanager
async def _server(url: str, log: Path | None) -> AsyncIterator[Server]:
    monitor = await asyncpg.connect(url, server_settings={"application_name": OURS})
    try:
        if await monitor.fetchval("SELECT 'pg_stat_statements' = ANY (string_to_array(current_setting($1), ','))", _PRELOADED):
            await monitor.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        await product.migrate(url)
        yield Server(url, monitor, log, _postmaster_of(monitor.get_server_pid()))
    finally:
        await monitor.close()


@asynccontextmanager
async def _fresh_database(url: str) -> AsyncIterator[str]:
    name = f"sexton_bench_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


def _postmaster_of(backend_pid: int) -> int | None:
    """A process id from another machine: most likely it does not exist here, or is not a PostgreSQL."""
    try:
        backend = psutil.Process(backend_pid)
        return int(backend.ppid()) if backend.name().startswith("postgres") else None
    except psutil.NoSuchProcess:
        return None


_PRELOADED = "shared_preload_libraries"
