"""Operations of a person on a recurring job: submit, edit, pause, resume, run once outside its schedule.

Each call needs a transaction, and follows rule "job row first": it locks the job, removes the runs that no worker has started,
and plans again before it answers. So no fire of an old version starts after the answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.job import BATCH_LIMIT
from sexton.domain.schedule.recurrence import recurrence_of
from sexton.errors import NotAllowedIn, NotFound
from sexton.operations.caller import Caller
from sexton.operations.versions import AtVersion
from sexton.store import clock as database_clock
from sexton.store.database import Connection
from sexton.store.work import failures, jobs, runs, schedules
from sexton.store.work.failures import Failing
from sexton.store.work.jobs import JobView
from sexton.store.work.schedules import Locked, Written

from . import due_schedules, plan, replan
from .forecast import Revise

PLAN_LIMIT = 1_000  # at most this many are planned before the answer
NOT_STARTED = ("waiting", "ready", "parked", "blocked")


async def submit(
    connection: Connection, caller: Caller, documents: Sequence[object], *, now: datetime | None = None
) -> list[Written]:
    """Creates schedules, updates those whose name exists, and plans the changes."""
    written = await _write(connection, caller, documents, now=now)
    await _plan(connection, caller, [one.id for one in written if one.changed], now)
    return written


async def submit_many(
    connection: Connection, caller: Caller, documents: Sequence[object], *, now: datetime | None = None
) -> list[Written]:
    """As `submit`, in any number. With more than `PLAN_LIMIT`, none is planned here, so that other callers need not wait; the
    planners do it."""
    write = submit if len(documents) <= PLAN_LIMIT else _write
    written: list[Written] = []
    for start in range(0, len(documents), BATCH_LIMIT):
        written += await write(connection, caller, documents[start : start + BATCH_LIMIT], now=now)
    return written


async def _write(
    connection: Connection, caller: Caller, documents: Sequence[object], *, now: datetime | None = None
) -> list[Written]:
    replaced = [await _lock(connection, job_id, "edit") for job_id in await schedules.lock_named(connection, documents)]
    if not replaced:
        return await schedules.submit(connection, documents, now=now)
    at = await _decide_due(connection, caller, replaced, now)
    written = await schedules.submit(connection, documents, now=at)
    await _pause_again(connection, replaced, at)
    return written


async def edit(
    connection: Connection, caller: Caller, wanted: AtVersion, document: object, *, now: datetime | None = None
) -> JobView:
    """The next version applies from the next fire."""
    job_id = wanted.job_id
    locked = await _lock(connection, job_id, "edit")
    wanted.require(locked.version, "read it again before you edit it")
    if await schedules.keeps_rule(connection, job_id, document):
        await schedules.revise(connection, job_id, document, now=now)
    else:
        at = await _decide_due(connection, caller, [locked], now)
        await schedules.revise(connection, job_id, document, now=at)
        await _pause_again(connection, [locked], at)
    await _plan(connection, caller, [job_id], now)
    return await jobs.show(connection, job_id)


async def _decide_due(connection: Connection, caller: Caller, locked: Sequence[Locked], now: datetime | None) -> datetime:
    """About the fires that are due by the rule that is about to be replaced: the new rule does not have them. Returns the
    time of the decision, which is that of the new rule too."""
    at = await database_clock.now(connection, now=now)
    await due_schedules.decide_due(connection, caller, locked, may_end=False, now=at)
    await schedules.decided(connection, [one.id for one in locked], now=at)
    return at


async def _pause_again(connection: Connection, locked: Sequence[Locked], at: datetime) -> None:
    """History records what the decision wrote for a paused job. Its pause goes on by the new rule."""
    for one in locked:
        if one.paused_at is not None:
            taken_back = await schedules.unplan(connection, one.id, told="paused", now=at)
            await schedules.pause_again(connection, one.id, taken_back)


async def revise(
    connection: Connection, caller: Caller, wanted: AtVersion, revision: Revise, *, now: datetime | None = None
) -> JobView:
    """As `edit`, where the next definition is computed from the current one, which is locked before it is read."""
    if await schedules.lock(connection, wanted.job_id) is None:
        raise NotFound(f"there is no job {wanted.job_id}")
    view = await jobs.show(connection, wanted.job_id)
    document = revision(view, await database_clock.now(connection, now=now))
    return await edit(connection, caller, wanted, document, now=now)


class Pause(NamedTuple):
    note: str | None = None  # the reason
    resume_at: datetime | None = None  # it resumes by itself


NO_NOTE = Pause()


async def pause(
    connection: Connection, caller: Caller, job_id: UUID, asked: Pause = NO_NOTE, *, now: datetime | None = None
) -> JobView:
    """Nothing fires until the job is resumed. Running runs continue. If the job is already paused, only the note changes."""
    locked = await _lock(connection, job_id, "pause")
    if locked.paused_at is None:
        await _stop(connection, caller, job_id, asked, now)
    else:
        await schedules.note(connection, job_id, by=caller.actor, note=asked.note, resume_at=asked.resume_at)
    return await jobs.show(connection, job_id)


async def pause_failing(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> Failing | None:
    """Pauses a job after `pause_after` failures in a row. They are counted under its lock, so that only one of several nodes
    does it. A resume restarts the count. If another session has locked the job or its runs, the next planning looks again."""
    locked = await schedules.lock(connection, job_id, waits=False)
    if locked is None or locked.over_at is not None or locked.paused_at is not None:
        return None
    most = recurrence_of(locked.recurrence_json).pause_after
    failing = next(iter(await failures.consecutive(connection, [job_id])), None)
    if most is None or failing is None or failing.failed_count < most:
        return None
    if not await schedules.hold_runs(connection, [job_id], NOT_STARTED):
        return None
    fires = "its last fire failed" if failing.failed_count == 1 else f"its last {failing.failed_count:,} fires failed"
    await _stop(connection, caller, job_id, Pause(note=f"{fires}: {failing.error}"), now)
    return failing


async def resume(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """The job fires again. The fires of the pause follow `on_resume`, and the ledger records them as paused."""
    locked = await _lock(connection, job_id, "resume")
    if locked.paused_at is not None:
        await _go_on(connection, caller, job_id, now)
    return await jobs.show(connection, job_id)


async def resume_due(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> None:
    """Ends a pause whose `resume_at` has come, unless that changed meanwhile. The pause ended at `resume_at`, however late this
    call is, so later fires do not count as paused."""
    resume_at = await schedules.lock_due_to_resume(connection, job_id, now=now)
    if resume_at is not None:
        await _go_on(connection, caller, job_id, resume_at)


async def _stop(connection: Connection, caller: Caller, job_id: UUID, asked: Pause, now: datetime | None) -> None:
    taken_back = await schedules.unplan(connection, job_id, told="paused", now=now)
    await schedules.pause(connection, job_id, taken_back, by=caller.actor, note=asked.note, resume_at=asked.resume_at, now=now)


async def _go_on(connection: Connection, caller: Caller, job_id: UUID, now: datetime | None) -> None:
    await failures.clear(connection, job_id)
    await schedules.resume(connection, job_id, now=now)
    # Only here: a planner would not know that the gap was a pause.
    seen = await replan.to_plan_now(connection, caller, [job_id], defers_to_newer_data=False, now=now)
    await plan.write(connection, caller, [one._replace(is_resumed=True) for one in seen], now=now)
    await runs.announce(connection, (), due_soon=True)


async def fire(
    connection: Connection, caller: Caller, job_id: UUID, *, payload: msgspec.Raw | None = None, now: datetime | None = None
) -> JobView:
    """Once, now, under its overlap policy. The schedule does not change. A `payload`, already checked, is for this run only."""
    await _lock(connection, job_id, "run")
    payload_json = None if payload is None else bytes(payload).decode()
    await schedules.fire_now(connection, job_id, payload_json=payload_json, now=now)
    await runs.announce(connection, (), due_soon=True)
    return await jobs.show(connection, job_id)


async def _plan(connection: Connection, caller: Caller, ids: Sequence[UUID], now: datetime | None) -> None:
    if ids:
        await plan.write(connection, caller, await replan.to_plan_now(connection, caller, ids, now=now), now=now)
        await runs.announce(connection, (), due_soon=True)


async def _lock(connection: Connection, job_id: UUID, action: str) -> Locked:
    locked = await schedules.lock(connection, job_id)
    if locked is None:
        raise NotFound(f"there is no job {job_id}")
    if locked.over_at is not None:
        raise NotAllowedIn(action, (await jobs.show(connection, job_id)).status)
    return locked
