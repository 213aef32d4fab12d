"""A small soak: it samples what it should, and detects what grows (F6). The long form is `make soak`."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from chaos.soak import report
from chaos.soak.run import SoakPlan, soak
from chaos.soak.slopes import bound_of, judge, line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = 3600.0


def series(per_hour: float, *, start: float = 100.0, noise: float = 0.0, span_s: float = HOUR) -> list[list[float]]:
    rng = Random(1)
    return [[at, start + per_hour * at / HOUR + rng.uniform(-noise, noise)] for at in range(0, int(span_s), 10)]


def test_the_line_through_points_is_the_least_squares_one() -> None:
    assert line([[0, 1], [1, 3], [2, 5]]) == pytest.approx((2.0, 1.0))
    assert line([[5, 7]]) == (0.0, 7)
    assert line([]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "innocent", "guilty"),
    [
        ("memory worker-1", 2.0, 30.0),
        ("files api", 0.0, 20.0),
        ("connections", 0.0, 12.0),
        ("dead rows", 20_000.0, 1_000_000.0),
        ("ready runs", 100.0, 50_000.0),
        ("table runs", 1.0, 60.0),
        ("index slots", 1.0, 60.0),
        ("table executions", 400.0, 5_000.0),
    ],
)
def test_a_leak_is_detected_and_noise_is_not(name: str, innocent: float, guilty: float) -> None:
    """F6."""
    waver = bound_of(name, 500).least / 2
    flat, grows = series(innocent, noise=waver), series(guilty, noise=waver)
    assert [one.is_flat for one in judge({name: flat}, span_s=HOUR, rate_per_s=500)] == [True]
    (convicted,) = judge({name: grows}, span_s=HOUR, rate_per_s=500)
    assert not convicted.is_flat
    assert convicted.per_hour == pytest.approx(guilty, rel=0.3)


def test_growth_in_the_first_third_does_not_count() -> None:
    """A process fills its caches, and a held snapshot leaves a larger table."""
    points = [[at, 20.0 if at < HOUR / 4 else 200.0] for at in range(0, 3600, 10)]
    assert judge({"table runs": points}, span_s=HOUR, rate_per_s=500)[0].is_flat


def test_a_short_soak_finds_no_growth_in_a_short_peak() -> None:
    points = series(200.0, span_s=25)
    assert judge({"memory api": points}, span_s=25, rate_per_s=100)[0].is_flat


@pytest.mark.timeout(180)
async def test_a_short_soak_samples_everything_and_loses_nothing(
    database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """F6: with all kinds of jobs, a held snapshot, and a report."""
    plan = SoakPlan(span_s=9.0, rate_per_s=100.0, sample_s=0.5, schedulers=1, workers=1)
    outcome = await soak(plan, database_url, tmp_path, lambda _line: None)
    about = outcome.about
    figure(f"soak: {sum(about['submitted'].values()):,} jobs, p99 of lag {1000 * about['lag_p99_s']:.0f} ms")
    assert about["lost_count"] == 0
    assert sum(about["submitted"].values()) == pytest.approx(95 * 9, rel=0.5)  # other tests run at the same time
    assert set(about["submitted"]) == {"note", "flaky", "doomed", "limited"}
    assert about["executions"]["failed"] == about["submitted"]["flaky"] + 2 * about["submitted"]["doomed"]
    assert about["samples"] >= 5
    kinds = {name.split()[0] for name in outcome.series}
    assert kinds == {"memory", "files", "connections", "dead", "ready", "table", "index"}
    assert {f"memory {name}" for name in ("api", "scheduler-1", "worker-1", "submitter", "postgres")} <= set(outcome.series)
    assert all(len(points) >= about["samples"] - 2 for points in outcome.series.values())
    assert {one.name for one in outcome.verdicts} == set(outcome.series)  # nine seconds are too short to judge growth
    report.write(tmp_path / "report", about, outcome.verdicts, outcome.series)
    assert json.loads((tmp_path / "report/soak.json").read_text())["rate_per_s"] == 100.0
    assert "flat" in (tmp_path / "report/soak.txt").read_text()
    for picture in (tmp_path / "report").glob("*.svg"):
        ElementTree.fromstring(picture.read_text())
