"""A few handlers end the process of every worker that executes them, beside many harmless ones. Measures how late the harmless
ones start, with default settings and a supervisor that restarts the workers, and what it costs the fleet.

`down_share` is the part of the fleet's slot-seconds (workers x concurrency x duration) in which a worker was down or
restarting. `thrown_away_share` is the part for which lost runs had executed, in ordinary workers and in quarantine. A worker in
quarantine is an additional process and takes no slot of an ordinary worker.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, lags
from bench.testbed import Process, Testbed

JOBS = 400
POISON = 5
WORKERS = 8
SPAN_S = 1.5
END_S = 300.0
MAX_LOST = 3  # the default

_ENDINGS = """
SELECT e.status, extract(epoch FROM x.started_at - x.due_at)::float8 AS lag_s
FROM sexton.endings e JOIN sexton.executions x ON x.id = e.execution_id WHERE x.task = 'doze'"""
_LOST_IN_QUARANTINE = "SELECT count(*) FROM sexton.workers WHERE quarantine AND lost_at IS NOT NULL"
# `beat_at` is the last sign of life, so time after the death of the worker is not counted.
_THROWN_AWAY_S = """
SELECT coalesce(sum(extract(epoch FROM greatest(w.beat_at - x.started_at, interval '0'))), 0)::float8
FROM sexton.executions x JOIN sexton.workers w ON w.id = x.worker_id WHERE x.status = 'lost'"""
_BEATING = "SELECT name FROM sexton.workers WHERE NOT quarantine AND lost_at IS NULL AND beat > 0"


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    poison, workers = (1, 2) if options.quick else (POISON, WORKERS)
    testbed.start_scheduler()
    fleet = [testbed.start_worker() for _ in range(workers)]
    await testbed.until_ready()
    requests = [testbed.doze.request(number, SPAN_S, PAD) for number in range(jobs)]
    for number in range(poison):  # spread among the others, so that workers claim them together
        requests.insert(number * jobs // poison, testbed.fatal.request())

    testbed.say(f"{poison} handlers that end their worker, beside {jobs}")
    usage_since = testbed.meter()
    began_s = time.monotonic()
    await testbed.app.submit_many(requests)
    losses = await _supervise(testbed, fleet, len(requests))
    took_s = time.monotonic() - began_s
    usage_since()
    rows = await testbed.server.monitor.fetch(_ENDINGS)
    in_quarantine = await testbed.server.monitor.fetchval(_LOST_IN_QUARANTINE)
    thrown_away_s = await testbed.server.monitor.fetchval(_THROWN_AWAY_S)
    fleet_s = workers * testbed.concurrency * took_s
    beyond = max(0, losses.deaths - 2 * poison), max(0, in_quarantine - poison * _bound(testbed.concurrency))
    return {
        "innocents_buried": sum(row["status"] != "completed" for row in rows),
        **lags([row["lag_s"] for row in rows]),
        "workers_lost": losses.deaths,
        "quarantine_workers_lost": in_quarantine,
        "deaths_beyond_bound": sum(beyond),
        "down_share": testbed.concurrency * losses.down_s / fleet_s,
        "thrown_away_share": thrown_away_s / fleet_s,
        "slot_s_lost_per_poison": (testbed.concurrency * losses.down_s + thrown_away_s) / poison,
        "restart_s": losses.down_s / max(1, losses.deaths),
        "all_ended_s": took_s,
        "poison": poison,
        "workers": workers,
    }


def _bound(held: int) -> int:
    """Workers in quarantine that one run ends, if its second ordinary worker held so many (rule "suspects apart")."""
    return math.ceil(math.log2(held)) - 1 + MAX_LOST


@dataclass
class _Losses:
    deaths: int = 0
    down_s: float = 0.0  # over all workers, from the end of one to the first beat of the next


async def _supervise(testbed: Testbed, fleet: list[Process], jobs: int) -> _Losses:
    """Restarts the workers that have died, until every job has ended and the last of them is back."""
    losses, down_since, ends_at = _Losses(), dict[int, float](), time.monotonic() + END_S
    while down_since or await testbed.server.monitor.fetchval("SELECT count(*) FROM sexton.endings") < jobs:
        if time.monotonic() > ends_at:
            raise TimeoutError(f"not all jobs have ended after {END_S:.0f} s")
        for place, process in enumerate(fleet):
            if process.is_over:
                testbed.kill(process)
                losses.deaths += 1
                down_since.setdefault(place, time.monotonic())
                fleet[place] = testbed.start_worker()
        if down_since:
            names = {row["name"] for row in await testbed.server.monitor.fetch(_BEATING)}
            for place in [place for place in down_since if any(name.endswith(f":{fleet[place].pid}") for name in names)]:
                losses.down_s += time.monotonic() - down_since.pop(place)
        await asyncio.sleep(0.05)
    return losses


SCENARIO = Scenario(
    "poison",
    "5 handlers that end their worker beside 400 others on 8 workers",
    {
        "lag_p99_s": Target(30.0, 10.0),
        "innocents_buried": Target(0.0, 0.0),
        "deaths_beyond_bound": Target(0.0, 0.0),
        "down_share": Target(0.5, 0.2),
    },
    run,
    quick_jobs=20,
)
