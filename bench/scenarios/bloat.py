"""Full load while another session holds a snapshot, so that no dead row can be cleaned up: how much of the rate is left.

The submitter works at the same time in both measurements, so the rates are lower than that of `drain`; the ratio is what
counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from bench.scenario import Figures, Options, Points, Scenario, Target, costs
from bench.submitter import Orders
from bench.testbed import Testbed

BACKLOG = 20_000
WARM_S = 15.0
WINDOW_S = 60.0
HELD_S = 180.0
AFTER_S = 20.0
EVERY_S = 5.0
QUICK = 0.03


class Watch:
    """Jobs per second, over time."""

    def __init__(self, testbed: Testbed) -> None:
        self.rates: Points = []
        self._bed, self._began_at = testbed, time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_at

    async def over(self, span_s: float, what: str) -> Figures:
        testbed, began_s, first = self._bed, self.now_s, self._bed.record.count
        before = await testbed.server.counters()
        usage_since = testbed.meter()
        while (left_s := began_s + span_s - self.now_s) > 0.001:
            count, at_s = testbed.record.count, self.now_s
            await asyncio.sleep(min(left_s, max(EVERY_S * span_s / WINDOW_S, 0.1)))
            self.rates.append([self.now_s, (testbed.record.count - count) / (self.now_s - at_s)])
            testbed.say(f"{what}: {self.rates[-1][1]:,.0f} jobs per second")
            testbed.check()
        jobs, usage = testbed.record.count - first, usage_since()
        return {"jobs_per_s": jobs / usage.wall_s, **costs(usage, before, await testbed.server.counters(), max(jobs, 1))}


async def run(testbed: Testbed, options: Options) -> Figures:
    shrink = QUICK if options.quick else 1.0
    testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    watch = Watch(testbed)
    async with testbed.submitting(Orders(backlog=BACKLOG)):
        await watch.over(WARM_S * shrink, "warming up")
        free = await watch.over(WINDOW_S * shrink, "free")
        async with _snapshot(testbed):
            held_from_s = watch.now_s
            await watch.over((HELD_S - WINDOW_S) * shrink, "held back")
            held = await watch.over(WINDOW_S * shrink, "held back")
            held_until_s, dead_count = watch.now_s, await testbed.server.monitor.fetchval(_DEAD)
        freed = await watch.over(AFTER_S * shrink, "free again")
    await testbed.until_empty()
    return {
        "ratio": held["jobs_per_s"] / free["jobs_per_s"],
        **held,
        **{f"{key}_free": value for key, value in free.items()},
        "jobs_per_s_freed": freed["jobs_per_s"],
        "dead_runs_count": dead_count,
        "held_from_s": held_from_s,
        "held_until_s": held_until_s,
        **testbed.record.tally(),
        "series": {"jobs_per_s_over_s": watch.rates},
    }


_DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'sexton.runs'::regclass"


@asynccontextmanager
async def _snapshot(testbed: Testbed) -> AsyncIterator[None]:
    connection = await asyncpg.connect(testbed.server.url)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM sexton.nodes")  # a snapshot is taken only by a statement
        yield
    finally:
        await connection.close()


SCENARIO = Scenario(
    "bloat",
    "full load while another session holds a snapshot for 3 minutes: its last minute against one before",
    {"ratio": Target(0.6, 0.9)},
    run,
)
