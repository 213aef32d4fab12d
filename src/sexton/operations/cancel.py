"""Ends a job: waiting runs never start, running ones are asked to stop. Each call needs a transaction:
rule "lock, then decide"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import NamedTuple
from uuid import UUID

from sexton.domain import run
from sexton.domain.outcome import Cancelled
from sexton.domain.run import Lease
from sexton.errors import NotAllowedIn, NotFound
from sexton.store.database import Connection
from sexton.store.uuid7 import is_recurring
from sexton.store.work import jobs, runs, schedules

from .caller import Caller
from .recurring import due_schedules

CANCELLED = "cancelled on request"
_NO_RNG = Random(0)  # noqa: S311  (a cancellation draws no random number)


class Cancellation(NamedTuple):
    ended_count: int  # runs that will never start
    asked_count: int  # running ones, asked to stop


async def cancel(
    connection: Connection, caller: Caller, job_id: UUID, *, reason: str = CANCELLED, now: datetime | None = None
) -> Cancellation:
    taken_back = await end_schedule(connection, caller, job_id, reason=reason, now=now) if is_recurring(job_id) else 0
    leases = await runs.of_job(connection, job_id)
    if not leases and not taken_back:
        raise NotAllowedIn("cancel", (await jobs.show(connection, job_id)).status)
    done = await stop_runs(connection, caller, leases, reason=reason, now=now)
    return Cancellation(taken_back + done.ended_count, done.asked_count)


async def stop_runs(
    connection: Connection, caller: Caller, leases: Sequence[Lease], *, reason: str, now: datetime | None = None
) -> Cancellation:
    """Ends the waiting runs, and asks the running ones to stop."""
    ended_count = await end_waiting(connection, caller, leases, reason=reason, now=now)
    running = [lease.run_id for lease in leases if lease.worker_id is not None]
    if running:
        await runs.request_cancel(connection, running, now=now)
        await runs.announce_cancel(connection)
    return Cancellation(ended_count, len(running))


async def end_waiting(
    connection: Connection, caller: Caller, leases: Sequence[Lease], *, reason: str, now: datetime | None = None
) -> int:
    """Ends those of the runs that no worker holds. Returns how many."""
    waiting = [run.report(lease, Cancelled(reason), _NO_RNG) for lease in leases if lease.worker_id is None]
    if waiting:
        await runs.finish(connection, waiting, now=now)
    return len(waiting)


async def end_schedule(
    connection: Connection, caller: Caller, job_id: UUID, *, reason: str, now: datetime | None = None
) -> int:
    """Plans no further fire, and ends the runs that no worker has started. Returns how many; 0 if the schedule was already
    over. Started runs continue. History records every fire that was due; a planned fire that was not due leaves no row."""
    locked = await schedules.lock(connection, job_id)
    if locked is None:
        raise NotFound(f"there is no job {job_id}")
    if locked.over_at is not None:
        return 0
    await due_schedules.decide_due(connection, caller, [locked], now=now)
    ended_count = await schedules.end_fires(connection, job_id, reason=reason, now=now)
    await schedules.end(connection, job_id, how="cancelled", reason=reason, now=now)
    return max(ended_count, 1)  # a schedule with no planned fire ends as well
