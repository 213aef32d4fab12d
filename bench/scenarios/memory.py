"""The memory of a worker and a scheduler beside millions of waiting runs, and whether it grows with the number of executed
jobs."""

from __future__ import annotations

import asyncio
import statistics

from bench import backlog
from bench.scenario import Figures, Options, Points, Scenario, Target
from bench.submitter import Orders
from bench.testbed import Testbed

JOBS = 1_000_000
WAITING = 10_000_000
BACKLOG = 20_000
AHEAD_S = (0.2, 1.0)  # so that the scheduler promotes every job
SETTLE_S = 5.0
EVERY_S = 2.0
SETTLED_SHARE = 0.3  # share of the jobs during which caches fill and the allocator reaches its size


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    waiting = await backlog.affordable(testbed.server, options.waiting or (20 * jobs if options.quick else WAITING))
    await backlog.fill(testbed.server, range(waiting), waiting, testbed.say)
    scheduler, worker = testbed.start_scheduler(), testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    await asyncio.sleep(1.0 if options.quick else SETTLE_S)
    idle_worker, idle_scheduler = worker.rss_mib(), scheduler.rss_mib()

    already = testbed.record.count
    of_worker: Points = []
    of_scheduler: Points = []
    usage_since = testbed.meter()
    async with testbed.submitting(Orders(count=jobs, backlog=BACKLOG, ahead_s=AHEAD_S)) as submission:
        while (done := testbed.record.count - already) < jobs:
            of_worker.append([done, worker.rss_mib()])
            of_scheduler.append([done, scheduler.rss_mib()])
            testbed.say(
                f"{done:,} of {jobs:,} jobs, worker {of_worker[-1][1]:.1f} MiB, scheduler {of_scheduler[-1][1]:.1f} MiB"
            )
            testbed.check()
            await asyncio.sleep(EVERY_S / 20 if options.quick else EVERY_S)
        await submission.done()
    await testbed.until_empty(within_s=120, every_s=0.05)
    usage = usage_since()
    of_worker.append([jobs, worker.rss_mib()])
    of_scheduler.append([jobs, scheduler.rss_mib()])
    return {
        "rss_mib": max(size for _, size in of_worker),
        "rss_mib_scheduler": max(size for _, size in of_scheduler),
        "rss_mib_idle": idle_worker,
        "rss_mib_idle_scheduler": idle_scheduler,
        "growth_mib_per_million": _growth(of_worker),
        "growth_mib_per_million_scheduler": _growth(of_scheduler),
        "jobs_per_s": jobs / usage.wall_s,
        "waiting": waiting,
        "executions": waiting,
        **testbed.record.tally(),
        "series": {"rss_mib_over_jobs": of_worker, "rss_mib_scheduler_over_jobs": of_scheduler},
    }


def _growth(samples: Points) -> float:
    """The slope of a line through the samples after the warm-up, for a million jobs."""
    settled = [(done, size) for done, size in samples if done >= SETTLED_SHARE * samples[-1][0]]
    if len(settled) < 3:
        return 0.0
    return 1e6 * statistics.linear_regression(*zip(*settled, strict=True)).slope


SCENARIO = Scenario(
    "memory",
    "worker and scheduler beside 10 million waiting runs, and their growth over a million jobs",
    {"rss_mib": Target(120, 80), "rss_mib_scheduler": Target(100, 80)},
    run,
)
