"""Runs the fires of a past range on request: computed by the schedule of the job, written under its lock, one after the other.

A backfill is independent of the schedule: it moves no cursor, and the schedule skips no fire because of it
(`domain.schedule.overlap_decision`). The lock and the check for live runs make a repeated call harmless."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sexton.domain.fault import Invalid
from sexton.domain.schedule.backfill import LIMIT, BackfillSpec, Fires, end_of, nominal, spacing_s, too_many
from sexton.domain.schedule.recurrence import recurrence_of, seed_of
from sexton.errors import NotAllowedIn, NotFound
from sexton.operations.caller import Caller
from sexton.operations.cancel import end_waiting
from sexton.operations.versions import AtVersion
from sexton.store import clock as database_clock
from sexton.store import uuid7
from sexton.store.database import Connection
from sexton.store.work import backfills, jobs, runs, schedules
from sexton.store.work.schedules import Locked

from . import plan

STOPPED = "its backfill was stopped"

_JITTER = timedelta(hours=1)  # more than a fire may start before its nominal time


class Backfill(NamedTuple):
    """The fires that were written, or would be."""

    job_id: UUID
    version: int  # of the job: the backfill uses its schedule and payload
    from_at: datetime
    until: datetime
    fires: list[datetime]  # nominal times of the new runs, in the order in which they become due
    last_due_at: datetime | None
    already_ran_count: int  # left out: they have succeeded
    live_count: int  # left out: a run of the fire waits or runs
    dead_letter_count: int  # left out: their dead letters can be replayed
    undecided_count: int  # left out: the schedule will still plan them, or record them as missed
    dry_run: bool


class Stopped(NamedTuple):
    ended_count: int  # runs that will never start
    running_count: int  # runs that continue


class _Sorted(NamedTuple):
    fires: list[datetime]
    ran: set[datetime]
    live: set[datetime]
    buried: set[datetime]


async def start(
    connection: Connection,
    caller: Caller,
    wanted: AtVersion,
    asked: BackfillSpec,
    *,
    monotonic: Callable[[], float],
    now: datetime | None = None,
) -> Backfill:
    """Inside a transaction. `Invalid` names what is wrong."""
    job_id, from_at, apart_s = wanted.job_id, asked.from_at, spacing_s(asked.spacing)
    locked = await _lock(connection, wanted)
    moment = await database_clock.now(connection, now=now)
    until = end_of(from_at, asked.until, moment)
    recurrence = recurrence_of(locked.recurrence_json)
    if asked.overlap == "parallel" and recurrence.overlap.policy != "parallel":
        raise Invalid("overlap", f"its own policy is {recurrence.overlap.policy}, so one runs at a time; leave it out")
    if asked.fires == "missing":
        await _require_history(connection, locked, from_at)
    rule, seed = plan.known(locked.schedule_json), seed_of(locked.tenant, locked.name, locked.id)
    # Fires before the cursor are decided. Fires that a resume would only record as paused may be backfilled before it.
    is_skipped = locked.paused_at is not None and recurrence.on_resume == "skip"
    decided_at = moment if is_skipped or locked.cursor_at is None else min(locked.cursor_at, moment)
    found = nominal(rule, seed, from_at, until, monotonic)
    chosen = await _sort(connection, job_id, [at for at in found if at <= decided_at], from_at, until, asked.fires)
    if len(chosen.fires) > LIMIT:
        raise too_many("fires to run", LIMIT, chosen.fires[LIMIT])
    last_due_at = moment + timedelta(seconds=(len(chosen.fires) - 1) * apart_s) if chosen.fires else None
    if chosen.fires and not asked.dry_run:
        is_alone = asked.overlap == "queue"
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
        dry_run=asked.dry_run,
    )


async def stop(
    connection: Connection, caller: Caller, job_id: UUID, *, reason: str = STOPPED, now: datetime | None = None
) -> Stopped:
    """Inside a transaction. Waiting runs never start, and history records it. Running ones continue, and so does the
    schedule."""
    if await schedules.lock(connection, job_id) is None:
        raise NotFound(f"there is no recurring job {job_id}")
    leases = [lease for lease in await runs.of_job(connection, job_id) if lease.origin == "backfill"]
    ended_count = await end_waiting(connection, caller, leases, reason=reason, now=now)
    return Stopped(ended_count, len(leases) - ended_count)


async def _lock(connection: Connection, wanted: AtVersion) -> Locked:
    locked = await schedules.lock(connection, wanted.job_id)
    if locked is None:
        status = (await jobs.show(connection, wanted.job_id)).status
        raise NotAllowedIn("backfill", status, "only a recurring job has fires to backfill; this is a one-time job")
    if locked.over_as in ("cancelled", "failed"):
        raise NotAllowedIn("backfill", locked.over_as)
    wanted.require(locked.version, "look at its fires again")
    if locked.tzdata is None:
        raise NotAllowedIn("backfill", "pending", "no scheduler has read its schedule yet; try again in a moment")
    return locked


async def _require_history(connection: Connection, locked: Locked, from_at: datetime) -> None:
    """For fires older than the history, it is not known whether they ran. Before the job existed there were no fires."""
    known_from = await backfills.history_from(connection) + _JITTER
    if max(from_at, locked.submitted_at) < known_from:
        at = f"{known_from:%Y-%m-%dT%H:%M:%SZ}"
        raise Invalid(
            "from", f"history goes back to {at}, so it is not known what ran before; begin there, or set fires to all"
        )


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
