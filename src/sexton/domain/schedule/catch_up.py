"""Which fires are planned and which are missed, when the planner looks at one recurring job. Pure, and bounded: a year of
downtime of a schedule that fires every second costs a few milliseconds. Missed fires are recorded as gaps, never one by one."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Literal

import msgspec

from sexton.domain.duration import Duration, seconds
from sexton.domain.fault import Invalid

from .fires import last_fire, unlimited_fires
from .rule import Schedule

Policy = Literal["skip", "latest", "all"]
Reason = Literal["skipped", "beyond_window", "superseded", "over_limit"]

WINDOW_S = 1800.0
MAX_CATCH_UP = 100
MAX_CATCH_UP_LIMIT = 1_000
ON_TIME = timedelta(seconds=10)  # a fire that is late by at most this is not missed: every policy plans it
_TICK = timedelta(microseconds=1)
_COUNT_LIMIT = 1_000  # missed fires counted one by one; above it, the count is "at least"


class CatchUp(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What happens to fires that were not planned in time. Fires older than the window are always missed."""

    policy: Policy = "latest"
    window_s: float = msgspec.field(default=WINDOW_S, name="window")
    max_catch_up: int = MAX_CATCH_UP  # for `all`: only this many, the newest


class Gap(msgspec.Struct, frozen=True):
    """Fires that will not run: one row of the ledger."""

    first: datetime
    last: datetime
    count: int
    at_least: bool  # the count stopped at its limit
    reason: Reason


class Plan(msgspec.Struct, frozen=True):
    fires: tuple[datetime, ...]  # nominal instants to be written as runs, increasing
    missed: tuple[Gap, ...]
    cursor_at: datetime  # everything up to here has been decided
    is_over: bool  # nothing fires after the cursor, ever


def catch_up(policy: str = "latest", *, window: Duration = WINDOW_S, max_catch_up: int = MAX_CATCH_UP) -> CatchUp:
    """The checked policy; `Invalid` names the field and the fix."""
    if policy not in ("skip", "latest", "all"):
        raise Invalid("catch_up.policy", f"{policy!r} is unknown; use skip, latest or all")
    if type(max_catch_up) is not int or not 1 <= max_catch_up <= MAX_CATCH_UP_LIMIT:
        raise Invalid("catch_up.max_catch_up", f"{max_catch_up!r} must be between 1 and {MAX_CATCH_UP_LIMIT:,}")
    return CatchUp(
        policy="skip" if policy == "skip" else "latest" if policy == "latest" else "all",
        window_s=seconds(window, field="catch_up.window"),
        max_catch_up=max_catch_up,
    )


def plan(
    schedule: Schedule,
    *,
    cursor_at: datetime,
    now: datetime,
    horizon_at: datetime,
    policy: CatchUp,
    seed: str = "",
    fired_count: int = 0,
    on_time: timedelta = ON_TIME,
    lead: timedelta = timedelta(0),
    ahead_limit: int = 100,
) -> Plan:
    """Decides every fire after the cursor up to the horizon, and the next fire, unless one is already planned beyond `lead`.

    `fired_count` of `max_fires` are used: planned fires count, missed ones do not. To resume a paused job, pass
    `on_time=timedelta(0)`, so that no fire of the pause is planned automatically.
    """
    left = _left(schedule, fired_count)
    if left == 0:
        return Plan((), (), cursor_at, is_over=True)
    just_now = max(cursor_at, now - on_time)
    late: tuple[datetime, ...] = ()
    missed: tuple[Gap, ...] = ()
    upcoming = unlimited_fires(schedule, after=cursor_at, seed=seed)
    following = next(upcoming, None)
    if following is not None and following <= just_now:
        upcoming = unlimited_fires(schedule, after=just_now, seed=seed)
        following = next(upcoming, None)
        late, missed = _late(
            schedule, cursor_at, just_now, now, policy, seed, any_later=following is not None and following <= now
        )
    taken: list[datetime] = []
    while (
        following is not None
        and len(taken) < ahead_limit
        and (following <= max(now, horizon_at) or _is_next(taken, cursor_at, now + lead))
    ):
        taken.append(following)
        following = next(upcoming, None)
    chosen = (*late, *taken)[:left]
    reached = max([cursor_at, *chosen[-1:], *(gap.last for gap in missed)])
    return Plan(chosen, missed, reached, is_over=following is None or len(chosen) == left)


