"""The benchmarks run, and their output has the figures that other programs read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import bench.__main__ as command
from bench import backlog, machine, record, submitter
from bench.scenario import Scenario, Target, distribution, per_job_us
from bench.scenarios import ALL
from bench.tables import level, missed, summary

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
    "elsewhere_pct",
}


async def measure(scenario: str, *options: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", scenario, "--json", "--shared", *options,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    (line,) = output.decode().splitlines()
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


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_latency_tells_the_way_from_submission_to_start() -> None:
    outcome = await measure("latency", "--jobs", "10")
    assert outcome.keys() >= CONDITIONS | {
        "latency_p50_s",
        "latency_p99_s",
        "latency_from_call_p50_s",
        "latency_from_call_p99_s",
        "cpu_us_per_job",
        "statements_per_job",
        "wal_bytes_per_job",
    }
    assert 0 < outcome["latency_from_call_p50_s"] <= outcome["latency_from_call_p99_s"] < 5


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_steady_loses_nothing_and_tells_how_late_each_was() -> None:
    outcome = await measure("steady", "--quick")
    assert outcome.keys() >= CONDITIONS | {"lag_p50_s", "lag_p99_s", "lag_max_s", "highest_rate_per_s", "cpu_us_per_job_client"}
    assert (outcome["jobs_seen"], outcome["jobs_lost"], outcome["jobs_repeated"]) == (1000, 0, 0)
    shares = outcome["series"]["share_over_lag_s"]
    assert shares == sorted(shares)
    assert shares[-1][1] == 1.0
    assert len(outcome["series"]["lag_p99_s_over_rate_per_s"]) == 2


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_takeover_kills_the_leader_and_every_run_starts() -> None:
    outcome = await measure("takeover", "--quick")
    assert outcome.keys() >= CONDITIONS | {"takeover_s", "longest_gap_s"}
    assert outcome["jobs_seen"] == len(outcome["series"]["lag_s_over_due_after_kill_s"])
    assert outcome["jobs_repeated"] == 0
    assert 0 < outcome["takeover_s"] < 60


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_neighbours_compares_the_others_alone_and_beside_each_kind() -> None:
    outcome = await measure("neighbours", "--quick")
    kinds = {"schedule", "run", "limit", "key", "silent"}
    assert outcome.keys() >= CONDITIONS | {f"{kind}_ratio" for kind in kinds}
    assert outcome["worst_ratio"] == max(outcome[f"{kind}_ratio"] for kind in kinds) > 0


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_poison_buries_no_innocent_and_tells_how_late_they_were() -> None:
    outcome = await measure("poison", "--quick")
    assert outcome.keys() >= CONDITIONS | {"lag_p50_s", "lag_p99_s", "lag_max_s", "all_ended_s", "restart_s"}
    assert (outcome["innocents_buried"], outcome["poison"], outcome["deaths_beyond_bound"]) == (0, 1, 0)
    assert 0 < outcome["down_share"] < 1
    assert outcome["slot_s_lost_per_poison"] > 0
    assert outcome["workers_lost"] <= 2


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_memory_tells_what_each_process_holds_beside_what_waits() -> None:
    outcome = await measure("memory", "--quick", "--waiting", "3000")
    assert outcome.keys() >= CONDITIONS | {"rss_mib", "rss_mib_scheduler", "growth_mib_per_million"}
    assert (outcome["waiting"], outcome["executions"], outcome["jobs_seen"]) == (3000, 3000, 1000)
    assert outcome["series"]["rss_mib_over_jobs"][-1][0] == 1000


def test_the_cost_of_jobs_that_no_meter_saw_is_not_known() -> None:
    """A few jobs may all have started before the first reading of the meter."""
    assert per_job_us(1.5, 0) is None
    assert per_job_us(1.5, 1_000) == pytest.approx(1500)


FAILING = """
import bench.__main__ as main
from bench.scenario import Scenario, Target

async def fails(testbed, options):
    raise RuntimeError("no luck")

async def works(testbed, options):
    return {"speed": 15.0}

