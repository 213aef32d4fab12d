"""No job is due: the cost of one idle process of each service."""

from __future__ import annotations

import asyncio

from bench.scenario import Figures, Options, Scenario, Target
from bench.testbed import Testbed

SETTLE_S = 6.0
WINDOW_S = 10.0


async def run(testbed: Testbed, options: Options) -> Figures:
    scheduler = testbed.start_scheduler()
    worker = testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    testbed.say("settling")
    await asyncio.sleep(1.0 if options.quick else SETTLE_S)

    window_s = 2.0 if options.quick else WINDOW_S
    testbed.say(f"watching for {window_s:g} s")
    before = await testbed.server.counters()
    usage_since = testbed.meter()
    await asyncio.sleep(window_s)
    usage = usage_since()
    after = await testbed.server.counters()
    statements = None if after.statements is None else after.statements - (before.statements or 0)
    all_s = usage.worker_s + usage.scheduler_s + (usage.server_s or 0.0)
    return {
        "cpu_pct": 100 * all_s / usage.wall_s,
        "cpu_pct_worker": 100 * usage.worker_s / usage.wall_s,
        "cpu_pct_scheduler": 100 * usage.scheduler_s / usage.wall_s,
        "cpu_pct_server": None if usage.server_s is None else 100 * usage.server_s / usage.wall_s,
        "statements_per_s": None if statements is None else statements / usage.wall_s,
        "wal_bytes_per_s": (after.wal_bytes - before.wal_bytes) / usage.wall_s,
        "rss_mib": worker.rss_mib(),
        "rss_mib_scheduler": scheduler.rss_mib(),
    }


SCENARIO = Scenario(
    "idle",
    "nothing due, one of each service",
    {"cpu_pct": Target(1.0, 0.5), "statements_per_s": Target(3.0, 2.0)},
    run,
)
