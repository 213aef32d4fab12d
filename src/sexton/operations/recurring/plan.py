"""Computes the next runs of a schedule and writes them, unless another session has moved its cursor since it was read.

The planner uses it for schedules that are due to be planned. A caller that writes a schedule uses it in the same transaction,
so that the answer contains the next fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.schedule import catch_up
from sexton.domain.schedule.check import schedule as checked
from sexton.domain.schedule.fires import jitter_of
from sexton.domain.schedule.recurrence import recurrence_of, seed_of
from sexton.domain.schedule.rule import Schedule
from sexton.domain.schedule.spread import fraction
from sexton.operations.caller import Caller
from sexton.store.database import Connection
from sexton.store.work import schedules
from sexton.store.work.schedules import Fire, Gap, Plan, ToPlan

HORIZON = timedelta(seconds=60)  # fires this near are written now; at least the next one always is
# How long before its last planned fire a schedule is planned again; spread, to avoid a peak at full minutes.
LEAD_S = (15.0, 45.0)
LAST_LOOK = timedelta(seconds=2)  # after the last fire is due; then the schedule is over, if that fire was promoted
_WORDS = {
    "skipped": "missed while no planner planned it, and its catch-up policy is skip",
    "beyond_window": "missed, and older than its catch-up window when planning resumed",
    "superseded": "missed, and only the latest one is caught up",
    "over_limit": "missed, and over the number of fires caught up at once",
}


class Planned(NamedTuple):
    ids: list[UUID]
    next_due_s: float | None  # seconds until the first of their fires
    missed_count: int
    locked: list[UUID]  # left for the next pass: another session has locked them


async def write(
    connection: Connection,
    caller: Caller,
    seen: Iterable[ToPlan],
    *,
    now: datetime | None = None,
    unforeseen: Callable[[Exception], None] | None = None,
) -> Planned:
    """Plans the schedules that were read. A schedule that cannot be read ends here, with the reason. With `unforeseen`, a
    schedule that fails in any other way is postponed and reported there, so that it does not delay the others."""
    plans: list[Plan] = []
    for one in seen:
        try:
            plans.append(plan_of(one))
        except (Invalid, msgspec.DecodeError) as fault:
            await schedules.fail(connection, one, reason=f"its schedule cannot be read: {fault}", now=now)
        except Exception as error:
            if unforeseen is None:
                raise
            unforeseen(error)
            await schedules.postpone(connection, one, now=now)
    done = await schedules.plan(connection, plans, now=now) if plans else schedules.PlansWritten([], [], None)
    written = set(done.ids)
    missed_count = sum(gap.count for plan in plans if plan.id in written for gap in plan.missed)
    return Planned(done.ids, done.next_due_s, missed_count, done.locked)


def plan_of(seen: ToPlan) -> Plan:
    seed, recurrence = seed_of(seen.tenant, seen.name, seen.id), recurrence_of(seen.recurrence_json)
    rule = _checked(seen, seed) if seen.tzdata is None else known(seen.schedule_json)
    offset = jitter_of(rule, seed)
    early = max(-offset, timedelta(0))  # a fire may be due before its nominal time, and the next is written before it starts
    lead = HORIZON + early
    if seen.cursor_at is not None and (seen.is_resumed or seen.is_bare):
        lead = max(lead, seen.cursor_at - seen.now)  # the next fire is after the cursor, however far away
    policy = recurrence.catch_up
    if seen.is_resumed:
        policy = msgspec.structs.replace(policy, policy=recurrence.on_resume)
    decided = catch_up.plan(
        rule,
        cursor_at=seen.cursor_at or seen.submitted_at,
        now=seen.now,
        horizon_at=seen.now + HORIZON + early,
        lead=lead,
        policy=policy,
        seed=seed,
        fired_count=seen.fire_count,
        on_time=timedelta(0) if seen.is_resumed else catch_up.ON_TIME,
    )
    return Plan(
        id=seen.id,
        version=seen.version,
        cursor_at=seen.cursor_at,
        tzdata=seen.tzdata,
        new_cursor_at=decided.cursor_at,
        plan_at=max(decided.cursor_at + offset, seen.now) + LAST_LOOK
        if decided.is_over
        else max(decided.cursor_at - early - _lead(seed), seen.now),
        fire_count=seen.fire_count + len(decided.fires),
        over=decided.is_over and seen.may_end,
        schedule=rule if seen.tzdata is None else None,
        overlap=recurrence.lanes,
        # Fires that are caught up are due now, so they do not count as late promotions.
        fires=[Fire(fire_at, max(fire_at + offset, seen.now)) for fire_at in decided.fires],
        missed=[_gap(gap, resumed=seen.is_resumed) for gap in decided.missed],
    )


def _gap(gap: catch_up.Gap, *, resumed: bool) -> Gap:
    count = f"at least {gap.count:,}" if gap.at_least else f"{gap.count:,}"
    times = "fire" if gap.count == 1 and not gap.at_least else "fires"
    reason = "its job was paused" if resumed else _WORDS[gap.reason]
    return Gap(gap.first, gap.last, gap.count, "paused" if resumed else "missed", f"{count} {times}: {reason}")


def has_due(seen: ToPlan) -> bool:
    """Whether fires are due that no planner has written."""
    try:
        decided = plan_of(seen)
    except (Invalid, msgspec.DecodeError):
        return False  # a rule that cannot be read has no fires
    return bool(decided.missed) or any(fire.due_at <= seen.now for fire in decided.fires)


@lru_cache(maxsize=4096)
def known(text: str) -> Schedule:
    """A rule that was understood before, as it was stored then."""
    return msgspec.json.decode(text, type=Schedule)


def _checked(seen: ToPlan, seed: str) -> Schedule:
    """A rule from any source, including plain SQL. Its starting point is fixed here, once."""
    fields = msgspec.json.decode(seen.schedule_json)
    if not isinstance(fields, dict):
        raise Invalid("schedule", "give an object with cron, rrule or every")
    try:
        return checked(now=seen.submitted_at, seed=seed, **fields)
    except TypeError as error:
        raise Invalid("schedule", str(error).partition(") ")[2] or str(error)) from None


def _lead(seed: str) -> timedelta:
    low_s, high_s = LEAD_S
    return timedelta(seconds=low_s + (high_s - low_s) * fraction(seed, "lead"))
