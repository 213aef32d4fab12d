"""A worker dies by kill -9 amid its runs: how long until all of them run on another one, at default settings."""

from __future__ import annotations

import time

from bench.app import PAD
from bench.bed import Bed
from bench.scenario import Figures, Options, Scenario, Target

JOBS = 50


async def run(bed: Bed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    bed.start_scheduler()
    doomed = bed.start_worker()
    await bed.until_ready()
    await bed.app.submit_many([bed.nap.request(number, PAD) for number in range(jobs)])
    await bed.until_started(jobs, within_s=30)
    bed.start_worker()
    await bed.until_ready()

    bed.say(f"killing a worker with {jobs} running jobs")
    usage_since = bed.meter()
    killed_at = time.time()
    bed.kill(doomed)
    await bed.until_started(2 * jobs, within_s=120)
    usage_since()
    running = await bed.server.monitor.fetchval(
        "SELECT count(*) FROM sexton.runs r JOIN sexton.workers w ON w.id = r.worker_id AND w.lost_at IS NULL "
        "WHERE r.state = 'running'"
    )
    rows = bed.record.rows()
    again = [(number, at) for number, at in rows if at > killed_at]
    return {
        "recovery_s": max(at for _, at in again) - killed_at,
        "recovery_first_s": min(at for _, at in again) - killed_at,
        "running_count": running,
        "started_twice_count": len({number for number, _ in again}),
        "started_too_often_count": len(rows) - 2 * jobs,
    }


SCENARIO = Scenario(
    "recovery", "kill -9 a worker with 50 running jobs, all running elsewhere", {"recovery_s": Target(10.0, 5.0)}, run
)
