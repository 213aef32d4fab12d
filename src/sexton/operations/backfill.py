"""The fires of a past range, run on demand: computed by the job's own rule, written under its lock, one after the other.

A backfill is beside the schedule: it moves no cursor, and no fire of the schedule is skipped because of it
(`domain.schedule.crowd`). The lock and what lives already make a repeated call harmless."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sexton.domain.duration import Duration
from sexton.domain.fault import Invalid
from sexton.domain.schedule.backfill import LIMIT, SPACING_S, Fires, Overlap, end_of, nominal, spacing_s, too_many
from sexton.domain.schedule.recurrence import recurrence_of, seed_of
from sexton.errors import NotAllowedIn, NotFound, VersionMismatch
from sexton.store import clock as database_clock
from sexton.store import uuid7
from sexton.store.database import Connection
from sexton.store.work import backfills, jobs, runs, schedules
from sexton.store.work.schedules import Locked

from . import plan
from .caller import Caller
from .cancel import end_waiting

STOPPED = "its backfill was stopped"

_JITTER = timedelta(hours=1)  # more than any fire may start ahead of its nominal time


class Backfill(NamedTuple):
    """What was written, or would be."""

    job_id: UUID
    version: int  # of the job, whose rule and payload it is
    from_at: datetime
    until: datetime
    fires: list[datetime]  # nominal times of the new runs, in the order in which they become due
    last_due_at: datetime | None
    already_ran_count: int  # left out: they have succeeded
    live_count: int  # left out: a run of them waits or runs
    dead_letter_count: int  # left out: to be replayed
    undecided_count: int  # left out: the schedule itself will still plan them, or write them down as missed
    dry_run: bool


class Stopped(NamedTuple):
    ended_count: int  # runs that will never start
    running_count: int  # runs that go on


class _Sorted(NamedTuple):
    fires: list[datetime]
    ran: set[datetime]
    live: set[datetime]
    buried: set[datetime]


async def start(
    connection: Connection,
    caller: Caller,
    job_id: UUID,
    *,
    from_at: datetime,
    until: datetime | None = None,
    fires: Fires = "missing",
    spacing: Duration = SPACING_S,
    overlap: Overlap = "queue",
    dry_run: bool = False,
    version: int | None = None,
    monotonic: Callable[[], float],
    now: datetime | None = None,
) -> Backfill:
    """Inside a transaction. From `from_at` to before `until`, which is now if it is left out; `Invalid` names what is wrong."""
    apart_s = spacing_s(spacing)
    locked = await _lock(connection, job_id, version)
    moment = await database_clock.now(connection, now=now)
    until = end_of(from_at, until, moment)
    recurrence = recurrence_of(locked.recurrence_json)
    if overlap == "parallel" and recurrence.overlap.policy != "parallel":
        raise Invalid("overlap", f"its own policy is {recurrence.overlap.policy}, so one runs at a time; leave it out")
    if fires == "missing":
        await _require_history(connection, locked, from_at)
    rule, seed = plan.known(locked.schedule_json), seed_of(locked.tenant, locked.name, locked.id)
    # What lies behind the cursor is decided. What a resume would only write down as paused may be had before it.
    is_skipped = locked.paused_at is not None and recurrence.on_resume == "skip"
    decided_at = moment if is_skipped or locked.cursor_at is None else min(locked.cursor_at, moment)
    found = nominal(rule, seed, from_at, until, monotonic)
    chosen = await _sort(connection, job_id, [at for at in found if at <= decided_at], from_at, until, fires)
    if len(chosen.fires) > LIMIT:
        raise too_many("fires to run", LIMIT, chosen.fires[LIMIT])
    last_due_at = moment + timedelta(seconds=(len(chosen.fires) - 1) * apart_s) if chosen.fires else None
    if chosen.fires and not dry_run:
        is_alone = overlap == "queue"
        written = await backfills.write(connection, job_id, chosen.fires, spacing_s=apart_s, is_alone=is_alone, now=now)
        last_due_at = max(written, default=None)
        await runs.announce(connection, (), due_soon=True)
    return Backfill(
        job_id=job_id,
        version=locked.version,
        from_at=from_at,
        until=until,
        fires=chosen.fires,
        last_due_at=last_due_at,
        already_ran_count=len(chosen.ran),
        live_count=len(chosen.live),
        dead_letter_count=len(chosen.buried),
        undecided_count=sum(at > decided_at for at in found),
        dry_run=dry_run,
    )


async def stop(
    connection: Connection, caller: Caller, job_id: UUID, *, reason: str = STOPPED, now: datetime | None = None
) -> Stopped:
    """Inside a transaction. What waits never starts, and history says so; what runs goes on, and so does the schedule."""
    if await schedules.lock(connection, job_id) is None:
        raise NotFound(f"there is no recurring job {job_id}")
    leases = [lease for lease in await runs.of_job(connection, job_id) if lease.origin == "backfill"]
    ended_count = await end_waiting(connection, caller, leases, reason=reason, now=now)
    return Stopped(ended_count, len(leases) - ended_count)


async def _lock(connection: Connection, job_id: UUID, version: int | None) -> Locked:
    locked = await schedules.lock(connection, job_id)
    if locked is None:
        status = (await jobs.show(connection, job_id)).status
        raise NotAllowedIn("backfill", status, "only a recurring job has fires to backfill; this is a one-time job")
    if locked.over_as in ("cancelled", "failed"):
        raise NotAllowedIn("backfill", locked.over_as)
    if version is not None and version != locked.version:
        raise VersionMismatch(f"job {job_id} is at version {locked.version}, not {version}; look at its fires again")
    if locked.tzdata is None:
        raise NotAllowedIn("backfill", "pending", "no scheduler has read its schedule yet; try again in a moment")
    return locked


async def _require_history(connection: Connection, locked: Locked, from_at: datetime) -> None:
    """Of what is older than all history nobody can say whether it has run; before the job there was nothing."""
    known_from = await backfills.history_from(connection) + _JITTER
    if max(from_at, locked.submitted_at) < known_from:
        at = f"{known_from:%Y-%m-%dT%H:%M:%SZ}"
        raise Invalid("from", f"history goes back to {at}, so what ran before is not known; begin there, or say fires: all")


async def _sort(
    connection: Connection, job_id: UUID, found: list[datetime], from_at: datetime, until: datetime, fires: Fires
) -> _Sorted:
    oldest = uuid7.floor(from_at - _JITTER)
    handled: dict[str, set[datetime]] = {"ran": set(), "lives": set(), "buried": set()}
    for fire_at, how in await backfills.handled(connection, job_id, from_at=from_at, until=until, oldest=oldest):
        handled[how].add(fire_at)
    live = handled["lives"].intersection(found)
    if fires == "all":
        return _Sorted([at for at in found if at not in live], set(), live, set())
    ran = handled["ran"].intersection(found) - live
    buried = handled["buried"].intersection(found) - live - ran
    return _Sorted([at for at in found if at not in live | ran | buried], ran, live, buried)
