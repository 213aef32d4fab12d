"""Operations of a person on a live one-time job: edit, pause, resume, retry at once.

Each call needs a transaction: it locks the job, then its run, then decides (rule "lock, then decide"). A call that is rejected
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import UNSET

from sexton.domain.states import RunState
from sexton.errors import Contention, NotAllowedIn, NotFound
from sexton.store.database import Connection
from sexton.store.work import edits, jobs, runs
from sexton.store.work.edits import Definition, LiveRun, Moved
from sexton.store.work.jobs import JobView

from . import replay
from .caller import Caller
from .definition_change import Changes, changed
from .versions import AtVersion


async def edit(
    connection: Connection, caller: Caller, wanted: AtVersion, changes: Changes, *, now: datetime | None = None
) -> JobView:
    """Only before the first attempt starts, else `NotAllowedIn`. `job_versions` keeps the old definition."""
    job_id = wanted.job_id
    old, run = await _lock(connection, job_id)
    wanted.require(old.version, "read it again before you edit it")
    if run is None or run.state == RunState.RUNNING:
        raise NotAllowedIn("edit", (await jobs.show(connection, job_id)).status)
    if run.token > 0:
        raise NotAllowedIn("edit", "pending", "cannot edit a job whose first attempt has started; cancel it and submit another")
    new = changed(old, changes)
    if changes.moves_limit:
        await edits.make_limit(connection, new, now=now)
    before, after = set(old.tags or ()), set(new.tags or ())
    moved = await edits.edit(
        connection,
        job_id,
        run.id,
        new,
        tags_gone=before - after,
        tags_new=after - before,
        is_timed=changes.run_at is not UNSET or changes.delay_s is not UNSET,
        run_at=_given(changes.run_at),
        delay_s=_given(changes.delay_s),
        by=caller.actor,
        now=now,
    )
    await _announce(connection, moved)
    return await jobs.show(connection, job_id)


async def pause(
    connection: Connection, caller: Caller, job_id: UUID, *, note: str | None = None, now: datetime | None = None
) -> JobView:
    """The job does not start until it is resumed. Its deadline and latest start still apply. If it is already paused, only the
    note changes. A job that is running or has ended is rejected."""
    _, run = await _lock(connection, job_id)
    match run:
        case LiveRun(state=RunState.PAUSED):
            await edits.note(connection, job_id, note)
        case LiveRun(state=RunState.WAITING | RunState.READY | RunState.PARKED | RunState.QUARANTINED):
            await edits.pause_job(connection, job_id, by=caller.actor, note=note, now=now)
            await edits.pause_run(connection, run.id)
        case _:
            raise NotAllowedIn("pause", (await jobs.show(connection, job_id)).status)
    return await jobs.show(connection, job_id)


async def resume(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """The job is waiting or ready again, by its due time. A job that is not paused does not change. An ended one is
    rejected."""
    _, run = await _lock(connection, job_id)
    if run is None:
        raise NotAllowedIn("resume", (await jobs.show(connection, job_id)).status)
    if run.state == RunState.PAUSED:
        await edits.resume_job(connection, job_id)
        await _announce(connection, await edits.resume_run(connection, run.id, now=now))
    return await jobs.show(connection, job_id)


async def retry(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """Replays the newest dead letter of a failed job with a fresh budget. A job that waits between attempts is due now."""
    _, run = await _lock(connection, job_id)
    if run is not None and run.state == RunState.WAITING and run.token > 0:
        await _make_due(connection, run, now)
    else:
        await _replay(connection, caller, job_id, now)
    return await jobs.show(connection, job_id)


async def run_now(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """A job that waits for its time or its next attempt is due now. A ready or running one does not change. A paused or ended
    one is rejected."""
    _, run = await _lock(connection, job_id)
    match run:
        case LiveRun(state=RunState.WAITING):
            await _make_due(connection, run, now)
        case LiveRun(state=RunState.READY | RunState.PARKED | RunState.QUARANTINED | RunState.RUNNING):
            pass
        case _:
            raise NotAllowedIn("run", (await jobs.show(connection, job_id)).status)
    return await jobs.show(connection, job_id)


async def _make_due(connection: Connection, run: LiveRun, now: datetime | None) -> None:
    await _announce(connection, await edits.make_due(connection, run.id, now=now))


async def _replay(connection: Connection, caller: Caller, job_id: UUID, now: datetime | None) -> None:
    status = (await jobs.show(connection, job_id)).status
    if status != "failed":
        raise NotAllowedIn("retry", status)
    letter_id = await edits.newest_letter(connection, job_id)
    if letter_id is None:
        message = "cannot retry a job whose dead letter was discarded or has expired; submit it again"
        raise NotAllowedIn("retry", status, message)
    if not await replay.replay(connection, caller, [letter_id], now=now):
        raise Contention(f"the dead letter of job {job_id} is being replayed or discarded by another caller")


async def _lock(connection: Connection, job_id: UUID) -> tuple[Definition, LiveRun | None]:
    definition = await edits.lock_job(connection, job_id)
    if definition is None:
        raise NotFound(f"there is no job {job_id}")
    return definition, await edits.lock_run(connection, job_id)


async def _announce(connection: Connection, moved: Sequence[Moved]) -> None:
    ready = {one.queue for one in moved if one.is_ready}
    due_soon = any(one.due_soon for one in moved)
    if ready or due_soon:
        await runs.announce(connection, ready, due_soon=due_soon)


def _given(change: Any) -> Any:
    return None if change is UNSET else change
