"""Jobs that sleep, and an increasing number of workers: whether twice as many workers execute twice as many jobs."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, per_job_us
from bench.testbed import Testbed

WORKERS = (1, 2, 4, 8)
# Long enough that eight workers do not fill two cores: at this low rate a claim takes one run, about 1 ms of CPU each. The
# durations differ, because otherwise all slots would be free at the same moments and a window would contain only a few of
# these.
SLEEP_S = (0.5, 3.5)
WARM_S = 5.0
WINDOW_S = 20.0


async def run(testbed: Testbed, options: Options) -> Figures:
    window_s = 1.0 if options.quick else WINDOW_S
    rates: dict[int, float] = {}
    figures: Figures = {}
    for count in WORKERS[:2] if options.quick else WORKERS:
        rates[count], busy_pct, cpu_us = await _rate(testbed, count, window_s)
        figures |= {
            f"jobs_per_s_{count}": rates[count],
            f"share_of_linear_{count}": rates[count] / count / rates[1],
            f"cpu_us_per_job_{count}": cpu_us,
            f"busy_pct_{count}": busy_pct,
        }
    return {
        "off_linear": max(abs(1 - rate / count / rates[1]) for count, rate in rates.items()),
        "off_possible": max(1 - rate / count / _possible(testbed) for count, rate in rates.items()),
        **figures,
        "slots": testbed.concurrency,
        "series": {"jobs_per_s_over_workers": [[count, rate] for count, rate in rates.items()]},
    }


async def _rate(testbed: Testbed, count: int, window_s: float) -> tuple[float, float, float | None]:
    """Starts per second while there are always more jobs, and the share of the machine's time that everything took."""
    already, first, warm_s = testbed.record.count, 10_000_000 * count, min(WARM_S, window_s)
    workers = [testbed.start_worker() for _ in range(count)]
    await testbed.until_ready()
    jobs = int(count * _possible(testbed) * (warm_s + window_s + 1.0)) + count * testbed.concurrency
    low, high = SLEEP_S
    requests = [
        testbed.doze.request(first + n, low + (high - low) * (n * 0.618034 % 1.0), PAD) for n in range(jobs)
    ]  # evenly spread over any part of the sequence
    testbed.say(f"{count} workers: submitting {jobs:,} jobs")
    await testbed.submit(requests)
    await testbed.until_started(already + count * testbed.concurrency, within_s=30)
    await asyncio.sleep(warm_s)
    testbed.say(f"{count} workers: {jobs:,} jobs that sleep")
    usage_since, began_at = testbed.meter(), time.time()
    await asyncio.sleep(window_s)
    ended_at, usage = time.time(), usage_since()
    times = sorted(at for _, at in testbed.record.rows()[already:])
    started = bisect_left(times, ended_at) - bisect_left(times, began_at)
    await testbed.until_started(already + jobs, within_s=60)
    await testbed.until_empty()
    for worker in workers:
        testbed.stop_one(worker)
    all_s = usage.worker_s + (usage.server_s or 0.0)
    return started / (ended_at - began_at), 100 * all_s / usage.wall_s, per_job_us(all_s, max(started, 1))


def _possible(testbed: Testbed) -> float:
    """Starts per second and worker if no slot were ever empty."""
    return testbed.concurrency / (sum(SLEEP_S) / 2)


SCENARIO = Scenario(
    "scale", "jobs that sleep for two seconds, 1 to 8 worker processes", {"off_linear": Target(0.10, 0.05)}, run
)
