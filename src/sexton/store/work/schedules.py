"""Recurring jobs: write their rule, plan their fires, decide which runs may run at the same time, pause, resume, end.

`domain.schedule` reads a schedule; here it is a document. The planner moves the cursor by rule "plan by compare-and-set". A
caller that changes a job removes, in the same transaction, the runs that no worker has started: rule "job row first".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.partition import Scan
from sexton.domain.schedule.rule import Schedule
from sexton.domain.schedule.zone import tzdata_version
from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)
SUBMIT = _SQL["submit"]
_LOCK = _SQL["lock_job"]
STAND_BACK_S = 10.0  # less than the shortest lead of a plan, so a planner with older time zone data is still on time
_encode = msgspec.json.Encoder().encode


class Written(NamedTuple):
    id: UUID
    created: bool
    changed: bool  # false: an equal one already existed


class ToPlan(NamedTuple):
    """A schedule whose next fires must be written, as it was read."""

    id: UUID
    version: int
    tenant: str
    name: str | None
    schedule_json: str
    recurrence_json: str | None
    cursor_at: datetime | None  # null: never planned
    fire_count: int
    submitted_at: datetime
    now: datetime
    tzdata: str | None = None  # the release it was last planned with; null: its rule was not read yet
    is_bare: bool = False  # no run of it waits, although its cursor may be ahead
    is_resumed: bool = False  # the gap before its cursor is a pause, and follows `on_resume`
    may_end: bool = True  # else it stays live after its last fire


class Fire(msgspec.Struct, frozen=True):
    fire_at: datetime
    due_at: datetime


class Gap(msgspec.Struct, frozen=True):
    """Fires that will not run: one row of the ledger for all of them."""

    first_at: datetime
    last_at: datetime
    count: int
    status: str
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """What to write for one schedule, if its cursor has not moved since it was read."""

    id: UUID
    version: int
    cursor_at: datetime | None
    tzdata: str | None
    new_cursor_at: datetime | None
    plan_at: datetime | None
    fire_count: int
    over: bool
    schedule: Schedule | None  # the parsed form, when its rule was read
    overlap: int
    fires: Sequence[Fire]
    missed: Sequence[Gap]


class Alone(NamedTuple):
    due_count: int
    promoted_count: int
    queues: list[str]
    crowded: list[UUID]  # jobs that need a decision


class Sibling(NamedTuple):
    """A run of a job that has an overlap policy."""

    job_id: UUID
    run_id: UUID
    state: str
    token: int
    fire_at: datetime
    due_at: datetime
    queue: str
    origin: str
    overlap: int
    recurrence_json: str | None

    @property
    def is_live(self) -> bool:
        """From its promotion to its end, including the waits of retries and snoozes."""
        return self.state in ("ready", "parked", "running") or self.token > 0


class Locked(NamedTuple):
    id: UUID
    version: int
    paused_at: datetime | None
    over_at: datetime | None
    over_as: str | None
    cursor_at: datetime | None
    schedule_json: str
    recurrence_json: str | None
    tenant: str
    name: str | None
    submitted_at: datetime
    tzdata: str | None  # null: its rule was not read yet


class Unplanned(NamedTuple):
    cursor_at: datetime | None
    removed_count: int  # planned fires that will not run as planned
    begun_count: int  # runs that continue


class PlansWritten(NamedTuple):
    ids: list[UUID]
    locked: list[UUID]  # another session has locked them: nothing was written
    next_due_s: float | None  # how soon the first of the fires is due


class Recalled(NamedTuple):
    recalled_count: int  # jobs that are planned again
    left: list[UUID]  # another session has locked them or one of their runs


class Repaired(NamedTuple):
    forgotten: list[UUID]
    late_count: int


async def submit(connection: Connection, documents: Sequence[object], *, now: datetime | None = None) -> list[Written]:
    """Creates schedules, and updates those whose name already exists."""
    return [Written(*row) for row in await connection.fetch(SUBMIT, _encode(documents).decode(), now)]


async def to_plan(
    connection: Connection, scan: Scan, *, without: Collection[UUID] = (), now: datetime | None = None
) -> list[ToPlan]:
    partitions, limit, overdue_s = scan
    rows = await connection.fetch(
        _SQL["to_plan"], now, list(partitions), limit, overdue_s, tzdata_version(), STAND_BACK_S, list(without)
    )
    return [ToPlan(*row) for row in rows]


async def to_plan_now(
    connection: Connection, ids: Collection[UUID], *, defers_to_newer_data: bool = True, now: datetime | None = None
) -> list[ToPlan]:
    """`defers_to_newer_data`: returns nothing if a process here has newer time zone data; its planner does it."""
    rows = await connection.fetch(_SQL["of_ids"], now, list(ids), tzdata_version() if defers_to_newer_data else None)
    return [ToPlan(*row) for row in rows]


async def plan(connection: Connection, plans: Sequence[Plan], *, now: datetime | None = None) -> PlansWritten:
    """Rule "never wait inside a batch": schedules that another session has locked are left out."""
    if any(plan.missed for plan in plans):
        await connection.fetch(_SQL["ensure_ledger"], now)
    rows = await connection.fetch(_SQL["plan"], now, _encode(plans).decode(), tzdata_version())
    written = [row for row in rows if not row["is_locked"]]
    return PlansWritten(
        [row["id"] for row in written],
        [row["id"] for row in rows if row["is_locked"]],
        written[0]["next_due_s"] if written else None,
    )


async def lock_partitions(connection: Connection, partitions: Collection[int]) -> list[int]:
    """Those of them that no other session decides about."""
    return [row["partition"] for row in await connection.fetch(_SQL["lock_partitions"], sorted(partitions))]


async def promote_alone(
    connection: Connection,
    *,
    partitions: Collection[int],
    limit: int,
    without: Collection[UUID] = (),
    now: datetime | None = None,
) -> Alone:
    """`without`: jobs to leave out, because another session has locked a run of theirs."""
    (row,) = await connection.fetch(_SQL["promote_alone"], now, list(partitions), limit, list(without))
    return Alone(*row)


async def released(
    connection: Connection, *, partitions: Collection[int], limit: int, without: Collection[UUID] = ()
) -> list[UUID]:
    rows = await connection.fetch(_SQL["released"], list(partitions), limit, list(without))
    return [row["job_id"] for row in rows]


async def competing_runs(connection: Connection, job_ids: Collection[UUID], *, now: datetime | None = None) -> list[Sibling]:
    rows = await connection.fetch(_SQL["competing_runs"], now, list(job_ids))
    return [Sibling(*row) for row in rows]


async def admit(connection: Connection, run_ids: Collection[UUID]) -> list[str]:
    """The queues with ready runs now."""
    return sorted({row["queue"] for row in await connection.fetch(_SQL["admit"], list(run_ids))})


async def block(connection: Connection, run_ids: Collection[UUID]) -> None:
    await connection.fetch(_SQL["block"], list(run_ids))


async def lock(connection: Connection, job_id: UUID, *, waits: bool = True) -> Locked | None:
    """None: it does not exist, or, if this call must not wait, another session has locked it."""
    rows = await connection.fetch(_LOCK if waits else f"{_LOCK} SKIP LOCKED", job_id)
    return Locked(*rows[0]) if rows else None


async def hold_runs(connection: Connection, job_ids: Collection[UUID], states: Sequence[str]) -> set[UUID]:
    """Locks the runs of locked jobs that have not started. Jobs with a run that another session has locked are left out."""
    return {row["id"] for row in await connection.fetch(_SQL["hold_runs"], list(job_ids), list(states))}


async def lock_due_to_resume(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> datetime | None:
    """When its pause was to end by itself; None if that has changed."""
    rows = await connection.fetch(_SQL["lock_due_to_resume"], now, job_id)
    return rows[0]["resume_at"] if rows else None


async def unplan(connection: Connection, job_id: UUID, *, told: str, now: datetime | None = None) -> Unplanned:
    (row,) = await connection.fetch(_SQL["unplan"], now, job_id, told)
    return Unplanned(*row)


async def wake(connection: Connection, job_ids: Collection[UUID], *, now: datetime | None = None) -> None:
    """Lets paused jobs be planned in this transaction, which ends them or pauses them again."""
    await connection.fetch(_SQL["wake"], now, list(job_ids))


async def decided(connection: Connection, job_ids: Collection[UUID], *, now: datetime) -> None:
    """All fires of these jobs that are due are written or in history."""
    await connection.fetch(_SQL["decided"], now, list(job_ids))


async def end_fires(connection: Connection, job_id: UUID, *, reason: str, now: datetime | None = None) -> int:
    """Ends the fires of a locked job that no worker has started. History records those that were due. Returns how many."""
    (row,) = await connection.fetch(_SQL["end_fires"], now, job_id, reason)
    ended_count: int = row["ended_count"]
    return ended_count


async def end(
    connection: Connection, job_id: UUID, *, how: str, reason: str | None = None, now: datetime | None = None
) -> None:
    await connection.fetch(_SQL["end"], now, job_id, how, reason)


async def fail(connection: Connection, seen: ToPlan, *, reason: str, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["fail"], now, seen.id, seen.version, reason)


async def postpone(connection: Connection, seen: ToPlan, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["postpone"], now, seen.id, seen.version)


async def recall(
    connection: Connection,
    *,
    partitions: Collection[int],
    limit: int,
    without: Collection[UUID] = (),
    now: datetime | None = None,
) -> Recalled:
    """Removes fires that no promoter promoted in time, so that catch-up decides about them."""
    rows = await connection.fetch(_SQL["recall"], now, list(partitions), limit, list(without))
    return Recalled(sum(not row["is_left"] for row in rows), [row["job_id"] for row in rows if row["is_left"]])


async def repair(connection: Connection, *, now: datetime | None = None) -> Repaired:
    (row,) = await connection.fetch(_SQL["repair"], now)
    return Repaired(*row)


async def pause(
    connection: Connection,
    job_id: UUID,
    taken_back: Unplanned,
    *,
    by: str | None,
    note: str | None,
    resume_at: datetime | None,
    now: datetime | None = None,
) -> None:
    await connection.fetch(_SQL["pause"], now, job_id, taken_back.cursor_at, taken_back.removed_count, by, note, resume_at)


async def pause_again(connection: Connection, job_id: UUID, taken_back: Unplanned) -> None:
    """A paused job that was planned in this transaction."""
    await connection.fetch(_SQL["pause_again"], job_id, taken_back.cursor_at, taken_back.removed_count)


async def note(connection: Connection, job_id: UUID, *, by: str | None, note: str | None, resume_at: datetime | None) -> None:
    await connection.fetch(_SQL["note"], job_id, by, note, resume_at)


async def resume(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["resume"], now, job_id)


async def keeps_rule(connection: Connection, job_id: UUID, document: object) -> bool:
    """Whether this document leaves the fires of the job as they are."""
    rows = await connection.fetch(_SQL["keeps_rule"], job_id, _encode([document]).decode())
    return bool(rows and rows[0]["keeps_rule"])


async def lock_named(connection: Connection, documents: Sequence[object]) -> list[UUID]:
    """Locks the jobs whose names the documents have. Returns those that get another rule."""
    return [row["id"] for row in await connection.fetch(_SQL["lock_named"], _encode(documents).decode())]


async def revise(connection: Connection, job_id: UUID, document: object, *, now: datetime | None = None) -> tuple[int, int]:
    """The next version of a locked job. Returns how many fires were removed and how many runs continue."""
    (row,) = await connection.fetch(_SQL["revise"], now, job_id, _encode([document]).decode())
    return row["removed_count"], row["begun_count"]


async def fire_now(
    connection: Connection, job_id: UUID, *, payload_json: str | None = None, now: datetime | None = None
) -> UUID:
    (row,) = await connection.fetch(_SQL["fire_now"], now, job_id, payload_json)
    run_id: UUID = row["id"]
    return run_id


async def due_to_resume(connection: Connection, *, limit: int, now: datetime | None = None) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(_SQL["due_to_resume"], now, limit)]


async def next_resume_s(connection: Connection, *, now: datetime | None = None) -> float | None:
    """Seconds until the next pause ends by itself."""
    rows = await connection.fetch(_SQL["next_resume"], now)
    return rows[0]["left_s"] if rows else None


async def unplanned(connection: Connection, *, now: datetime | None = None) -> list[UUID]:
    """Makes the planner plan schedules again from now if their cursor is past a fire that does not exist."""
    return [row["id"] for row in await connection.fetch(_SQL["unplanned"], now)]
