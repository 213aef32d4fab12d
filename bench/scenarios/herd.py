"""Many runs due at one instant, submitted ahead: when the last of them starts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from bench.scenario import Figures, Options, Scenario, Target, costs, distribution, lags
from bench.testbed import Testbed

JOBS = 50_000
SUBMITTED_PER_S = 5_000  # more than the fastest known machine needs
QUIET_S = 1.0  # at least, between the last submission and the due time
SETTLE_S = 1.2  # a server process publishes its counters once a second


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    warm = testbed.record.count

    due = time.time() + 3.0 + QUIET_S + jobs / SUBMITTED_PER_S
    due_at = datetime.fromtimestamp(due, UTC)
    testbed.say(f"submitting {jobs:,} jobs for one instant")
    await testbed.submit(testbed.notes(range(jobs), lambda _: due_at))
    ahead_s = due - time.time()
    if ahead_s < QUIET_S:
        raise RuntimeError(
            "submitting took longer than planned and the jobs were due before it ended; this machine is too busy to measure"
        )
    testbed.say(f"{jobs:,} jobs are due in {ahead_s:.0f} s")
    await asyncio.sleep(ahead_s - 0.2)
    before = await testbed.server.counters()
    usage_since = testbed.meter()
    await testbed.until_started(warm + jobs, within_s=60 + jobs / 500)
    await testbed.until_empty(every_s=0.02)
    usage = usage_since()
    await asyncio.sleep(SETTLE_S)
    after = await testbed.server.counters()

    starts = testbed.record.first_starts()
    lags_s = [at - due for at in starts.values()]
    return {
        **lags(lags_s),
        "lag_min_s": min(lags_s),
        "jobs_per_s": jobs / max(lags_s),
        **costs(usage, before, after, jobs),
        "jobs_seen": len(starts),
        "hot_statements": await testbed.server.hot_statements(),
        "series": {"share_over_lag_s": distribution(lags_s)},
    }


SCENARIO = Scenario(
    "herd", "50,000 runs due at one instant, one scheduler and one worker", {"lag_max_s": Target(5.0, 3.0)}, run
)
