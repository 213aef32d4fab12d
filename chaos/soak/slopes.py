"""Judges what has grown, and whether it may: a straight line (least squares) through the last two thirds of each series. The
phase with the held snapshot is before that, so its effect does not count as growth.

A series is judged to grow if its line rises faster than its bound and has risen by more than the series varies anyway. Without
the second condition a short soak would find growth in every series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

HOUR_S = 3600.0
JUDGED = 2 / 3
# These have one row or more for every job, as long as history is kept: the judgement is by rows per job.
HISTORY = ("jobs", "executions", "endings", "dead_letters")


class Bound(NamedTuple):
    per_hour: float
    least: float  # rise over the judged time that is not growth
    unit: str


class Verdict(NamedTuple):
    name: str
    first: float
    last: float
    per_hour: float
    bound: Bound
    is_flat: bool


def bound_of(name: str, rate_per_s: float) -> Bound:
    """Finds the bound by the first word of the name."""
    jobs_per_hour = rate_per_s * HOUR_S
    kind, _, what = name.partition(" ")
    match kind:
        case "memory":
            return Bound(12.0, 6.0, "MiB")  # a leak of 10 bytes per job is 17 MiB at 500 jobs a second
        case "files":
            return Bound(3.0, 3.0, "")
        case "connections":
            return Bound(2.0, 3.0, "")
        case "dead":
            return Bound(0.05 * jobs_per_hour, max(50_000.0, 200 * rate_per_s), "")  # their number changes between two vacuums
        case "ready":
            return Bound(0.001 * jobs_per_hour, 2 * rate_per_s, "")
        case "table" | "index" if what in HISTORY:
            return Bound(600 * jobs_per_hour / 2**20, 4.0, "MiB")  # 600 bytes of each per job
        case _:
            return Bound(12.0, 8.0, "MiB")


def line(points: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The rise per second and the value at the first point of the least-squares line."""
    if len(points) < 2:
        return 0.0, points[0][1] if points else 0.0
    first = points[0][0]
    xs, ys = [point[0] - first for point in points], [point[1] for point in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return rise, mean_y - rise * mean_x


def judged(points: Sequence[Sequence[float]], span_s: float) -> list[Sequence[float]]:
    return [point for point in points if point[0] >= (1 - JUDGED) * span_s]


def judge(series: Mapping[str, Sequence[Sequence[float]]], *, span_s: float, rate_per_s: float) -> list[Verdict]:
    verdicts = []
    for name, points in sorted(series.items()):
        looked_at = judged(points, span_s)
        rise, value = line(looked_at)
        seen_s = looked_at[-1][0] - looked_at[0][0] if looked_at else 0.0
        bound = bound_of(name, rate_per_s)
        is_flat = rise * HOUR_S <= bound.per_hour or rise * seen_s <= bound.least
        verdicts.append(Verdict(name, value, value + rise * seen_s, rise * HOUR_S, bound, is_flat))
    return verdicts
