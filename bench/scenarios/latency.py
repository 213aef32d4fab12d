"""An idle system: the time from a submission to the start of its handler."""

from __future__ import annotations

import asyncio
import random
import time

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, costs, percentile
from bench.testbed import Testbed

JOBS = 200
SPACING_S = (0.020, 0.050)
SETTLE_S = 1.2  # a server process publishes its counters once a second


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    warm = testbed.record.count

    testbed.say(f"submitting {jobs:,} single jobs")
    before = await testbed.server.counters()
    usage_since = testbed.meter()
    rng = random.Random(0)
    calls: list[tuple[float, float]] = []
    for number in range(jobs):
        called_at = time.time()
        await testbed.note.submit(number, PAD)
        calls.append((called_at, time.time()))
        await asyncio.sleep(rng.uniform(*SPACING_S))
    await testbed.until_started(warm + jobs, within_s=30)
    await testbed.until_empty()
    usage = usage_since()
    await asyncio.sleep(SETTLE_S)
    after = await testbed.server.counters()

    starts = testbed.record.first_starts()
    from_return_s = [starts[number] - returned_at for number, (_, returned_at) in enumerate(calls)]
    from_call_s = [starts[number] - called_at for number, (called_at, _) in enumerate(calls)]
    submit_s = [returned_at - called_at for called_at, returned_at in calls]
    return {
        "latency_p50_s": percentile(from_return_s, 50),
        "latency_p99_s": percentile(from_return_s, 99),
        "latency_max_s": max(from_return_s),
        "latency_from_call_p50_s": percentile(from_call_s, 50),
        "latency_from_call_p99_s": percentile(from_call_s, 99),
        "submit_p50_s": percentile(submit_s, 50),
        "submit_p99_s": percentile(submit_s, 99),
        **costs(usage, before, after, jobs),
    }


SCENARIO = Scenario(
    "latency",
    "idle system, single submissions to start",
    {"latency_p50_s": Target(0.005, 0.002), "latency_p99_s": Target(0.025, 0.010)},
    run,
)
