"""What a scenario is: how to run it once, and what its figures must reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .bed import Bed

Figures = dict[str, Any]  # key: number, or null where it cannot be known here


class Target(NamedTuple):
    """DESIGN §6. Which way is better follows from the two."""

    must: float
    goal: float

    def reached(self, limit: float, value: float) -> bool:
        return value >= limit if self.goal > self.must else value <= limit


@dataclass(frozen=True, slots=True)
class Options:
    jobs: int | None = None  # none: the scenario's own size
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    targets: Mapping[str, Target]  # the first decides which repetition was the best
    run: Callable[[Bed, Options], Awaitable[Figures]]

    def best(self, repetitions: Sequence[Figures]) -> Figures:
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
    return None if cpu_s is None else cpu_s / jobs * 1e6
