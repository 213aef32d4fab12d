"""A stream of jobs submitted some seconds ahead and executed when they are due: how late they start, that none is lost or
executed twice, and the highest rate that the system sustains.

One worker by default: two cores that run PostgreSQL, the scheduler and the submitter have no room for a second.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.scenario import (
    Figures,
    Options,
    Points,
    Scenario,
    Target,
    costs,
    distribution,
    lags,
    per_job_us,
    percentile,
)
from bench.submitter import Orders
from bench.testbed import Testbed

RATE = 8_333.0  # jobs per second: 500,000 a minute
SPAN_S = 60.0
AHEAD_S = (1.0, 20.0)
STEP_S = 15.0
STEP_AHEAD_S = (1.0, 3.0)  # the due times of a short step must not spread wider than the step, or the rate would be lower
STEP_FACTOR = 1.2
STEPS = 6
CLOSE_ENOUGH = 1.05  # ratio of the lowest rate that fails to the highest rate that holds
LATE_S = 1.0
SETTLE_S = 1.2


@dataclass(frozen=True, slots=True)
class Held:
    rate_per_s: float
    submitted_per_s: float
    lags_s: list[float]
    lost_count: int
    doubled_count: int
    figures: Figures

    @property
    def is_on_time(self) -> bool:
        kept_pace = self.submitted_per_s >= 0.97 * self.rate_per_s
        return kept_pace and not self.lost_count and not self.doubled_count and percentile(self.lags_s, 99) <= LATE_S


async def run(testbed: Testbed, options: Options) -> Figures:
    rate = 500.0 if options.quick else RATE
    span_s = options.jobs / rate if options.jobs else SPAN_S
    ahead_s = (1.0, 2.0) if options.quick else AHEAD_S
    testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()

    held = await hold(testbed, 0, rate, span_s, ahead_s)
    highest, tried = await highest_rate(testbed, held, options)
    return {
        **lags(held.lags_s),
        "highest_rate_per_s": highest,
        "highest_rate_step_s": STEP_S,
        "jobs_per_s": held.submitted_per_s,
        "jobs_lost": held.lost_count,
        "jobs_repeated": held.doubled_count,
        "jobs_seen": len(held.lags_s),
        "workers": options.workers,
        **held.figures,
        "hot_statements": await testbed.server.hot_statements(),
        "series": {"share_over_lag_s": distribution(held.lags_s), "lag_p99_s_over_rate_per_s": tried},
    }


async def highest_rate(
    testbed: Testbed, held: Held, options: Options, *, steps: int = STEPS, step_s: float = STEP_S
) -> tuple[float, Points]:
    """Goes up or down from the first rate until one holds and another does not, then searches between the two."""
    low, high = (held.rate_per_s, None) if held.is_on_time else (0.0, held.rate_per_s)
    tried = [[held.rate_per_s, percentile(held.lags_s, 99)]]
    first = 1_000_000_000
    for _ in range(1 if options.quick else steps):
        rate = low * STEP_FACTOR if high is None else high / STEP_FACTOR if not low else (low * high) ** 0.5
        step = await hold(testbed, first, rate, 2.0 if options.quick else step_s, STEP_AHEAD_S)
        first += 10_000_000
        tried.append([rate, percentile(step.lags_s, 99)])
        if step.is_on_time:
            low = rate
        else:
            high = rate
        if low and high is not None and high / low < CLOSE_ENOUGH:
            break
    return low, sorted(tried)


async def hold(testbed: Testbed, first: int, rate: float, span_s: float, ahead_s: tuple[float, float]) -> Held:
    jobs, already = int(rate * span_s), testbed.record.count
    testbed.say(f"{rate:,.0f} jobs per second for {span_s:.0f} s")
    before = await testbed.server.counters()
    usage_since = testbed.meter()
    orders = Orders(first=first, count=jobs, rate_per_s=rate, ahead_s=ahead_s)
    async with testbed.submitting(orders) as submission:
        report = await submission.done()
        due = submission.due()
    testbed.say(f"waiting for the last of {jobs:,} jobs")
    lost_count = 0
    try:
        await testbed.until_started(already + jobs, within_s=ahead_s[1] + 30 + jobs / 2_000)
    except TimeoutError:
        lost_count = already + jobs - testbed.record.count
    await testbed.until_empty(within_s=120, every_s=0.05)
    usage = usage_since()
    await asyncio.sleep(SETTLE_S)
    after = await testbed.server.counters()
    rows = testbed.record.rows()[already:]
    starts: dict[int, float] = {}
    for number, at in rows:
        starts.setdefault(number, at)
    figures = {**costs(usage, before, after, jobs), "cpu_us_per_job_client": per_job_us(report.cpu_s, jobs)}
    return Held(
        rate,
        report.count / report.span_s,
        [at - due[number] for number, at in starts.items()],
        max(lost_count, len(due) - len(starts)),
        len(rows) - len(starts),
        figures,
    )


SCENARIO = Scenario(
    "steady",
    "8,333 jobs per second submitted 1-20 s ahead for 60 s; then the highest rate that keeps p99 within 1 s",
    {"lag_p99_s": Target(LATE_S, 0.25)},
    run,
    quick_jobs=1_000,
)
