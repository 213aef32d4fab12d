"""The benchmarks still run, and say what others read in them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONDITIONS = {
    "scenario",
    "spread",
    "repetitions",
    "options",
    "targets",
    "measured_at",
    "machine",
    "postgres",
    "sexton",
    "steal_pct",
}


async def measure(scenario: str, *options: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", scenario, "--json", "--shared", *options,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    (line,) = said.decode().splitlines()
    outcome: dict[str, Any] = json.loads(line)
    return outcome


@pytest.mark.timeout(120)
async def test_drain_tells_rate_and_cost_per_job() -> None:
    outcome = await measure("drain", "--jobs", "500")
    costs = {
        "jobs_per_s", "jobs_per_s_recorded", "cpu_us_per_job_worker", "cpu_us_per_job_server", "wal_bytes_per_job",
        "statements_per_job", "dead_tuples_per_job", "rss_mib",
    }  # fmt: skip
    assert outcome.keys() >= CONDITIONS | costs
    assert outcome["jobs_seen"] == 500
    assert outcome["jobs_repeated"] == 0
    assert all(outcome[key] > 0 for key in ("jobs_per_s", "jobs_per_s_recorded", "wal_bytes_per_job", "statements_per_job"))
    assert outcome["jobs_per_s_recorded"] <= outcome["jobs_per_s"]
    assert outcome["postgres"]["settings"]["fsync"] == outcome["postgres"]["settings"]["synchronous_commit"] == "on"


@pytest.mark.timeout(120)
async def test_latency_tells_the_way_from_submission_to_start() -> None:
    outcome = await measure("latency", "--jobs", "10")
    assert outcome.keys() >= CONDITIONS | {
        "latency_p50_s",
        "latency_p99_s",
        "latency_from_call_p50_s",
        "latency_from_call_p99_s",
    }
    assert 0 < outcome["latency_from_call_p50_s"] <= outcome["latency_from_call_p99_s"] < 5
