"""`POST /v1/schedules/preview`, and what an edit would change: fires before they happen, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import msgspec
from litestar import Response

from sexton import wire
from sexton.api.answers.problems import Refused, invalid
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Operation, body
from sexton.api.requests.bodies import read
from sexton.api.requests.parameters import no_query, within_history
from sexton.api.requests.revisions import revision_of, rule_of
from sexton.api.state import ApiRequest, state_of
from sexton.clock import Clock
from sexton.domain.schedule import Schedule, describe, schedule
from sexton.domain.schedule.recurrence import seed_of
from sexton.store.database import Connection
from sexton.store.views import transitions
from sexton.store.work import forecast, jobs, planning
from sexton.store.work.schedules import ToPlan

EDIT_DAYS = 30
EDIT_LIMIT = 1_000  # fires of each side that are compared
SEARCH_S = 0.1  # a walk that takes longer is refused; each single step is bounded by the domain
_NO_ID = UUID(int=0)
_BODY_LIMIT = 256 * 1024


@Operation(
    "POST",
    "/v1/schedules/preview",
    id="previewSchedule",
    tag="schedules",
    summary="Show when a schedule fires",
    description=(
        "In words and instants: of a schedule as it would be submitted, or of a job by its `job_id`. The fires are "
        "those strictly after `after` (now, if left out), with their jitter. `H` and jitter are drawn from tenant and "
        "name."
    ),
    body=body(wire.PreviewRequest, **examples.PREVIEWS),
    body_limit=_BODY_LIMIT,
    answers={200: Answer("Its next fires.", wire.Preview)},
    problems=(404,),
)
async def preview(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, asked = state_of(request), await read(request, wire.PreviewRequest)
    async with state.database.connection() as connection:
        now = await transitions.mark(connection, now=state.clock.database_now())
        if asked.job_id is None:
            seed = seed_of(asked.tenant or "default", asked.name, _NO_ID)
            rule, seen = schedule(now=now, seed=seed, **asked.rule()), None
        else:
            _refuse_both(asked)
            rule, seed, seen = await _of_job(connection, asked.job_id)
    if seen is not None and seen.over_at is not None:
        found: list[datetime] = []
    else:
        found = taken(forecast.due(rule, seed, after=within_history(asked.after) or now, seen=seen), asked.count, state.clock)
    return answer(wire.Preview(description=describe(rule, seed), timezone=rule.timezone, fires=found))


async def of_edit(connection: Connection, job_id: UUID, edit: wire.JobEdit, *, clock: Clock) -> wire.EditPreview:
    """Both walks go equally far: to 30 days, or as far as the denser one comes."""
    now = await transitions.mark(connection, now=clock.database_now())
    view = await jobs.show(connection, job_id)
    document = revision_of(edit, view, now=now)
    rule, old_seed, seen = await _of_job(connection, job_id)
    is_same = isinstance(document.schedule, msgspec.Raw)
    new = rule if isinstance(document.schedule, msgspec.Raw) else document.schedule
    new_seed = seed_of(view.tenant, document.name, view.id)
    until = now + timedelta(days=EDIT_DAYS)
    before = taken(forecast.due(rule, old_seed, after=now, seen=seen), EDIT_LIMIT, clock, until=until)
    after = taken(forecast.due(new, new_seed, after=now, seen=seen if is_same else None), EDIT_LIMIT, clock, until=until)
    until = min([until, *(side[-1] for side in (before, after) if len(side) == EDIT_LIMIT)])
    return wire.EditPreview(
        description=describe(new, new_seed),
        until=until,
        added=sorted(at for at in set(after) - set(before) if at <= until),
        removed=sorted(at for at in set(before) - set(after) if at <= until),
    )


async def of_resume(connection: Connection, job_id: UUID, *, now: datetime | None) -> wire.ResumePreview:
    """Decided by what decides when it is resumed."""
    view, seen = await jobs.show(connection, job_id), await forecast.outlook(connection, job_id)
    if view.status != "paused" or view.schedule_json is None or seen is None:
        raise Refused("conflict", f"it is {view.status}; only a paused recurring job can be resumed")
    plan = planning.plan_of(
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
            now=await transitions.mark(connection, now=now),
        ),
        resumed=True,
    )
    gaps = [wire.FireGap(first=one.first_at, last=one.last_at, count=one.count, reason=one.reason) for one in plan.missed]
    return wire.ResumePreview(fires=[fire.due_at for fire in plan.fires], missed=gaps)


def taken(fires: Iterable[datetime], count: int, clock: Clock, *, until: datetime | None = None) -> list[datetime]:
    """So many of them, none after `until`; refused where the search takes too long."""
    found: list[datetime] = []
    begun_s = clock.monotonic()
    for at in islice(fires, count):
        if until is not None and at > until:
            break
        found.append(at)
        if clock.monotonic() - begun_s > SEARCH_S:
            raise invalid("/count", f"the search for {count:,} fires takes too long; ask for {max(len(found) // 2, 1):,}")
    return found


async def _of_job(connection: Connection, job_id: UUID) -> tuple[Schedule, str, forecast.Outlook | None]:
    view = await jobs.show(connection, job_id)
    if view.schedule_json is None:
        raise invalid("/job_id", "is a one-time job; its next_fire_at says when it is due")
    try:
        rule = rule_of(view)
    except msgspec.MsgspecError:
        raise Refused("conflict", f"its schedule cannot be read; {view.over_reason or 'a planner will say why'}") from None
    return rule, seed_of(view.tenant, view.name, view.id), await forecast.outlook(connection, job_id)


def _refuse_both(asked: wire.PreviewRequest) -> None:
    for field in (*wire.RULE_FIELDS, "tenant", "name"):
        if getattr(asked, field) is not None:
            raise invalid(f"/{field}", "give a schedule or a job_id, not both")


HANDLERS = [preview]
