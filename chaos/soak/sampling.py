"""Samples every few seconds: memory and files of each process, connections, dead rows, and the size of each table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import asyncpg
import psutil

Points = list[list[float]]
Series = dict[str, Points]

_MIB = 2**20
# Tables by their root, so that a new partition is not a new table. The size includes TOAST.
_TABLES = """
SELECT coalesce(pg_partition_root(c.oid), c.oid)::regclass::text AS name,
  sum(pg_table_size(c.oid))::bigint AS table_bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes
FROM pg_class c WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind = 'r' GROUP BY 1"""
_DATABASE = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend')::int
    AS connections,
  (SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'sexton')::bigint AS dead_rows,
  (SELECT count(*) FROM sexton.runs WHERE state = 'ready')::int AS ready_runs"""


class Sampler:
    """`processes`, by their names in the report."""

    def __init__(self, monitor: asyncpg.Connection[Any], processes: Mapping[str, int], postmaster: int | None) -> None:
        self._monitor, self._postmaster = monitor, postmaster
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._began_s = time.monotonic()
        self.series: Series = {}

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self._began_s

    async def run(self, every_s: float) -> None:
        """Samples until cancelled."""
        while True:
            began_s = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began_s)))

    async def look(self) -> None:
        at_s = self.passed_s
        found = await asyncio.to_thread(self._of_processes) | await self._of_database()
        for name, value in found.items():
            self.series.setdefault(name, []).append([at_s, value])

    def _of_processes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, process in self._processes.items():
            found[f"memory {name}"] = process.memory_info().rss / _MIB
            found[f"files {name}"] = process.num_fds()
        if self._postmaster is not None:
            found["memory postgres"] = _own_bytes(self._postmaster) / _MIB
        return found

    async def _of_database(self) -> dict[str, float]:
        row = await self._monitor.fetchrow(_DATABASE)
        if row is None:
            raise RuntimeError("the database cannot be read")
        found: dict[str, float] = {"connections": row[0], "dead rows": row[1] or 0, "ready runs": row[2]}
        for name, table_bytes, index_bytes in await self._monitor.fetch(_TABLES):
            plain = name.removeprefix("sexton.")
            found[f"table {plain}"] = table_bytes / _MIB
            found[f"index {plain}"] = index_bytes / _MIB
        return found


def _own_bytes(postmaster: int) -> float:
    """The private memory of the server and its processes."""
    total = 0
    root = psutil.Process(postmaster)
    for process in (root, *root.children(recursive=True)):
        try:
            total += process.memory_full_info().uss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total
