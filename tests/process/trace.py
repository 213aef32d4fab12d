"""Who was at work when, from the journal that handlers keep: the spans in which they ran, and what limits say of them.

All times are of one monotonic clock. A handler that was killed with its worker ended when that process was gone; one that never
said that it ended is taken to run on to the last, so that in doubt there are too many at once, never too few."""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from random import Random
    from uuid import UUID

    from .cluster import Cluster
    from .journal import Line

NEVER = float("inf")


class Span(NamedTuple):
    job_id: UUID
    attempt: int
    pid: int
    began_at: float
    ended_at: float
    is_killed: bool


class Reaper:
    """Kills workers and remembers when each process was gone."""

    def __init__(self, cluster: Cluster, dice: Random) -> None:
        self._cluster, self._dice = cluster, dice
        self.deaths: dict[int, float] = {}

    def kill_one(self, names: Sequence[str], *, preferred: int | None = None) -> None:
        """Any of them, or the one with that process id; a new one takes its place."""
        name = next((name for name in names if self._cluster[name].pid == preferred), None) or self._dice.choice(names)
        pid = self._cluster[name].pid
        self._cluster.kill(name)
        self.deaths[pid] = time.monotonic()
        self._cluster.restart(name)


def spans(lines: Sequence[Line], deaths: Mapping[int, float], jobs: Collection[UUID]) -> list[Span]:
    """In the order they began; `lines` in the order of time."""
    found: list[Span] = []
    going_on: dict[tuple[int, int], Line] = {}
    for line in (line for line in lines if line.job_id in jobs):
        who = (line.pid, line.context)
        if line.what == "start":
            if (earlier := going_on.get(who)) is not None:  # never ended, and its context's address is in use again
                found.append(_unfinished(earlier, deaths))
            going_on[who] = line
        elif line.what == "end":
            start = going_on.pop(who)
            found.append(Span(start.job_id, start.attempt, start.pid, start.at, line.at, is_killed=False))
    found += [_unfinished(start, deaths) for start in going_on.values()]
    return sorted(found, key=lambda span: span.began_at)


def _unfinished(start: Line, deaths: Mapping[int, float]) -> Span:
    return Span(start.job_id, start.attempt, start.pid, start.at, deaths.get(start.pid, NEVER), start.pid in deaths)


def _steps(spans: Sequence[Span]) -> list[tuple[float, int]]:
    """When the number at work changed, and to what. Who ends at the instant another begins makes room for it."""
    changes = sorted([(span.began_at, 1) for span in spans] + [(span.ended_at, -1) for span in spans])
    return list(zip((at for at, _ in changes), accumulate(change for _, change in changes), strict=True))


def most_at_once(spans: Sequence[Span]) -> int:
    return max((count for _, count in _steps(spans)), default=0)


def full_again_s(spans: Sequence[Span], slots: int, since: float) -> float:
    """How long after an instant all slots were in use."""
    before = sum(span.began_at <= since < span.ended_at for span in spans)
    if before >= slots:
        return 0.0
    return next((at - since for at, count in _steps(spans) if at > since and count >= slots), NEVER)


def use(spans: Sequence[Span], slots: int, begin: float, end: float) -> float:
    """The part of the slots' time that handlers filled."""
    busy_s = sum(max(0.0, min(span.ended_at, end) - max(span.began_at, begin)) for span in spans)
    return busy_s / slots / (end - begin)


def most_in_a_window(starts: Sequence[float], window_s: float) -> int:
    """Wherever the window begins: the fullest begins at some start."""
    return max(bisect_left(starts, start + window_s) - index for index, start in enumerate(starts))
