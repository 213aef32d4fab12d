"""No-op jobs that wait, and workers that come to them: how fast they go, and what each costs."""

from __future__ import annotations

from bench.bed import Bed
from bench.draining import drain
from bench.scenario import Figures, Options, Scenario, Target

JOBS = 100_000


async def run(bed: Bed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    drained = await drain(bed, range(jobs), workers=options.workers)
    return {
        "jobs_per_s": drained.jobs_per_s,
        "jobs_per_s_recorded": jobs / drained.recorded_s,
        **drained.figures,
        **bed.record.tally(),
        "hot_statements": await bed.server.hot_statements(),
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
