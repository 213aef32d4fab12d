"""An application that begins a transaction, locks the row of a schedule, a run or a limit, and leaves it open for a while.

It has a random generator of its own and acts between two steps, so that a seed without it has the same history."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg

from sexton.store.database import LockTimeouts, Postgres

if TYPE_CHECKING:
    from .world import World

WAIT_S = 0.1
HOLD_S, REST_S = (2.0, 25.0), (0.5, 8.0)
LATE_S = 10.0  # rows that are not locked are planned and promoted within this time, if nothing else delays them
ROWS = {
    "schedule": "SELECT id AS key, id AS job_id FROM sexton.jobs_recurring WHERE over_at IS NULL ORDER BY id",
    "run": "SELECT id AS key, job_id FROM sexton.runs ORDER BY id",
    "limit": "SELECT key, NULL AS job_id FROM sexton.limits ORDER BY key",
}
LOCK = {
    "schedule": "SELECT FROM sexton.jobs_recurring WHERE id = $1 FOR UPDATE SKIP LOCKED",
    "run": "SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE SKIP LOCKED",
    "limit": "SELECT FROM sexton.limits WHERE key = $1 FOR UPDATE SKIP LOCKED",
}
LATE = """
SELECT id::text FROM sexton.jobs_recurring WHERE plan_at < $1::timestamptz AND id <> ALL ($2::uuid[])
UNION ALL
SELECT id::text FROM sexton.runs WHERE state = 'waiting' AND due_at < $1 AND job_id <> ALL ($2)
"""


async def impatient(url: str) -> Postgres:
    """A service that waits for a row of an open transaction waits until its timeout: no other step runs in between."""
    return await Postgres.open(url, size=6, timeouts=LockTimeouts(lock_s=WAIT_S, submit_s=WAIT_S))


class OpenTransactions:
    def __init__(self, world: World, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._world, self._connection = world, connection
        self._rng = Random(world.seed * 1_000_003 + 1)
        self.is_on = True
        self.hold_s = HOLD_S
        self.kinds = tuple(ROWS)
        self.judges = False  # whether it looks for unlocked rows that are late
        self._is_open = False
        self._next_s = 0.0  # when it begins or ends the next transaction
        self._due_since: dict[str, float] = {}  # rows that are due and not held
        self._held: list[tuple[float, Any]] = []  # jobs, and until when they may be late: also for a while after the lock

    async def act(self) -> None:
        now_s = self._world.clock.monotonic()
        if self._is_open and (now_s >= self._next_s or not self._world.faults_on):
            await self._connection.execute("ROLLBACK")
            self._is_open, self._next_s = False, now_s + self._rng.uniform(*REST_S)
            self._held = [(min(until_s, now_s), job_id) for until_s, job_id in self._held]
        elif not self._is_open and self.is_on and self._world.faults_on and now_s >= self._next_s:
            await self._begin(now_s)
        if self.judges and self._world.faults_on:
            await self._judge(now_s)

    async def _begin(self, now_s: float) -> None:
        kind = self._rng.choice(self.kinds)
        rows = await self._connection.fetch(ROWS[kind])
        self._next_s = now_s + self._rng.uniform(*(self.hold_s if rows else REST_S))
        if not rows:
            return
        row = self._rng.choice(rows)
        await self._connection.execute("BEGIN")
        await self._connection.fetch(LOCK[kind], row["key"])
        self._is_open = True
        self._world.note(f"an open transaction holds {kind} {row['key']}")
        self._world.journal.seen[f"{kind} held by an open transaction"] += 1
        if row["job_id"] is not None:
            self._held.append((self._next_s, row["job_id"]))

    async def _judge(self, now_s: float) -> None:
        held = [job_id for until_s, job_id in self._held if until_s + LATE_S > now_s]
        rows = await self._world.observer.fetch(LATE, self._world.clock.database_now(), held)
        # From the first look that found it due: a guardian that is late ends a pause as of the time when it should have ended.
        self._due_since = {row["id"]: self._due_since.get(row["id"], now_s) for row in rows}
        late = [key for key, since_s in self._due_since.items() if now_s - since_s > LATE_S]
        if late:
            self._world.journal.violations.append(f"an open transaction delays no other: {late[0]} is late")

    async def close(self) -> None:
        await self._connection.close()
