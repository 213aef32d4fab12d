"""Throughput as a function of the worker's slots, which limit its claims; of worker processes; and of jobs per submission. The
plots show the effect of these settings, and that the defaults are near the top."""

from __future__ import annotations

import time

from bench.draining import drain
from bench.scenario import Figures, Options, Points, Scenario
from bench.testbed import Testbed

JOBS = 60_000
SLOTS = (1, 3, 10, 30, 100, 300, 1_000, 3_000)
WORKERS = (1, 2, 3, 4)
BATCHES = (1, 10, 100, 1_000, 5_000)
SMALL_PER_S = 400  # the rate of one slot, or of one job at a time: fewer jobs for these, so that no size takes minutes


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    first = 0
    slots: Points = []
    cpu: Points = []
    workers: Points = []
    batches: Points = []
    for size in SLOTS[::4] if options.quick else SLOTS:
        numbers = range(first, first + min(jobs, size * 5 * SMALL_PER_S))
        drained = await drain(testbed, numbers, environment={"SEXTON_WORKER_CONCURRENCY": str(size)})
        slots.append([size, drained.jobs_per_s])
        cpu.append([size, drained.cpu_us or 0.0])
        first += jobs
    for count in WORKERS[:1] if options.quick else WORKERS:
        workers.append([count, (await drain(testbed, range(first, first + jobs), workers=count)).jobs_per_s])
        first += jobs
    for size in BATCHES:
        testbed.say(f"submitting {size:,} at a time")
        requests = testbed.notes(range(first, first + min(jobs, size * 5 * SMALL_PER_S)))
        began_at = time.perf_counter()
        await testbed.submit(requests, size)
        batches.append([size, len(requests) / (time.perf_counter() - began_at)])
        first += jobs
    return {
        "jobs_per_s": max(rate for _, rate in slots),
        "slots_best": max(slots, key=lambda point: point[1])[0],
        "workers_best": max(workers, key=lambda point: point[1])[0],
        "batch_best": max(batches, key=lambda point: point[1])[0],
        "series": {
            "jobs_per_s_over_slots": slots,
            "cpu_us_per_job_over_slots": cpu,
            "jobs_per_s_over_workers": workers,
            "submitted_per_s_over_batch": batches,
        },
    }


SCENARIO = Scenario("sizes", "throughput over slots, worker processes and jobs in one submission", {}, run)