def _left(schedule: Schedule, fired_count: int) -> int | None:
    return None if schedule.max_fires is None else max(0, schedule.max_fires - fired_count)


def _is_next(taken: list[datetime], cursor_at: datetime, beyond: datetime) -> bool:
    """True while no fire is planned beyond this instant. A cursor beyond it means that one is."""
    return cursor_at <= beyond and (not taken or taken[-1] <= beyond)


def _late(
    schedule: Schedule,
    cursor_at: datetime,
    until: datetime,
    now: datetime,
    policy: CatchUp,
    seed: str,
    *,
    any_later: bool,
) -> tuple[tuple[datetime, ...], tuple[Gap, ...]]:
    """The fires in (cursor, until] that still run, and the gaps. The caller knows that the range holds a fire."""
    opens = min(max(cursor_at, now - timedelta(seconds=policy.window_s) - _TICK), until)
    match policy.policy:
        case "skip":
            return (), _gaps(schedule, seed, (cursor_at, until, "skipped"))
        case "latest" if any_later:
            return (), _gaps(schedule, seed, (cursor_at, until, "superseded"))
        case "latest":
            latest = last_fire(schedule, after=opens, until=until, seed=seed)
            if latest is None:
                return (), _gaps(schedule, seed, (cursor_at, until, "beyond_window"))
            return (latest,), _gaps(schedule, seed, (cursor_at, latest - _TICK, "superseded"))
        case "all":
            kept_after, found = opens, _between(schedule, opens, until, seed, policy.max_catch_up + 1)
            if len(found) > policy.max_catch_up:
                kept_after, found = _newest(schedule, opens, until, seed, policy.max_catch_up)
            return found, _gaps(schedule, seed, (cursor_at, opens, "beyond_window"), (opens, kept_after, "over_limit"))


def _newest(
    schedule: Schedule, after: datetime, until: datetime, seed: str, count: int
) -> tuple[datetime, tuple[datetime, ...]]:
    """The last `count` fires in (after, until], which holds more, and an instant that separates them from the others."""
    while True:
        middle = after + (until - after) / 2
        found = _between(schedule, middle, until, seed, count + 1)
        if len(found) == count:
            return middle, found
        if len(found) > count:
            after = middle
            continue
        wanted = count - len(found)
        _, earlier = _newest(schedule, after, middle, seed, wanted)
        return earlier[0] - _TICK, (*earlier, *found)


def _between(schedule: Schedule, after: datetime, until: datetime, seed: str, limit: int) -> tuple[datetime, ...]:
    upcoming = unlimited_fires(schedule, after=after, seed=seed)
    return tuple(islice(takewhile(lambda instant: instant <= until, upcoming), limit))


def _gaps(schedule: Schedule, seed: str, *spans: tuple[datetime, datetime, Reason]) -> tuple[Gap, ...]:
    """A gap for each (after, until] that holds a fire."""
    gaps = []
    for after, until, reason in spans:
        if found := _between(schedule, after, until, seed, _COUNT_LIMIT + 1):
            count, at_least = _counted(schedule, found, until)
            last = found[-1]
            if len(found) > _COUNT_LIMIT:
                last = last_fire(schedule, after=last, until=until, seed=seed) or last
            gaps.append(Gap(found[0], last, count, at_least, reason))
    return tuple(gaps)


def _counted(schedule: Schedule, found: tuple[datetime, ...], until: datetime) -> tuple[int, bool]:
    if len(found) <= _COUNT_LIMIT:
        return len(found), False
    if schedule.every_s is not None and not schedule.exclude:
        end = until if schedule.end_at is None else min(until, schedule.end_at)
        return (end - found[0]) // timedelta(seconds=schedule.every_s) + 1, False
    return _COUNT_LIMIT, True
