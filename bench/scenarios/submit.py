"""Submission in bulk through the SDK, from the arguments to the commit: one caller after another, and four at once."""

from __future__ import annotations

import asyncio
import time

from bench.bed import Bed
from bench.scenario import Figures, Options, Scenario, Target, per_job_us

JOBS = 100_000
BATCH = 1_000
CALLERS = 4


async def run(bed: Bed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    await _submit(bed, range(-BATCH, 0))

    bed.say(f"submitting {jobs:,} jobs")
    before = await bed.server.counters()
    usage_since = bed.meter()
    started_at = time.perf_counter()
    await _submit(bed, range(jobs))
    one_s = time.perf_counter() - started_at
    usage = usage_since()
    after = await bed.server.counters()

    bed.say(f"submitting {jobs:,} jobs from {CALLERS} callers")
    share = jobs // CALLERS
    started_at = time.perf_counter()
    await asyncio.gather(*(_submit(bed, range(caller * share, (caller + 1) * share)) for caller in range(CALLERS)))
    many_s = time.perf_counter() - started_at
    return {
        "jobs_per_s": jobs / one_s,
        "jobs_per_s_concurrent": share * CALLERS / many_s,
        "cpu_us_per_job_client": per_job_us(usage.client_s, jobs),
        "cpu_us_per_job_server": per_job_us(usage.server_s, jobs),
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
        "batch": BATCH,
        "steal_pct": usage.steal_pct,
        "elsewhere_pct": usage.elsewhere_pct,
        "hot_statements": await bed.server.hot_statements(),
    }


async def _submit(bed: Bed, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, BATCH):
        await bed.app.submit_many(bed.notes(range(start, min(start + BATCH, numbers.stop))))


SCENARIO = Scenario("submit", "SDK bulk submission", {"jobs_per_s": Target(40_000, 60_000)}, run)
