"""No-op jobs that wait, and workers that come to them: how fast they go, and what each costs."""

from __future__ import annotations

import asyncio
import time

from bench.bed import Bed
from bench.scenario import Figures, Options, Scenario, Target, per_job_us

JOBS = 100_000
SETTLE_S = 1.2  # as for the peers, whose late acknowledgements count as well


async def run(bed: Bed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    bed.say(f"submitting {jobs:,} jobs")
    await bed.submit(bed.notes(range(jobs)))
    await bed.server.monitor.execute("ANALYZE")
    before = await bed.server.counters()

    bed.say(f"draining {jobs:,} jobs")
    workers = [bed.start_worker() for _ in range(options.workers)]
    await bed.until_started(1, within_s=30)
    usage_since = bed.meter()
    missed = bed.record.count  # started before the meter was read: a batch or two
    await bed.until_started(jobs, within_s=60 + jobs / 500)
    empty = "SELECT NOT EXISTS (SELECT FROM sexton.runs)"
    await bed.until(lambda: bed.server.monitor.fetchval(empty), within_s=60, every_s=0.005)
    recorded_at = time.time()
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    rss_mib = max(worker.rss_mib() for worker in workers)
    bed.stop()  # server processes tell all they counted when they end
    after = await bed.server.counters()

    starts = bed.record.first_starts()
    first, last = min(starts.values()), max(starts.values())
    return {
        "jobs_per_s": (jobs - 1) / (last - first),
        "jobs_per_s_recorded": jobs / (recorded_at - first),
        "cpu_us_per_job": None if usage.server_s is None else per_job_us(usage.worker_s + usage.server_s, jobs - missed),
        "cpu_us_per_job_worker": per_job_us(usage.worker_s, jobs - missed),
        "cpu_us_per_job_server": per_job_us(usage.server_s, jobs - missed),
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
        "statements_per_job": None if after.statements is None else (after.statements - (before.statements or 0)) / jobs,
        "transactions_per_job": (after.transactions - before.transactions) / jobs,
        "dead_tuples_per_job": (after.dead_tuples - before.dead_tuples) / jobs,
        "hot_updates_per_job": (after.hot_updates - before.hot_updates) / jobs,
        "rss_mib": rss_mib,
        "jobs_seen": len(starts),
        "jobs_repeated": len(bed.record.rows()) - len(starts),
        "steal_pct": usage.steal_pct,
        "elsewhere_pct": usage.elsewhere_pct,
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
