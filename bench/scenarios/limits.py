"""Jobs that name a limit which holds none of them back, against the same jobs without: what it costs to ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.app import PAD
from bench.bed import Bed
from bench.scenario import Figures, Options, Scenario, Target, per_job_us
from sexton.client.request import Request

JOBS = 100_000
JOBS_EACH = 100
RUNNING = 1_000  # of each key: more than there are
MANY_SLOTS = 1_000
PASSES = 6  # of each kind, there and back again, so that slow minutes of the machine hit all of them
SETTLE_S = 1.2


class Cost(NamedTuple):
    drain_s: float
    cpu_us: float | None  # per job, of all that runs: worker, server, scheduler
    worker_us: float | None
    server_us: float | None
    scheduler_us: float | None
    released_s: float  # from the submission of the last to when none is held back any more


async def run(bed: Bed, options: Options) -> Figures:
    """With the slots that a worker has by default, and with many: limited runs are never taken ahead (rule 11)."""
    jobs = options.jobs or JOBS
    keys = max(1, jobs // JOBS_EACH)
    bed.start_scheduler()
    await bed.until_ready()
    kinds = [("free", bed.concurrency), ("limited", bed.concurrency), ("free", MANY_SLOTS), ("limited", MANY_SLOTS)]
    costs: dict[tuple[str, int], list[Cost]] = {kind: [] for kind in kinds}
    first = 0
    for passed in range(1, PASSES + 1):
        for kind, slots in kinds if passed % 2 else reversed(kinds):
            bed.say(f"draining {jobs:,} jobs: {kind}, {slots} slots ({passed} of {PASSES})")
            numbers = range(first, first + jobs)
            requests = [_request(bed, number, keys if kind == "limited" else 0) for number in numbers]
            costs[kind, slots].append(await _drain(bed, requests, slots))
            first += jobs
    starts = bed.record.first_starts()
    return {
        **_compared(costs, bed.concurrency, ""),
        **_compared(costs, MANY_SLOTS, "_many_slots"),
        "keys": keys,
        "jobs_seen": len(starts),
        "jobs_repeated": len(bed.record.rows()) - len(starts),
        "hot_statements": await bed.server.hot_statements(),
    }


def _compared(costs: Mapping[tuple[str, int], Sequence[Cost]], slots: int, suffix: str) -> Figures:
    figures: Figures = {}
    for kind in ("free", "limited"):
        parts = zip(Cost._fields, zip(*costs[kind, slots], strict=True), strict=True)
        figures |= {f"{name}_{kind}{suffix}": _mean(values) for name, values in parts}
    free_cpu, limited_cpu = figures[f"cpu_us_free{suffix}"], figures[f"cpu_us_limited{suffix}"]
    return {
        f"time_ratio{suffix}": figures[f"drain_s_limited{suffix}"] / figures[f"drain_s_free{suffix}"],
        f"cpu_ratio{suffix}": None if free_cpu is None or limited_cpu is None else limited_cpu / free_cpu,
        **figures,
    }


def _request(bed: Bed, number: int, keys: int) -> Request:
    if not keys:
        return bed.note.request(number, PAD)
    return bed.note.request(number, PAD, limit={"key": f"key-{number % keys}", "running": RUNNING})


async def _drain(bed: Bed, requests: Sequence[Request], slots: int) -> Cost:
    jobs, before = len(requests), bed.record.count
    await bed.submit(requests)
    submitted_at = time.monotonic()
    released = "SELECT NOT EXISTS (SELECT FROM sexton.runs WHERE state = 'parked')"
    await bed.until(lambda: bed.server.monitor.fetchval(released), within_s=60, every_s=0.005)
    released_s = time.monotonic() - submitted_at
    await bed.server.monitor.execute("VACUUM ANALYZE sexton.runs, sexton.slots")
    worker = bed.start_worker({"SEXTON_WORKER_CONCURRENCY": str(slots)})
    await bed.until_started(before + 1, within_s=30)
    usage_since = bed.meter()
    missed = bed.record.count - before
    await bed.until_started(before + jobs, within_s=60 + jobs / 500)
    empty = "SELECT NOT EXISTS (SELECT FROM sexton.runs)"
    await bed.until(lambda: bed.server.monitor.fetchval(empty), within_s=60, every_s=0.005)
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    bed.kill(worker)
    times = [at for _, at in bed.record.rows()[before:]]
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
    "1,000 keys with 100 jobs each and a limit that does not bind, against the same jobs without",
    {"time_ratio": Target(1.3, 1.1), "time_ratio_many_slots": Target(1.3, 1.1)},
    run,
)
