"""A scenario: how to run it once, and the targets for its figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .server import Counters
from .testbed import Testbed, Usage

Figures = dict[str, Any]  # key: number, or null if it cannot be measured here; "series": {name: [[x, y], …]} for plots
Points = list[list[float]]


class Target(NamedTuple):
    """The targets of docs/performance.md: `must` is what a release needs, `goal` is what we want. Which of the two is larger
    says which direction is better."""

    must: float
    goal: float

    def is_met(self, limit: float, value: float) -> bool:
        return value >= limit if self.goal > self.must else value <= limit


@dataclass(frozen=True, slots=True)
class Options:
    jobs: int | None = None  # none: the scenario's own size
    workers: int = 1
    waiting: int | None = None  # runs that are due in a year, where the number matters
    quick: bool = False  # checks only that the scenario runs: a few seconds, and figures without meaning


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    targets: Mapping[str, Target]  # the first one chooses the best repetition
    run: Callable[[Testbed, Options], Awaitable[Figures]]
    quick_jobs: int = 1_000

    def best(self, repetitions: Sequence[Figures]) -> Figures:
        if not self.targets:
            return repetitions[-1]
        key, target = next(iter(self.targets.items()))
        sign = 1.0 if target.goal > target.must else -1.0
        return max(repetitions, key=lambda figures: sign * figures[key])


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def lags(lags_s: Sequence[float]) -> Figures:
    return {
        "lag_p50_s": percentile(lags_s, 50),
        "lag_p99_s": percentile(lags_s, 99),
        "lag_max_s": max(lags_s),
    }


def per_job_us(cpu_s: float | None, jobs: int) -> float | None:
    """Null where it is not known: a few jobs may all have started before the first reading of the meter."""
    return None if cpu_s is None or jobs == 0 else cpu_s / jobs * 1e6


def costs(usage: Usage, before: Counters, after: Counters, jobs: int, *, metered: int | None = None) -> Figures:
    """The cost per job. `metered`: the jobs that the meter covered, if it started late."""
    all_s = None if usage.server_s is None else usage.worker_s + usage.scheduler_s + usage.server_s
    seen = jobs if metered is None else metered
    return {
        "cpu_us_per_job": per_job_us(all_s, seen),
        "cpu_us_per_job_worker": per_job_us(usage.worker_s, seen),
        "cpu_us_per_job_scheduler": per_job_us(usage.scheduler_s, seen),
        "cpu_us_per_job_server": per_job_us(usage.server_s, seen),
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
        "statements_per_job": None if after.statements is None else (after.statements - (before.statements or 0)) / jobs,
        "transactions_per_job": (after.transactions - before.transactions) / jobs,
        "dead_tuples_per_job": (after.dead_tuples - before.dead_tuples) / jobs,
        "hot_updates_per_job": (after.hot_updates - before.hot_updates) / jobs,
    }


def distribution(values: Sequence[float], points: int = 200) -> Points:
    """For each of these values, the share of all that is not above it."""
    ordered = sorted(values)
    places = sorted({round(step / points * (len(ordered) - 1)) for step in range(points + 1)})
    return [[round(ordered[place], 6), (place + 1) / len(ordered)] for place in places]
