"""The table of peers: every peer has a row, also if it is missing, and the best repetition is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.peers import catalogue, install, phases, report
from bench.peers.phases import DRAIN_JOBS, TRIAL_JOBS, Pace

SEXTON, CELERY = catalogue.ALL["sexton"], catalogue.ALL["celery"]


def drained(jobs_per_s: float, **others: Any) -> dict[str, Any]:
    return {
        "jobs": 1000,
        "jobs_seen": 1000,
        "jobs_per_s": jobs_per_s,
        "jobs_per_s_recorded": jobs_per_s,
        "cpu_us_per_job_worker": 30.4,
        "cpu_us_per_job_server": 50.0,
        "wal_bytes_per_job": 500.0,
        "wal_bytes_per_job_submit": 700.0,
        "steal_pct": 1.0,
        "elsewhere_pct": 7.0,
        **others,
    }


def waited(key: str, value: float, **others: Any) -> dict[str, Any]:
    return {"jobs": 10, "jobs_seen": 10, key: value, "steal_pct": 4.0, "elsewhere_pct": 2.0, **others}


def test_the_best_repetition_is_the_fastest_drain_and_the_shortest_wait() -> None:
    assert report.best("drain1", [drained(10.0), drained(30.0), drained(20.0)]) == drained(30.0)
    assert report.best("herd", [waited("lag_max_s", 2.0), waited("lag_max_s", 1.0)]) == waited("lag_max_s", 1.0)


def test_a_repetition_that_lost_jobs_or_failed_never_beats_a_whole_one() -> None:
    whole, partial, failed = waited("lag_max_s", 9.0), waited("lag_max_s", 0.1, jobs_seen=3), {"error": "it fell over"}
    assert report.best("herd", [partial, whole, failed]) == whole
    assert report.best("herd", [failed, partial]) == partial
    assert report.best("herd", [failed]) == failed
    assert report.best("herd", []) is None


def test_a_row_tells_rates_costs_waits_and_the_worst_noise() -> None:
    by_phase = {
        "drain1": [drained(20_000.0)],
        "drain2": [drained(25_000.0, jobs_per_s_recorded=5_000.0)],
        "latency": [waited("latency_p50_s", 0.0012, latency_p99_s=0.009)],
        "herd": [waited("lag_max_s", 0.85, jobs_seen=4)],
        "timer": [waited("lag_p50_s", 0.002, lag_p99_s=0.0105)],
    }
    ((title, *cells),) = report.rows([SEXTON], {"sexton": by_phase}, missing={})
    assert title == "Sexton"
    assert cells == [
        "20,000/s",
        "25,000/s (5,000/s until recorded)",
        "1,000",
        "30 + 50",
        "700 + 500",
        "1.2 / 9.0 ms",
        "0.85 s (4 of 10 started)",
        "2.0 / 10.5 ms",
        "4 %, 7 %",
    ]


def test_a_missing_or_failed_product_has_a_row_that_says_so() -> None:
    measured = {"sexton": {"drain1": [{"error": "it fell over"}]}}
    ours, theirs = report.rows([SEXTON, CELERY], measured, missing={"celery": "no redis-server"})
    assert ours[1] == "FAILED"
    assert theirs[:2] == ["Celery + Redis", "MISSING: no redis-server"]
    assert len(ours) == len(theirs) == len(report.COLUMNS)
    assert report.failures(measured) == ["sexton, drain1: it fell over"]


def test_the_markdown_has_a_head_a_rule_and_a_line_per_peer() -> None:
    measured = {"sexton": {"drain1": [drained(900)], "timer": [waited("lag_p99_s", 0.1, lag_p50_s=0.05)]}}
    lines = report.markdown(report.rows([SEXTON, CELERY], measured, missing={"celery": "why"})).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert "drain, 1 worker" in lines[0]
    assert "spread over 5 s" in lines[0]
    assert "2 workers" not in lines[0], "that phase was not requested"


def test_a_slow_peer_drains_as_many_as_it_does_in_a_while_and_a_quick_one_all() -> None:
    assert Pace(submit_per_s=30_000, jobs_per_s=9_000).drain_jobs(DRAIN_JOBS) == DRAIN_JOBS
    assert Pace(submit_per_s=10_000, jobs_per_s=300).drain_jobs(DRAIN_JOBS) == 4_000
    assert Pace(submit_per_s=900, jobs_per_s=9_000).drain_jobs(DRAIN_JOBS) == 13_000
    assert Pace(submit_per_s=100, jobs_per_s=10).drain_jobs(DRAIN_JOBS) == TRIAL_JOBS


def test_every_job_is_submitted_before_the_first_is_due() -> None:
    assert Pace(submit_per_s=1_000, jobs_per_s=500).lead_s(10_000) > 10


def test_every_phase_has_a_figure_that_decides() -> None:
    assert report.DECISIVE.keys() == set(phases.ALL)


def test_a_peer_that_is_not_installed_is_missing_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    told = {name: install.missing(peer) for name, peer in catalogue.ALL.items()}
    assert told.pop("sexton") is told.pop("sexton-batch") is None
    assert set(told.values()) == {"not installed: python -m bench peers --install"}
