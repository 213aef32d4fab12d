"""`POST /v1/schedules/preview`: future fires, at a bounded cost."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from uuid import UUID

from litestar import Response

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Operation, body, ok
from sexton.api.requests.bodies import read
from sexton.api.requests.faults import checked, refused
from sexton.api.requests.parameters import within_history
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.clock import host_now
from sexton.domain.schedule import describe, dialects, schedule
from sexton.domain.schedule.recurrence import seed_of
from sexton.operations.recurring import forecast
from sexton.store import clock as database_clock

operation = partial(Operation, tag="schedules")

_NO_ID = UUID(int=0)
_BODY_LIMIT = 256 * 1024


@operation(
    "POST /v1/schedules/preview",
    id="previewSchedule",
    body=body(wire.PreviewRequest, limit=_BODY_LIMIT, **examples.PREVIEWS),
    answers=ok("Its next fires.", wire.Preview),
    problems=(404,),
)
async def preview(request: ApiRequest) -> Response[bytes]:
    """Show when a schedule fires.

    In words and instants: of a schedule as it would be submitted, or of a job by its `job_id`. The fires are those strictly
    after `after` (default: now), with their jitter. Tenant and name are the seed of `H` and jitter.
    """
    state = state_of(request)
    asked = await read(request, wire.PreviewRequest, check=lambda one: _rule(one, host_now()))
    async with state.database.connection() as connection:
        now = await database_clock.now(connection, now=state.clock.database_now())
        if asked.job_id is None:
            rule = checked(asked, lambda one: _rule(one, now))
        else:
            _refuse_both(asked)
            rule = await forecast.of_job(connection, caller_of(request), asked.job_id)
    after = within_history(asked.after) or now
    found = [] if rule.is_over else forecast.taken(forecast.due(rule, after=after), asked.count, state.clock.monotonic)
    return answer(
        wire.Preview(
            description=describe(rule.schedule, rule.seed),
            timezone=rule.schedule.timezone,
            fires=found,
            warnings=dialects.warnings(rule.schedule, after=after, seed=rule.seed),
        )
    )


def _rule(asked: wire.PreviewRequest, now: datetime) -> forecast.Rule:
    seed = seed_of(asked.tenant or "default", asked.name, _NO_ID)
    return forecast.Rule(schedule(now=now, seed=seed, **asked.rule()), seed)


def _refuse_both(asked: wire.PreviewRequest) -> None:
    given = [field for field in (*wire.RULE_FIELDS, "tenant", "name") if getattr(asked, field) is not None]
    if given:
        raise refused([wire.Fault(pointer=f"/{field}", detail="give a schedule or a job_id, not both") for field in given])


HANDLERS = [preview]
