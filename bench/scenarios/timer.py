"""Runs with due times spread over some seconds: how late each one starts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from bench.scenario import Figures, Options, Scenario, Target, lags
from bench.testbed import Testbed

JOBS = 500
SPAN_S = 5.0
LEAD_S = 3.0


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    warm = testbed.record.count

    testbed.say(f"{jobs:,} jobs over {SPAN_S:g} s")
    base = time.time() + LEAD_S
    due = [base + SPAN_S * number / jobs for number in range(jobs)]
    await testbed.submit(testbed.notes(range(jobs), lambda number: datetime.fromtimestamp(due[number], UTC)))
    usage_since = testbed.meter()
    await asyncio.sleep(base + SPAN_S - time.time())
    await testbed.until_started(warm + jobs, within_s=30)
    usage_since()
    starts = testbed.record.first_starts()
    return {
        **lags([starts[number] - due[number] for number in range(jobs)]),
    }


SCENARIO = Scenario(
    "timer",
    "500 runs spread over 5 s",
    {"lag_p50_s": Target(0.010, 0.003), "lag_p99_s": Target(0.040, 0.015)},
    run,
)
