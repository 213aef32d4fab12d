"""A drain beside millions of waiting runs and executions, compared with the same drain on the empty system, before and
after."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import backlog
from bench.draining import Drained, drain
from bench.scenario import Figures, Options, Scenario, Target
from bench.testbed import Testbed

JOBS = 100_000
WAITING = 10_000_000
STOPS = (0.01, 0.1, 1.0)  # shares of all runs that will wait, at which a drain is measured
PASSES = 4  # on the empty system, half of them before and half after; as many with all runs waiting; half as many in between


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs, half = options.jobs or JOBS, 1 if options.quick else PASSES // 2
    waiting = await backlog.affordable(testbed.server, options.waiting or (20 * jobs if options.quick else WAITING))
    testbed.start_scheduler()
    await testbed.until_ready()
    passes: dict[int, list[Drained]] = {}

    async def measure(depth: int, times: int) -> None:
        for _ in range(times):
            first = jobs * sum(map(len, passes.values()))
            passes.setdefault(depth, []).append(await drain(testbed, range(first, first + jobs), workers=options.workers))

    await measure(0, half)
    filled, fill_s = 0, 0.0
    for depth in (int(waiting * share) for share in STOPS):
        began = time.monotonic()
        await backlog.fill(testbed.server, range(filled, depth), waiting, testbed.say)
        fill_s += time.monotonic() - began
        filled = depth
        await measure(depth, 2 * half if depth == waiting else half)
    size_gib = await testbed.server.monitor.fetchval("SELECT pg_database_size(current_database()) / 1073741824.0::float8")
    testbed.say("emptying the tables")
    await backlog.empty(testbed.server)
    await measure(0, half)

    least = {depth: _least(seen) for depth, seen in sorted(passes.items())}
    shallow, deep = least[0], least[waiting]
    return {
        **{key.replace("_per_job", "") + "_ratio": _ratio(deep[key], shallow[key]) for key in deep},
        **{f"{key}_deep": value for key, value in deep.items()},
        **{f"{key}_empty": value for key, value in shallow.items()},
        "jobs_per_s": 1e6 / deep["time_us_per_job"],
        "jobs_per_s_empty": 1e6 / shallow["time_us_per_job"],
        "waiting": waiting,
        "executions": waiting,
        "fill_s": fill_s,
        "size_gib": size_gib,
        **testbed.record.tally(),
        "series": {
            "jobs_per_s_over_depth": [[depth, 1e6 / figures["time_us_per_job"]] for depth, figures in least.items()],
            "cpu_us_per_job_over_depth": [[depth, figures["cpu_us_per_job"]] for depth, figures in least.items()],
        },
    }


def _least(passes: Sequence[Drained]) -> Figures:
    """The lowest value of each figure, not necessarily of the same pass: other load on the machine only ever makes them
    higher."""
    every = [{"time_us_per_job": 1e6 / drained.jobs_per_s, **drained.figures} for drained in passes]
    keys = ("time_us_per_job", "cpu_us_per_job", "cpu_us_per_job_worker", "cpu_us_per_job_server", "wal_bytes_per_job")
    return {key: None if every[0][key] is None else min(figures[key] for figures in every) for key in keys}


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


SCENARIO = Scenario(
    "depth",
    "drain beside 10 million waiting runs and 10 million executions, against the empty system",
    {"time_us_ratio": Target(1.2, 1.05), "cpu_us_ratio": Target(1.2, 1.05)},
    run,
)
