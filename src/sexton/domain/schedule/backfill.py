"""Which past fires a backfill covers: those of the job's own rule in a range, at a bounded cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal, NamedTuple

from sexton.domain.duration import Duration, seconds
from sexton.domain.fault import Invalid

from .fires import EPOCH, unlimited_fires
from .rule import Schedule

Fires = Literal["missing", "all"]
Overlap = Literal["queue", "parallel"]

LIMIT = 1_000  # fires that one call may write
SEARCH_LIMIT = 10_000  # fires of the rule that one call may examine
SEARCH_S = 0.25  # a longer search through the rule is rejected; each single step has its own bound
SPACING_S = 1.0
SPACING_S_MAX = 86_400.0
_TICK = timedelta(microseconds=1)


class BackfillSpec(NamedTuple):
    """The fires from `from_at` up to, not including, `until`, and how they run."""

    from_at: datetime
    until: datetime | None = None  # null: now
    fires: Fires = "missing"
    spacing: Duration = SPACING_S
    overlap: Overlap = "queue"
    dry_run: bool = False  # writes nothing


def spacing_s(spacing: Duration) -> float:
    span_s = seconds(spacing, field="spacing")
    if span_s > SPACING_S_MAX:
        raise Invalid("spacing", "must be at most 24h")
    return span_s


def end_of(from_at: datetime, until: datetime | None, now: datetime) -> datetime:
    """The end of the range, not included: by default now. It must be in the past."""
    for field, at in (("from", from_at), ("until", until)):
        if at is not None and at.tzinfo is None:
            raise Invalid(field, "give an instant with an offset, such as 2026-03-01T09:00:00Z")
        if at is not None and at > now:
            raise Invalid(field, "is in the future; only the past can be backfilled")
    if from_at < EPOCH:
        raise Invalid("from", "is before 1970")
    end = now if until is None else until
    if from_at >= end:
        raise Invalid("until", "must be after from; until is not included")
    return end


def nominal(
    schedule: Schedule, seed: str, from_at: datetime, until: datetime, monotonic: Callable[[], float]
) -> list[datetime]:
    """From `from_at` to before `until`, with zone, exclusions, start and end. `max_fires` is ignored: it counts only the
    schedule's own fires."""
    found: list[datetime] = []
    begun_s = monotonic()
    for at in takewhile(lambda fire_at: fire_at < until, unlimited_fires(schedule, after=from_at - _TICK, seed=seed)):
        if len(found) == SEARCH_LIMIT:
            raise too_many("fires", SEARCH_LIMIT, at)
        found.append(at)
        if monotonic() - begun_s > SEARCH_S:
            raise too_many("fires, and the search takes too long", len(found) - 1, at)
    return found


def too_many(what: str, limit: int, at: datetime) -> Invalid:
    then = at.isoformat().replace("+00:00", "Z")
    return Invalid("until", f"more than {limit:,} {what}; split it: until {then} first, then from {then} on")
