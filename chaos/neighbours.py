"""Faults of a bad neighbour: one session holds something that others share. No process dies. The fault may delay only the jobs
that it holds; the checker judges the lag of all others, tenant by tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID, uuid4

import asyncpg
import httpx

from .database_server import session
from .fault_context import Applied, FaultContext

# Fires are written 60 s ahead: a planner that waits for the locked schedule delays the others only after that.
SCHEDULE_HELD_S = (80.0, 85.0)
KEY_CALL_S = 3.0  # how long the client of a busy key waits for one answer

_SCHEDULE = "SELECT id, name FROM sexton.jobs_recurring WHERE over_at IS NULL ORDER BY id OFFSET $1 LIMIT 1 FOR UPDATE"
_RUN = "SELECT id, job_id FROM sexton.runs WHERE state = 'running' ORDER BY claimed_at DESC LIMIT 1 FOR UPDATE SKIP LOCKED"


async def lock_schedule(context: FaultContext, hold_s: float) -> Applied:
    """As an application that writes a schedule in its own transaction and forgets to commit."""
    async with session(context.database_server) as connection, connection.transaction():
        rows = await connection.fetch(_SCHEDULE, context.rng.randrange(context.plan.schedules))
        await asyncio.sleep(hold_s)
    harmed = frozenset(row["id"] for row in rows)
    return Applied((), f"an open transaction held {rows[0]['name'] if rows else 'no schedule'} for {hold_s:.1f} s", harmed)


async def lock_run(context: FaultContext, hold_s: float) -> Applied:
    """Locks a run that is executing: its worker cannot report it."""
    async with session(context.database_server) as connection, connection.transaction():
        rows: Sequence[asyncpg.Record] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(hold_s):
                while not rows:
                    rows = await connection.fetch(_RUN)
                await asyncio.sleep(hold_s)
    harmed = frozenset(row["job_id"] for row in rows)
    return Applied((), f"an open transaction held run {rows[0]['id'] if rows else 'none'} for {hold_s:.1f} s", harmed)


async def hold_key(context: FaultContext, hold_s: float) -> Applied:
    """An open transaction has used an idempotency key, and a client sends it again and again over HTTP."""
    key = f"busy-{uuid4()}"
    harmed: set[UUID] = set()
    async with session(context.database_server) as connection:
        holding = connection.transaction()
        await holding.start()
        await connection.fetch("SELECT sexton.submit('nap', '{}', key => $1)", key)
        try:
            count = await _repeat(context, key, hold_s, harmed)
        finally:
            await holding.rollback()
    return Applied((), f"{count} requests with a key that an open transaction held for {hold_s:.1f} s", frozenset(harmed))


async def _repeat(context: FaultContext, key: str, hold_s: float, harmed: set[UUID]) -> int:
    count = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(hold_s), httpx.AsyncClient(base_url=context.members.api_url, timeout=KEY_CALL_S) as client:
            while True:
                count += 1
                with suppress(httpx.HTTPError):
                    body = {"handler": "nap", "payload": {}}
                    answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
                    harmed |= {UUID(answer.json()["id"])} if answer.is_success else set()
    return count
