"""One pass over waiting jobs: workers start, drain the jobs and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .scenario import Figures, costs
from .testbed import Testbed

SETTLE_S = 1.2  # as for the peers, whose late acknowledgements count too


@dataclass(frozen=True, slots=True)
class Drained:
    jobs: int
    span_s: float  # from the first start to the last
    recorded_s: float  # from the first start to the last end in the store
    figures: Figures

    @property
    def jobs_per_s(self) -> float:
        return (self.jobs - 1) / self.span_s

    @property
    def cpu_us(self) -> float | None:
        cpu_us: float | None = self.figures["cpu_us_per_job"]
        return cpu_us


async def drain(testbed: Testbed, numbers: range, *, workers: int = 1, environment: Mapping[str, str] | None = None) -> Drained:
    """Submits and drains the jobs. A running scheduler keeps running, and its CPU counts."""
    jobs, before_count = len(numbers), testbed.record.count
    testbed.say(f"submitting {jobs:,} jobs")
    began_client_s = testbed.own_cpu_s()
    await testbed.submit(testbed.notes(numbers))
    client_us = (testbed.own_cpu_s() - began_client_s) / jobs * 1e6
    await testbed.server.monitor.execute("ANALYZE", timeout=600)
    before = await testbed.server.counters()

    testbed.say(f"draining {jobs:,} jobs")
    started = [testbed.start_worker(environment) for _ in range(workers)]
    await testbed.until_started(before_count + 1, within_s=30)
    usage_since = testbed.meter()
    missed = testbed.record.count - before_count  # jobs that started before the first reading of the meter: a batch or two
    await testbed.until_started(before_count + jobs, within_s=60 + jobs / 500)
    await testbed.until_empty()
    recorded_at = time.time()
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    rss_mib = max(worker.rss_mib() for worker in started)
    for worker in started:  # PostgreSQL's server processes publish all their counters when they end
        testbed.stop_one(worker)
    after = await testbed.server.counters()
    times = [at for _, at in testbed.record.rows()[before_count:]]
    figures = {
        **costs(usage, before, after, jobs, metered=jobs - missed),
        "cpu_us_per_job_client": client_us,
        "rss_mib": rss_mib,
    }
    return Drained(jobs, max(times) - min(times), recorded_at - min(times), figures)
