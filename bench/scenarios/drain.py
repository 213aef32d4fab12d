"""Waiting no-op jobs, and workers that start: the rate, and the cost of each job."""

from __future__ import annotations

from bench.draining import drain
from bench.scenario import Figures, Options, Scenario, Target
from bench.testbed import Testbed

JOBS = 100_000


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    drained = await drain(testbed, range(jobs), workers=options.workers)
    return {
        "jobs_per_s": drained.jobs_per_s,
        "jobs_per_s_recorded": jobs / drained.recorded_s,
        **drained.figures,
        **testbed.record.tally(),
        "hot_statements": await testbed.server.hot_statements(),
    }


SCENARIO = Scenario(
    "drain",
    "100,000 no-op jobs waiting, one worker",
    {
        "jobs_per_s": Target(15_000, 20_000),
        "cpu_us_per_job": Target(95, 70),
        "wal_bytes_per_job": Target(1_400, 1_200),
    },
    run,
)
