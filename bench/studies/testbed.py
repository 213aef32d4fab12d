"""What the studies share: an exclusive server, and the CPU that one of its processes and this process have used."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import psutil

from bench.server import Server, fresh_server
from bench.testbed import machine_to_ourselves

Conn = asyncpg.Connection  # a plain asyncpg connection: a study measures statements, not the store around them


class Used(NamedTuple):
    """Usage since the reading that returned it."""

    client_s: float
    server_s: float  # the server process of the connection
    wal_bytes: int
    dead_tuples: int


@asynccontextmanager
async def study_server() -> AsyncIterator[Server]:
    """A migrated, empty database on a durable server for this study, as in the scenarios."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-study-"))
    try:
        with machine_to_ourselves(say):
            async with fresh_server(folder, None, None) as server:
                # Statements are not counted here: a log line for each would cost more where more are sent.
                await server.monitor.execute("ALTER SYSTEM SET log_statement = 'none'")
                await server.monitor.execute("SELECT pg_reload_conf()")
                yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Meter:
    """CPU of this process and of one server process, WAL and dead rows of the whole server, between two readings."""

    def __init__(self, server: Server, backend_pid: int) -> None:
        self._server, self._backend = server, psutil.Process(backend_pid)

    async def read(self) -> Used:
        await self._server.monitor.execute("SELECT pg_stat_clear_snapshot()")
        (row,) = await self._server.monitor.fetch(
            """SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal,
                 (SELECT sum(n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables
                  WHERE schemaname IN ('sexton', 'study')) AS dead"""
        )
        own, backend = os.times(), self._backend.cpu_times()
        return Used(own.user + own.system, backend.user + backend.system, row["wal"], row["dead"] or 0)


def since(before: Used, after: Used) -> Used:
    return Used(
        after.client_s - before.client_s,
        after.server_s - before.server_s,
        after.wal_bytes - before.wal_bytes,
        after.dead_tuples - before.dead_tuples,
    )


def tell(**figures: Any) -> None:
    """One JSON object per line."""
    shown = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps(shown), flush=True)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
