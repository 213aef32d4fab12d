"""Jobs with a limit that is never reached, compared with the same jobs without a limit: the cost of the check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, per_job_us
from bench.testbed import Testbed
from sexton.client.request import Request

JOBS = 100_000
JOBS_EACH = 100
RUNNING = 1_000  # the limit of each key: more than its jobs
MANY_SLOTS = 1_000
WORK_S = 0.01
PASSES = 6  # of each kind, there and back again, so that slow minutes of the machine affect all of them
SETTLE_S = 1.2


class Kind(NamedTuple):
    is_limited: bool
    slots: int
    work_s: float  # duration of a handler


class Cost(NamedTuple):
    drain_s: float
    cpu_us: float | None  # per job, of worker, server and scheduler together
    worker_us: float | None
    server_us: float | None
    scheduler_us: float | None
    released_s: float  # from the last submission until no run is held back


async def run(testbed: Testbed, options: Options) -> Figures:
    """With the default number of slots, and with many: limited runs are never prefetched (rule "bounded prefetch"). And with
    the default again, with handlers that take as long as a quick call to another service."""
    jobs = options.jobs or JOBS
    keys = max(1, jobs // JOBS_EACH)
    testbed.start_scheduler()
    await testbed.until_ready()
    pairs = {"": (testbed.concurrency, 0.0), "_many_slots": (MANY_SLOTS, 0.0), "_at_work": (testbed.concurrency, WORK_S)}
    kinds = [Kind(is_limited, *pair) for pair in pairs.values() for is_limited in (False, True)]
    costs: dict[Kind, list[Cost]] = {kind: [] for kind in kinds}
    first = 0
    for passed in range(1, PASSES + 1):
        for kind in kinds if passed % 2 else reversed(kinds):
            testbed.say(f"draining {jobs:,} jobs: {_words(kind)} ({passed} of {PASSES})")
            numbers = range(first, first + jobs)
            requests = [_request(testbed, number, keys if kind.is_limited else 0, kind.work_s) for number in numbers]
            costs[kind].append(await _drain(testbed, requests, kind.slots))
            first += jobs
    starts = testbed.record.first_starts()
    return {
        **{
            name: figure
            for suffix, pair in pairs.items()
            for name, figure in _compared(costs[Kind(False, *pair)], costs[Kind(True, *pair)], suffix).items()
        },
        "keys": keys,
        "jobs_seen": len(starts),
        "jobs_repeated": len(testbed.record.rows()) - len(starts),
        "hot_statements": await testbed.server.hot_statements(),
    }


def _words(kind: Kind) -> str:
    limit = "limited" if kind.is_limited else "free"
    return f"{limit}, {kind.slots} slots" + (f", {kind.work_s * 1000:g} ms each" if kind.work_s else "")


def _compared(free: Sequence[Cost], limited: Sequence[Cost], suffix: str) -> Figures:
    figures: Figures = {}
    for kind, seen in (("free", free), ("limited", limited)):
        parts = zip(Cost._fields, zip(*seen, strict=True), strict=True)
        figures |= {f"{name}_{kind}{suffix}": _mean(values) for name, values in parts}
    free_cpu, limited_cpu = figures[f"cpu_us_free{suffix}"], figures[f"cpu_us_limited{suffix}"]
    return {
        f"time_ratio{suffix}": figures[f"drain_s_limited{suffix}"] / figures[f"drain_s_free{suffix}"],
        f"cpu_ratio{suffix}": None if free_cpu is None or limited_cpu is None else limited_cpu / free_cpu,
        **figures,
    }


def _request(testbed: Testbed, number: int, keys: int, work_s: float) -> Request:
    options: dict[str, Any] = {"limit": {"key": f"key-{number % keys}", "running": RUNNING}} if keys else {}
    return testbed.doze.request(number, work_s, PAD, **options) if work_s else testbed.note.request(number, PAD, **options)


async def _drain(testbed: Testbed, requests: Sequence[Request], slots: int) -> Cost:
    jobs, before = len(requests), testbed.record.count
    await testbed.submit(requests)
    submitted_at = time.monotonic()
    released = "SELECT NOT EXISTS (SELECT FROM sexton.runs WHERE state = 'parked')"
    await testbed.until(lambda: testbed.server.monitor.fetchval(released), within_s=60, every_s=0.005)
    released_s = time.monotonic() - submitted_at
    await testbed.server.monitor.execute("VACUUM ANALYZE sexton.runs, sexton.slots")
    worker = testbed.start_worker({"SEXTON_WORKER_CONCURRENCY": str(slots)})
    await testbed.until_started(before + 1, within_s=30)
    usage_since = testbed.meter()
    missed = testbed.record.count - before
    await testbed.until_started(before + jobs, within_s=60 + jobs / 500)
    empty = "SELECT NOT EXISTS (SELECT FROM sexton.runs)"
    await testbed.until(lambda: testbed.server.monitor.fetchval(empty), within_s=60, every_s=0.005)
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    testbed.kill(worker)
    times = [at for _, at in testbed.record.rows()[before:]]
    all_s = None if usage.server_s is None else usage.worker_s + usage.server_s + usage.scheduler_s
    return Cost(
        max(times) - min(times),
        per_job_us(all_s, jobs - missed),
        per_job_us(usage.worker_s, jobs - missed),
        per_job_us(usage.server_s, jobs - missed),
        per_job_us(usage.scheduler_s, jobs - missed),
        released_s,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


SCENARIO = Scenario(
    "limits",
    "1,000 keys with 100 jobs each and a limit that is never reached, against the same jobs without",
    {"time_ratio": Target(1.3, 1.1), "time_ratio_many_slots": Target(1.3, 1.1), "time_ratio_at_work": Target(1.3, 1.1)},
    run,
)
