"""kill -9 of the scheduler that leads the most shards while runs are due all the time: how late the latest of them starts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from bench.scenario import Figures, Options, Points, Scenario, Target, percentile
from bench.testbed import READY_S, Process, Testbed

SCHEDULERS = 3
PARTITIONS = 64
KILLS = 3  # the worst one counts
EVERY_S = 0.02
BEFORE_S = 3.0
AFTER_S = 7.0
LEAD_S = 2.0  # in which the runs are submitted


class Taken(NamedTuple):
    takeover_s: float  # of any run that had not started at the kill, from the kill or from its due time if that was later
    gap_s: float  # longest time without a start
    lag_before_s: float
    late: Points


async def run(testbed: Testbed, options: Options) -> Figures:
    for _ in range(SCHEDULERS):
        testbed.start_scheduler()
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    taken: list[Taken] = []
    for kill in range(1 if options.quick else KILLS):
        if kill:
            testbed.start_scheduler()
        taken.append(await _kill(testbed, 100_000 * kill, 3.0 if options.quick else AFTER_S))
    return {
        "takeover_s": max(one.takeover_s for one in taken),
        "takeover_s_median": percentile([one.takeover_s for one in taken], 50),
        "longest_gap_s": max(one.gap_s for one in taken),
        "lag_p99_s_before": max(one.lag_before_s for one in taken),
        "schedulers": SCHEDULERS,
        "kills": len(taken),
        **testbed.record.tally(),
        "series": {"lag_s_over_due_after_kill_s": sorted(point for one in taken for point in one.late)},
    }


async def _kill(testbed: Testbed, first: int, after_s: float) -> Taken:
    leader, held = await _leader(testbed)
    jobs, already = int((BEFORE_S + after_s) / EVERY_S), testbed.record.count
    base = time.time() + LEAD_S
    due = {first + number: base + number * EVERY_S for number in range(jobs)}
    await testbed.submit(testbed.notes(range(first, first + jobs), lambda number: datetime.fromtimestamp(due[number], UTC)))
    await asyncio.sleep(base + BEFORE_S - time.time())
    testbed.say(f"killing the scheduler that leads {held} of {PARTITIONS} partitions")
    usage_since = testbed.meter()
    killed_at = time.time()
    testbed.kill(leader)
    await testbed.until_started(already + jobs, within_s=after_s + 60)
    usage_since()
    starts = {number: at for number, at in testbed.record.first_starts().items() if number in due}
    times = [killed_at, *sorted(at for at in starts.values() if at >= killed_at)]
    return Taken(
        max(at - max(due[number], killed_at) for number, at in starts.items() if at >= killed_at),
        max(later - earlier for earlier, later in pairwise(times)),
        percentile([at - due[number] for number, at in starts.items() if at < killed_at], 99),
        [[round(due[number] - killed_at, 3), round(at - due[number], 4)] for number, at in starts.items()],
    )


async def _leader(testbed: Testbed) -> tuple[Process, int]:
    """Waits until the live schedulers have divided all shards among them. A node's name ends in its process id."""
    found: dict[int, int] = {}
    schedulers = {process.pid: process for process in testbed.processes if process.role == "scheduler"}

    async def is_divided() -> bool:
        rows = await testbed.server.monitor.fetch("SELECT name, cardinality(partitions) AS held FROM sexton.nodes")
        found.clear()
        found.update({int(row["name"].rpartition(":")[2]): row["held"] for row in rows})
        shares = [found.get(pid, 0) for pid in schedulers]
        return sum(shares) == PARTITIONS and min(shares) >= PARTITIONS // len(shares)

    await testbed.until(is_divided, within_s=READY_S, every_s=0.1)
    leader = max(schedulers, key=lambda pid: found[pid])
    return schedulers[leader], found[leader]


SCENARIO = Scenario(
    "takeover",
    "kill -9 the scheduler that leads, firing goes on",
    {"takeover_s": Target(5.0, 2.0)},
    run,
)
