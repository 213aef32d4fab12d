"""How a drain, a steady load and submissions grow with the CPU of the server and of the workers.

A cgroup holds one side to a quarter, half, one and two cores; the other has what is left of the machine. Which of the two is
the limit shows in how much of its share it used. The lines for 4 to 64 cores are calculated, not measured: from the cost
per job at the largest share, as if locks and the disk cost nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple

from bench.draining import drain
from bench.quota import quota
from bench.scenario import Options
from bench.scenarios.steady import STEP_AHEAD_S, highest_rate, hold
from bench.submitter import Orders
from bench.testbed import Testbed, fresh_testbed, machine_to_ourselves

from .testbed import say, tell

SHARES = (0.25, 0.5, 1.0, 2.0)
SIDES = ("server", "worker")
JOBS_PER_CORE = 40_000  # so that a small share does not take minutes
STEADY_SHARE = 0.5  # of the rate of the drain: where the search for the highest steady rate begins
STEPS = 4
STEP_S = 8.0
CORES = (4, 8, 16, 32, 64)


class Measured(NamedTuple):
    side: str
    cores: float
    drain_per_s: float
    submit_per_s: float
    steady_per_s: float
    worker_us: float
    server_us: float
    server_submit_us: float
    worker_used: float  # cores, during the drain
    server_used: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.quotas", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS_PER_CORE, help="jobs of a drain, per core of the share")
    parser.add_argument("--no-steady", action="store_true", help="without the search for the highest steady rate")
    arguments = parser.parse_args()
    asyncio.run(_study(arguments.jobs, is_steady=not arguments.no_steady))


async def _study(jobs_per_core: int, *, is_steady: bool) -> None:
    largest: dict[str, Measured] = {}
    with machine_to_ourselves(say):
        for side in SIDES:
            for cores in SHARES:
                say(f"the {side} on {cores:g} cores")
                async with _held(side, cores) as testbed:
                    measured = await _measure(testbed, side, cores, int(jobs_per_core * max(cores, 0.5)), is_steady=is_steady)
                tell(**measured._asdict(), limit=_limit(measured))
                largest[side] = measured
    for line in _calculated(largest["server"]):
        tell(**line)


@asynccontextmanager
async def _held(side: str, cores: float) -> AsyncIterator[Testbed]:
    with ExitStack() as group:
        share = group.enter_context(quota(side, cores))
        async with fresh_testbed(external_url=None, bin_dir=None, concurrency=None, say=lambda _: None) as testbed:
            if side == "worker":
                testbed.quotas = {"worker": share, "submitter": share}
            elif testbed.server.pid is not None:
                share.hold([testbed.server.pid])
            yield testbed


async def _measure(testbed: Testbed, side: str, cores: float, jobs: int, *, is_steady: bool) -> Measured:
    await drain(testbed, range(-2_000, 0))  # caches, plans and files
    drained = await drain(testbed, range(jobs))
    figures = drained.figures
    worker_us, server_us = figures["cpu_us_per_job_worker"] or 0.0, figures["cpu_us_per_job_server"] or 0.0
    submit_per_s, server_submit_us = await _submitted(testbed, 1_000_000_000, jobs)
    return Measured(
        side,
        cores,
        drained.jobs_per_s,
        submit_per_s,
        await _steady(testbed, drained.jobs_per_s) if is_steady else 0.0,
        worker_us,
        server_us,
        server_submit_us,
        worker_us * drained.jobs_per_s / 1e6,
        server_us * drained.jobs_per_s / 1e6,
    )


async def _submitted(testbed: Testbed, first: int, jobs: int) -> tuple[float, float]:
    """In bulk through the SDK, from a process of its own; the jobs are drained afterwards."""
    usage_since = testbed.meter()
    async with testbed.submitting(Orders(first=first, count=jobs, backlog=jobs)) as submission:
        report = await submission.done()
    usage = usage_since()
    await testbed.server.monitor.execute("TRUNCATE sexton.runs")
    return report.count / report.span_s, (usage.server_s or 0.0) / report.count * 1e6


async def _steady(testbed: Testbed, drain_per_s: float) -> float:
    testbed.start_scheduler()
    testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    held = await hold(testbed, 2_000_000_000, STEADY_SHARE * drain_per_s, STEP_S, STEP_AHEAD_S)
    highest, _ = await highest_rate(testbed, held, Options(), steps=STEPS, step_s=STEP_S)
    return highest


def _limit(measured: Measured) -> str:
    """The held side, if it used nearly all of its share; otherwise the other one."""
    used = measured.server_used if measured.side == "server" else measured.worker_used
    other = "worker" if measured.side == "server" else "server"
    return measured.side if used >= 0.85 * measured.cores else other


def _calculated(server: Measured) -> list[dict[str, float]]:
    """On a machine of its own with this many cores, the server does this much; so many workers, of a core each, feed it."""
    lines = []
    for cores in CORES:
        drain_per_s = cores / server.server_us * 1e6
        lines.append(
            {
                "calculated": True,
                "server_cores": cores,
                "drain_per_s": drain_per_s,
                "workers": drain_per_s * server.worker_us / 1e6,
                "submit_per_s": cores / server.server_submit_us * 1e6,
                "both_per_s": cores / (server.server_us + server.server_submit_us) * 1e6,
            }
        )
    return lines


if __name__ == "__main__":
    main()
