"""Faults of an administrator: the database answers, but refuses for a while. No process dies, and work goes on by itself soon
after the end of the fault. The members connect as a role with few rights, which can lose those as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .database_server import OURS, ROLE, session
from .fault_context import Applied, FaultContext

_TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1"
)


async def lock_table(context: FaultContext, hold_s: float) -> Applied:
    async with session(context.database_server) as connection, connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(hold_s)
    return Applied((), f"the table of runs was locked for {hold_s:.1f} s")


async def rename_table(context: FaultContext, hold_s: float) -> Applied:
    begin, end = "ALTER TABLE sexton.runs RENAME TO runs_elsewhere", "ALTER TABLE sexton.runs_elsewhere RENAME TO runs"
    async with _between(context, begin, end):
        await asyncio.sleep(hold_s)
    return Applied((), f"the table of runs had another name for {hold_s:.1f} s")


async def rewrite_tables(context: FaultContext, hold_s: float) -> Applied:
    """Each VACUUM FULL locks its table against all others until it is rewritten."""
    ends_at, count = time.monotonic() + hold_s, 0
    async with session(context.database_server) as connection:
        while time.monotonic() < ends_at:
            for table in ("runs", "jobs", "executions"):
                await connection.execute(f"VACUUM FULL sexton.{table}")
                count += 1
    return Applied((), f"tables were rewritten {count} times in {hold_s:.1f} s")


async def refuse_writes(context: FaultContext, hold_s: float) -> Applied:
    """Makes the database read-only by default, as an administrator does before maintenance."""
    begin, end = "ALTER DATABASE sexton SET default_transaction_read_only = on", "default_transaction_read_only"
    async with _between(context, begin, f"ALTER DATABASE sexton RESET {end}", reconnect=True):
        await asyncio.sleep(hold_s)
    return Applied((), f"the database was read-only for {hold_s:.1f} s")


async def revoke_rights(context: FaultContext, hold_s: float) -> Applied:
    begin = f"REVOKE ALL ON ALL TABLES IN SCHEMA sexton FROM {ROLE}"
    async with _between(context, begin, f"GRANT ALL ON ALL TABLES IN SCHEMA sexton TO {ROLE}"):
        await asyncio.sleep(hold_s)
    return Applied((), f"the role had no rights on the tables for {hold_s:.1f} s")


async def lock_out_role(context: FaultContext, hold_s: float) -> Applied:
    async with _between(context, f"ALTER ROLE {ROLE} NOLOGIN", f"ALTER ROLE {ROLE} LOGIN", reconnect=True):
        await asyncio.sleep(hold_s)
    return Applied((), f"the role was not permitted to log in for {hold_s:.1f} s")


async def limit_statements(context: FaultContext, hold_s: float) -> Applied:
    """The services set timeouts of their own, so that the role's has no effect on them."""
    begin, end = f"ALTER ROLE {ROLE} SET statement_timeout = '1ms'", f"ALTER ROLE {ROLE} RESET statement_timeout"
    async with _between(context, begin, end, reconnect=True):
        await asyncio.sleep(hold_s)
    return Applied((), f"statements of the role had a timeout of 1 ms for {hold_s:.1f} s")


@asynccontextmanager
async def _between(context: FaultContext, begin: str, end: str, *, reconnect: bool = False) -> AsyncIterator[None]:
    """`reconnect`: what begins applies to new connections, so the present ones are terminated."""
    async with session(context.database_server) as connection:
        await connection.execute(begin)
        try:
            if reconnect:
                await connection.execute(_TERMINATE, OURS)
            yield
        finally:
            await connection.execute(end)
