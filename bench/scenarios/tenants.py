"""Many tenants: a quiet tenant beside a noisy one, shares by weight at full load, the cost of 50,000 tenants compared with one,
and the cost of fair claims when there is only one tenant."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench import claim_without_tenants
from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, per_job_us
from bench.testbed import Testbed
from sexton.client.request import Request

JOBS = 100_000
QUIET = 10
WEIGHTS = {"one": 1, "two": 2, "five": 5}
DOZE_S = 0.04  # a worker's 100 slots then make 2,500 starts per second: the slots are full, but the machine is not
SATURATED_S = 32.0
WINDOW_S = 10.0
JOBS_EACH = 2
PASSES = 3  # of each kind of drain, in turn; the least disturbed pass of each counts
SETTLE_S = 1.2


class Cost(NamedTuple):
    time_us: float
    cpu_us: float | None
    worker_us: float | None
    server_us: float | None


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    noisy = await _noisy_neighbour(testbed, jobs)
    return {**noisy, **await _shares(testbed, jobs), **await _costs(testbed, jobs)}


async def _noisy_neighbour(testbed: Testbed, jobs: int) -> Figures:
    """Submits ten jobs of the second tenant when a third of the first one's have started."""
    testbed.say(f"submitting {jobs:,} jobs of one tenant")
    await testbed.submit([testbed.note.request(number, PAD, tenant="noisy") for number in range(jobs)])
    testbed.start_worker()
    await testbed.until_started(jobs // 3, within_s=60 + jobs / 500)
    testbed.say("submitting ten of another")
    asked_at = time.time()
    await testbed.submit([testbed.note.request(jobs + number, PAD, tenant="quiet") for number in range(QUIET)])
    submitted_at = time.time()
    await testbed.until_started(jobs + QUIET, within_s=60 + jobs / 500)
    testbed.stop()
    starts = testbed.record.first_starts()
    ten = [starts[jobs + number] for number in range(QUIET)]
    return {
        "ten_started_s": max(ten) - submitted_at,
        "ten_started_s_from_call": max(ten) - asked_at,
        "noisy_left_count": sum(at > max(ten) for at in starts.values()),
    }


async def _shares(testbed: Testbed, jobs: int) -> Figures:
    """A worker whose slots are always full, and three tenants that always have more jobs."""
    total = sum(WEIGHTS.values())
    rate = testbed.concurrency / DOZE_S
    counts = {name: int(min(jobs, rate * SATURATED_S) * weight / total * 1.1) for name, weight in WEIGHTS.items()}
    await testbed.server.monitor.execute(
        "INSERT INTO sexton.tenants (name, weight, updated_at) SELECT unnest($1::text[]), unnest($2::int[]), now()",
        list(WEIGHTS),
        list(WEIGHTS.values()),
    )
    testbed.say(f"submitting {sum(counts.values()):,} jobs of three tenants")
    before, number, first_of = testbed.record.count, 10 * jobs, {}
    for name, count in counts.items():
        first_of[name] = number
        await testbed.submit([testbed.doze.request(n, DOZE_S, PAD, tenant=name) for n in range(number, number + count)])
        number += count
    testbed.say("serving them by their weights")
    testbed.start_worker()
    await testbed.until_started(before + sum(counts.values()), within_s=120 + sum(counts.values()) / 200)
    testbed.stop()
    rows = testbed.record.rows()[before:]
    began = {name: sorted(at for n, at in rows if first_of[name] <= n < first_of[name] + counts[name]) for name in counts}
    # until the first tenant has no more jobs
    first, last = min(began[name][0] for name in began), min(began[name][-1] for name in began)
    window_s = min(WINDOW_S, (last - first) / 3)
    return {
        "share_error_pct": _worst_error(began, first, last, window_s),
        "share_window_s": window_s,
        "saturated_s": last - first,
        "saturated_per_s": sum(bisect_left(times, last) for times in began.values()) / (last - first),
    }


def _worst_error(began: Mapping[str, Sequence[float]], first: float, last: float, window_s: float) -> float:
    """The largest relative error of a share in percent, over windows that begin at every start of the tenant with the fewest
    starts."""
    total = sum(WEIGHTS.values())
    worst = 0.0
    for start in (at for at in began["one"] if first <= at <= last - window_s):
        counts = {name: bisect_left(times, start + window_s) - bisect_left(times, start) for name, times in began.items()}
        for name, weight in WEIGHTS.items():
            worst = max(worst, abs(counts[name] / sum(counts.values()) / (weight / total) - 1))
    return 100 * worst


async def _costs(testbed: Testbed, jobs: int) -> Figures:
    costs: dict[str, list[Cost]] = {"plain": [], "one": [], "many": []}
    first = 100 * jobs
    for passed in range(1, PASSES + 1):
        for kind, seen in costs.items():
            testbed.say(f"draining {jobs:,} jobs: {kind} ({passed} of {PASSES})")
            await claim_without_tenants.switch(testbed.server.monitor, is_plain=kind == "plain")
            tenants = jobs // JOBS_EACH if kind == "many" else 1
            requests = [testbed.note.request(first + n, PAD, tenant=f"tenant-{n % tenants}") for n in range(jobs)]
            seen.append(await _drain(testbed, requests, {claim_without_tenants.VARIABLE: "1"} if kind == "plain" else {}))
            first += jobs
    best = {kind: _least(seen) for kind, seen in costs.items()}
    one, many, off = best["one"], best["many"], best["plain"]
    figures: Figures = {}
    for kind, cost in best.items():
        figures |= {f"{name}_per_job_{kind}": value for name, value in cost._asdict().items()}
    cpu_ratio, cpu_feature = _ratio(many.cpu_us, one.cpu_us), _ratio(one.cpu_us, off.cpu_us)
    time_ratio, time_feature = many.time_us / one.time_us, one.time_us / off.time_us
    return {
        **figures,
        "cost_ratio": max(time_ratio, cpu_ratio or 0.0),
        "cost_ratio_cpu": cpu_ratio,
        "cost_ratio_time": time_ratio,
        "feature_cost_pct": 100 * (max(time_feature, cpu_feature or 0.0) - 1),
        "feature_cost_pct_cpu": None if cpu_feature is None else 100 * (cpu_feature - 1),
        "feature_cost_pct_time": 100 * (time_feature - 1),
        "hot_statements": await testbed.server.hot_statements(),
    }


async def _drain(testbed: Testbed, requests: Sequence[Request], environment: Mapping[str, str]) -> Cost:
    jobs, before = len(requests), testbed.record.count
    await testbed.submit(requests)
    await testbed.server.monitor.execute("VACUUM ANALYZE sexton.runs")
    testbed.start_worker(environment)
    await testbed.until_started(before + 1, within_s=30)
    usage_since = testbed.meter()
    missed = testbed.record.count - before
    await testbed.until_started(before + jobs, within_s=60 + jobs / 500)
    empty = "SELECT NOT EXISTS (SELECT FROM sexton.runs)"
    await testbed.until(lambda: testbed.server.monitor.fetchval(empty), within_s=60, every_s=0.005)
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    testbed.stop()
    times = [at for _, at in testbed.record.rows()[before:]]
    both_s = None if usage.server_s is None else usage.worker_s + usage.server_s
    return Cost(
        1e6 * (max(times) - min(times)) / (jobs - 1),
        per_job_us(both_s, jobs - missed),
        per_job_us(usage.worker_s, jobs - missed),
        per_job_us(usage.server_s, jobs - missed),
    )


def _least(costs: Sequence[Cost]) -> Cost:
    """The pass with the least CPU and the pass with the least time, which may be different ones."""
    by_cpu = min(costs, key=lambda cost: cost.cpu_us or 0.0)
    return by_cpu._replace(time_us=min(cost.time_us for cost in costs))


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


SCENARIO = Scenario(
    "tenants",
    "ten jobs beside another's 100,000; weights 1:2:5; 50,000 tenants against one; one with and without sharing",
    {
        "ten_started_s": Target(1.0, 0.3),
        "share_error_pct": Target(5.0, 2.0),
        "cost_ratio": Target(1.5, 1.2),
        "feature_cost_pct": Target(10.0, 5.0),
    },
    run,
)
