"""kill -9 of a worker that is executing runs: the time until all of them run on another worker, with default settings."""

from __future__ import annotations

import time

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target
from bench.testbed import Testbed

JOBS = 50


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    testbed.start_scheduler()
    doomed = testbed.start_worker()
    await testbed.until_ready()
    await testbed.app.submit_many([testbed.nap.request(number, PAD) for number in range(jobs)])
    await testbed.until_started(jobs, within_s=30)
    testbed.start_worker()
    await testbed.until_ready()

    testbed.say(f"killing a worker with {jobs} running jobs")
    usage_since = testbed.meter()
    killed_at = time.time()
    testbed.kill(doomed)
    await testbed.until_started(2 * jobs, within_s=120)
    usage_since()
    running = await testbed.server.monitor.fetchval(
        "SELECT count(*) FROM sexton.runs r JOIN sexton.workers w ON w.id = r.worker_id AND w.lost_at IS NULL "
        "WHERE r.state = 'running'"
    )
    rows = testbed.record.rows()
    again = [(number, at) for number, at in rows if at > killed_at]
    return {
        "recovery_s": max(at for _, at in again) - killed_at,
        "recovery_first_s": min(at for _, at in again) - killed_at,
        "running_count": running,
        "started_twice_count": len({number for number, _ in again}),
        "started_too_often_count": len(rows) - 2 * jobs,
    }


SCENARIO = Scenario(
    "recovery", "kill -9 a worker with 50 running jobs, all running elsewhere", {"recovery_s": Target(5.0, 2.0)}, run
)
