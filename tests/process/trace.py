"""Computes from the handlers' journal which handlers ran when, and checks that against limits.

All times are from one monotonic clock. A handler that was killed with its worker ended when that process ended. One without an
end in the journal counts as running to the last line, so that an error shows too many at once, never too few."""

from __future__ import annotations

import time
from bisect import bisect_left
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
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
    """Kills workers and records when each process ended."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster, self._rng = cluster, rng
        self.deaths: dict[int, float] = {}

    def kill_one(self, names: Sequence[str], *, preferred: int | None = None) -> None:
        """Kills any of them, or the one to which that process belongs; a new one replaces it. Its child processes, which
        execute runs in quarantine, die with it."""
        members = {name: self._members(name) for name in names}
        name = next((name for name, pids in members.items() if preferred in pids), None) or self._rng.choice(names)
        self._cluster.kill(name)
        self.deaths |= dict.fromkeys(members[name], time.monotonic())
        self._cluster.restart(name)

    def hit_one(self, names: Sequence[str], running: Callable[[], Sequence[int]]) -> bool:
        """Kills one of the processes that `running` finds, while it is still among them: it is stopped before the second look,
        so a handler cannot end in between, however busy the machine is."""
        for pid in running():
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                process = psutil.Process(pid)
                process.suspend()
                while process.status() != psutil.STATUS_STOPPED:
                    time.sleep(0.001)
                if pid in running():
                    self.kill_one(names, preferred=pid)
                    return True
                process.resume()
        return False

    def _members(self, name: str) -> list[int]:
        pid = self._cluster[name].pid
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def spans(lines: Sequence[Line], deaths: Mapping[int, float], jobs: Collection[UUID]) -> list[Span]:
    """Spans in the order of their starts; `lines` is ordered by time."""
    found: list[Span] = []
    going_on: dict[tuple[int, int], Line] = {}
    for line in (line for line in lines if line.job_id in jobs):
        who = (line.pid, line.context)
        if line.what == "start":
            if (earlier := going_on.get(who)) is not None:  # it never ended, and another context has its address now
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
    """When the number of running handlers changed, and to what. An end counts before a start at the same instant."""
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
    """The share of the slots' time that handlers used."""
    busy_s = sum(max(0.0, min(span.ended_at, end) - max(span.began_at, begin)) for span in spans)
    return busy_s / slots / (end - begin)


def most_in_a_window(starts: Sequence[float], window_s: float) -> int:
    """The largest number of starts in any window; the fullest window begins at a start."""
    return max(bisect_left(starts, start + window_s) - index for index, start in enumerate(starts))
