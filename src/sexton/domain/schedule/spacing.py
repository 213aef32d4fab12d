"""How dense a schedule is: the shortest time between two fires, computed from the rule without listing its fires."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from . import cron_text, rrule_text
from .rrule import Freq
from .rule import Schedule

_DAY_S = 86_400


def least_spacing_s(schedule: Schedule, seed: str = "") -> float:
    """A lower bound, exact for rules that fire within an hour. A DST change may shorten it once."""
    if schedule.every_s is not None:
        return schedule.every_s
    if schedule.cron is not None:
        cron = cron_text.parse(schedule.cron, dialect=schedule.dialect, seed=seed)
        return _product((_DAY_S, (0,)), (3600, cron.hours), (60, cron.minutes), (1, cron.seconds))
    anchor = schedule.anchor_at or datetime(1970, 1, 1, tzinfo=UTC)
    rule = rrule_text.parse(schedule.rrule or "", timezone=schedule.timezone, anchor_at=anchor)
    levels = [(3600, rule.hours), (60, rule.minutes), (1, rule.seconds)]
    period_s = int(min(rule.freq, Freq.DAILY)) * (rule.interval if rule.freq <= Freq.DAILY else 1)
    inner = [(unit, values) for unit, values in levels if unit < min(rule.freq, Freq.DAILY)]
    return min(_product((period_s, (0,)), *inner), _listed(rule.extra), _listed(rule.extra_at))


def _product(period: tuple[int, Sequence[int]], *levels: tuple[int, Sequence[int]]) -> float:
    """The smallest step between all combinations of the values in a repeating period, from the largest unit to the smallest."""
    least = float(period[0])
    reach = 0  # from the first to the last within one value of the unit above
    for unit, values in reversed(levels):
        steps = [unit * (later - earlier) for earlier, later in pairwise(values)]
        least = min([least, *(step - reach for step in steps)])
        reach += unit * (values[-1] - values[0])
    return min(least, period[0] - reach)


def _listed(walls: Sequence[datetime]) -> float:
    return min(((later - earlier).total_seconds() for earlier, later in pairwise(walls)), default=float(_DAY_S))
