"""Computes the future fires of a recurring job, and how an edit or a resume would change them. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.schedule import Schedule, describe, fires, jitter_of
from sexton.domain.schedule.dialects import warnings
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.recurrence import seed_of
from sexton.errors import NotAllowedIn
from sexton.operations.caller import Caller
from sexton.store import clock as database_clock
from sexton.store.database import Connection
from sexton.store.work import forecast, jobs
from sexton.store.work.forecast import Outlook
from sexton.store.work.jobs import JobView
from sexton.store.work.schedules import Gap, ToPlan

from . import plan

EDIT_DAYS = 30
EDIT_LIMIT = 1_000  # fires of each side that are compared
SEARCH_S = 0.1  # a search that takes longer is rejected; the domain bounds each single step

Revise = Callable[[JobView, datetime], ScheduleDocument]  # the next definition of a job, from its definition at an instant


class Rule(NamedTuple):
    """A schedule, the seed of its random choices, and how far it is planned."""

    schedule: Schedule
    seed: str
    seen: Outlook | None = None

    @property
    def is_over(self) -> bool:
        return self.seen is not None and self.seen.over_at is not None


class EditForecast(NamedTuple):
    """Fires that an edit adds and removes, up to `until`."""

    description: str
    until: datetime
    added: list[datetime]
    removed: list[datetime]


class ResumeForecast(NamedTuple):
    fires: list[datetime]
    missed: list[Gap]


async def of_job(connection: Connection, caller: Caller, job_id: UUID) -> Rule:
    view = await jobs.show(connection, job_id)
    if view.schedule_json is None:
        raise Invalid("job_id", "is a one-time job; its next_fire_at says when it is due")
    try:
        rule = msgspec.json.decode(view.schedule_json, type=Schedule)
    except msgspec.MsgspecError:
        message = f"its schedule cannot be read; {view.over_reason or 'a planner will report why'}"
        raise NotAllowedIn("forecast", view.status, message) from None
    return Rule(rule, seed_of(view.tenant, view.name, view.id), await forecast.outlook(connection, job_id))


def doubts(view: JobView, *, after: datetime) -> list[str]:
    """How other programs read its cron line, if its dialect is not named. What is submitted in SQL is read by a planner first,
    so only a later answer can warn. A schedule that cannot be read has no doubts; its job says why it failed."""
    try:
        rule = msgspec.json.decode(view.schedule_json or "{}", type=Schedule)
        return warnings(rule, after=after, seed=seed_of(view.tenant, view.name, view.id))
    except (msgspec.MsgspecError, Invalid):
        return []


async def of_edit(
    connection: Connection,
    caller: Caller,
    job_id: UUID,
    revise: Revise,
    *,
    monotonic: Callable[[], float],
    now: datetime | None = None,
) -> EditForecast:
    """Both searches go equally far: 30 days, or as far as the denser one gets."""
    moment = await database_clock.now(connection, now=now)
    view = await jobs.show(connection, job_id)
    document = revise(view, moment)
    old = await of_job(connection, caller, job_id)
    new_seed = seed_of(view.tenant, document.name, view.id)
    new = (
        Rule(old.schedule, new_seed, old.seen)
        if isinstance(document.schedule, msgspec.Raw)
        else Rule(document.schedule, new_seed)
    )
    until = moment + timedelta(days=EDIT_DAYS)
    before = taken(due(old, after=moment), EDIT_LIMIT, monotonic, until=until)
    after = taken(due(new, after=moment), EDIT_LIMIT, monotonic, until=until)
    until = min([until, *(side[-1] for side in (before, after) if len(side) == EDIT_LIMIT)])
    return EditForecast(
        description=describe(new.schedule, new.seed),
        until=until,
        added=sorted(at for at in set(after) - set(before) if at <= until),
        removed=sorted(at for at in set(before) - set(after) if at <= until),
    )


async def of_resume(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> ResumeForecast:
    """Uses the same decision as a real resume."""
    view, seen = await jobs.show(connection, job_id), await forecast.outlook(connection, job_id)
    if view.status != "paused" or view.schedule_json is None or seen is None:
        message = f"it is {view.status}; only a paused recurring job can be resumed"
        raise NotAllowedIn("resume", view.status, message)
    planned = plan.plan_of(
        ToPlan(
            id=view.id,
            version=view.version,
            tenant=view.tenant,
            name=view.name,
            schedule_json=view.schedule_json,
            recurrence_json=view.recurrence_json,
            cursor_at=seen.cursor_at,
            fire_count=seen.fire_count,
            submitted_at=view.submitted_at,
            now=await database_clock.now(connection, now=now),
            is_resumed=True,
        )
    )
    return ResumeForecast([fire.due_at for fire in planned.fires], list(planned.missed))


def due(rule: Rule, *, after: datetime) -> Iterator[datetime]:
    """The due times of its runs strictly after an instant, with jitter. `max_fires` counts from what was seen of the job, or
    from the beginning."""
    schedule, seed, seen = rule
    offset = jitter_of(schedule, seed)
    if schedule.max_fires is None or seen is None or seen.cursor_at is None:
        nominal = fires(schedule, after=after - offset, seed=seed)
    else:
        nominal = chain(seen.planned, fires(schedule, after=seen.cursor_at, seed=seed, fired_count=seen.fire_count))
    return (at for fire in nominal if (at := fire + offset) > after)


def taken(
    fires: Iterable[datetime], count: int, monotonic: Callable[[], float], *, until: datetime | None = None
) -> list[datetime]:
    """At most `count` fires, none after `until`; `Invalid` if the search takes too long."""
    found: list[datetime] = []
    begun_s = monotonic()
    for at in islice(fires, count):
        if until is not None and at > until:
            break
        found.append(at)
        if monotonic() - begun_s > SEARCH_S:
            raise Invalid("count", f"the search for {count:,} fires takes too long; ask for {max(len(found) // 2, 1):,}")
    return found
