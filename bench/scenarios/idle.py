"""Nothing is due: what one of each service costs by being there."""

from __future__ import annotations

import asyncio

from bench.bed import Bed
from bench.scenario import Figures, Options, Scenario, Target

SETTLE_S = 6.0
WINDOW_S = 10.0


async def run(bed: Bed, options: Options) -> Figures:
    scheduler = bed.start_scheduler()
    worker = bed.start_worker()
    await bed.until_ready()
    await bed.warm_up()
    bed.say("settling")
    await asyncio.sleep(1.0 if options.quick else SETTLE_S)

    window_s = 2.0 if options.quick else WINDOW_S
    bed.say(f"watching for {window_s:g} s")
    before = await bed.server.counters()
    usage_since = bed.meter()
    await asyncio.sleep(window_s)
    usage = usage_since()
    after = await bed.server.counters()
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