main.ALL = {run.__name__: Scenario(run.__name__, "", {"speed": Target(10, 20)}, run) for run in (fails, works)}
main.main()
"""


@pytest.mark.nightly
@pytest.mark.timeout(120)
async def test_all_goes_on_after_a_failure_and_says_so() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FAILING, "all", "--json", "--shared",
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, complaint = await process.communicate()
    assert process.returncode == 1
    failed, worked = map(json.loads, output.decode().splitlines())
    assert failed == {"scenario": "fails", "failed": "no luck"}
    assert (worked["scenario"], worked["speed"]) == ("works", 15.0)
    assert worked.keys() >= CONDITIONS
    assert "fails failed: no luck" in complaint.decode()


def test_every_scenario_of_the_design_is_there_and_what_takes_long_comes_last() -> None:
    """Each figure has a target in docs/performance.md."""
    assert ALL.keys() >= {
        "drain", "herd", "steady", "submit", "latency", "timer", "depth", "recurring", "tenants", "recovery", "takeover",
        "poison", "neighbours", "idle", "memory", "bloat", "scale",
    }  # fmt: skip
    assert list(ALL)[-3:] == ["bloat", "depth", "memory"]


def test_the_summary_says_of_each_figure_whether_it_was_reached() -> None:
    async def run(*_: Any) -> dict[str, Any]:
        return {}

    scenario = Scenario("drain", "", {"jobs_per_s": Target(10, 20), "cpu_us": Target(90, 70)}, run)
    outcome = {
        "jobs_per_s": 15.0, "cpu_us": None, "steal_pct": 0.0, "elsewhere_pct": 0.0, "repetitions": 1,
        "machine": {"cores": 2, "cpu": "any"}, "postgres": {"version": "18"},
    }  # fmt: skip
    assert summary([(scenario, outcome), (scenario, None)]).row_count == 3
    assert [level(Target(10, 20), value) for value in (9, 10, 20, None)] == ["no", "must", "goal", "unknown"]
    assert [level(Target(90, 70), value) for value in (91, 90, 70)] == ["no", "must", "goal"]
    assert missed([(scenario, outcome), (scenario, None)]) == ["drain: cpu_us is None, and must be 90"]


@pytest.mark.parametrize(("speed", "options", "code"), [(9, ["--judge"], 1), (10, ["--judge"], 0), (9, [], 0)])
def test_a_missed_must_is_an_exit_code_if_figures_are_judged(
    monkeypatch: pytest.MonkeyPatch, speed: float, options: list[str], code: int
) -> None:
    async def run(*_: Any) -> dict[str, Any]:
        return {"scenario": "drain", "speed": speed}

    monkeypatch.setattr(command, "ALL", {"drain": Scenario("drain", "", {"speed": Target(10, 20)}, run)})
    monkeypatch.setattr(command, "_measure", run)
    monkeypatch.setattr(sys, "argv", ["bench", "drain", "--json", *options])
    with pytest.raises(SystemExit) as exited:
        command.main()
    assert int(exited.value.code or 0) == code


def test_a_distribution_ends_with_the_latest_of_all() -> None:
    assert distribution([3.0, 1.0, 2.0, 4.0], points=2) == [[1.0, 0.25], [3.0, 0.75], [4.0, 1.0]]


def test_the_cpu_of_a_process_that_has_ended_is_still_ours() -> None:
    """Otherwise a submitter that has ended would count as other load of the machine."""
    before = machine.tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert machine.tree_cpu_s(os.getpid()) - before >= 0.25


Disk = namedtuple("Disk", "free")


class Server:
    is_local = True

    def __init__(self) -> None:
        self.monitor = self

    async def fetchval(self, _query: str) -> str:
        return "/"


async def test_what_the_disk_cannot_hold_is_scaled_down_loudly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server: Any = Server()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(10**9))
    assert await backlog.affordable(server, 200_000) == 200_000
    assert capsys.readouterr().err == ""
    assert await backlog.affordable(server, 10_000_000) == 400_000
    assert "400,000 waiting runs and executions, not 10,000,000" in capsys.readouterr().err


def test_a_submitter_tops_the_backlog_up_as_jobs_start(tmp_path: Path) -> None:
    started = record.Record(tmp_path / "record")
    sizes = submitter._topped_up(submitter.Orders(count=7_000, backlog=4_000), started)
    assert [next(sizes) for _ in range(3)] == [2_000, 2_000, 0]
    started.path.write_bytes(record.ROW.pack(1, 1.0) * 2_000)
    assert [next(sizes), next(sizes)] == [2_000, 0]
    started.path.write_bytes(record.ROW.pack(1, 1.0) * 6_000)
    assert list(sizes) == [1_000]
