"""One soak on a database of its own: an API, schedulers and workers under a steady load, sampled all the time.

After a tenth of the time, another session holds a snapshot for a tenth of the time (six minutes of an hour), so that no dead
row can be cleaned up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from bench import machine
from tests.process.cluster import Cluster

from .load import Load
from .sampling import Sampler, Series
from .slopes import Verdict, judge

HELD = (0.1, 0.2)  # share of the whole time
SAMPLE_S = 10.0
DRAIN_S = 120.0
APP = "chaos.soak.app:app"


@dataclass(frozen=True)
class SoakPlan:
    span_s: float
    rate_per_s: float
    sample_s: float = SAMPLE_S
    schedulers: int = 2
    workers: int = 2
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    about: dict[str, Any]
    verdicts: list[Verdict]
    series: Series

    @property
    def is_good(self) -> bool:
        return not self.about["lost_count"] and all(one.is_flat for one in self.verdicts)


async def soak(plan: SoakPlan, url: str, folder: Path, say: Callable[[str], None]) -> Outcome:
    """Runs the soak on a migrated database that it has for itself."""
    async with AsyncExitStack() as stack:
        monitor = await stack.enter_async_context(_connected(url))
        cluster = Cluster(folder / "cluster", url)
        stack.callback(cluster.close)
        api = await _start(cluster, plan)
        load = Load(url, api, plan.rate_per_s, plan.seed)
        stack.push_async_callback(load.close)
        schedules = await load.begin()
        names = ["api", *_names("scheduler", plan.schedulers), *_names("worker", plan.workers)]
        pids = {name: cluster[name].pid for name in names} | {"submitter": os.getpid()}
        sampler = Sampler(monitor, pids, _postmaster(monitor.get_server_pid()))
        held_s = (HELD[0] * plan.span_s, HELD[1] * plan.span_s)
        sampling = asyncio.create_task(sampler.run(plan.sample_s))
        stack.callback(sampling.cancel)
        holding = asyncio.create_task(_hold_snapshot(url, held_s))
        stack.callback(holding.cancel)
        telling = asyncio.create_task(_tell(load, sampler, plan, say))
        stack.callback(telling.cancel)
        await load.run(plan.span_s)
        for task in (sampling, holding):
            if task.done():
                task.result()
        sampling.cancel()
        say("waiting for the last jobs")
        ended = await _drained(monitor, load.count)
        _check(cluster, names)
        about = {
            "measured_at": str(await monitor.fetchval("SELECT date_trunc('second', clock_timestamp())")),
            "machine": machine.description(),
            "postgres": str(await monitor.fetchval("SHOW server_version")),
            "seed": plan.seed,
            "span_s": plan.span_s,
            "rate_per_s": plan.rate_per_s,
            "held_s": held_s,
            "samples": len(sampler.series["connections"]),
            "submitted": dict(load.submitted),
            "submitting_late_s": round(load.late_s, 2),
            "recurring_jobs": schedules,
            "ended_count": ended,
            "lost_count": load.count - ended,
            "executions": {row[0]: row[1] for row in await monitor.fetch(_EXECUTIONS)},
            "lag_p99_s": float(await monitor.fetchval(_LAG) or 0.0),
        }
        return Outcome(about, judge(sampler.series, span_s=plan.span_s, rate_per_s=plan.rate_per_s), sampler.series)


_EXECUTIONS = "SELECT status, count(*)::int FROM sexton.executions GROUP BY 1 ORDER BY 1"
_LAG = """SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - due_at))
  FROM sexton.executions WHERE attempt = 1 AND started_at IS NOT NULL AND task <> 'limited'"""


async def _start(cluster: Cluster, plan: SoakPlan) -> str:
    cluster.api("api")
    for name in _names("scheduler", plan.schedulers):
        cluster.scheduler(name)
    for name in _names("worker", plan.workers):
        cluster.worker(name, app=APP)
    await cluster.until_ready(*_names("scheduler", plan.schedulers), *_names("worker", plan.workers))
    await cluster.until(lambda: "address=" in cluster["api"].log, "the API to listen")
    return cluster["api"].log.partition("address=")[2].split()[0]


def _names(role: str, count: int) -> list[str]:
    return [f"{role}-{number}" for number in range(1, count + 1)]


def _check(cluster: Cluster, names: list[str]) -> None:
    ended = [name for name in names if cluster[name].process.poll() is not None]
    if ended:
        raise RuntimeError(f"{', '.join(ended)} ended by themselves\n{cluster.logs()}")


async def _hold_snapshot(url: str, held_s: tuple[float, float]) -> None:
    await asyncio.sleep(held_s[0])
    async with _connected(url) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM sexton.nodes")  # a snapshot is taken only by a statement
        await asyncio.sleep(held_s[1] - held_s[0])


async def _tell(load: Load, sampler: Sampler, plan: SoakPlan, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(min(60.0, plan.span_s / 4))
        latest = {name: points[-1][1] for name, points in sampler.series.items()}
        words = ", ".join(f"{name} {latest.get(name, 0):,.0f}" for name in ("memory worker-1", "dead rows", "ready runs"))
        say(f"{sampler.passed_s / 60:.0f} min: {load.count:,} jobs submitted; {words}")


async def _drained(monitor: asyncpg.Connection[Any], submitted: int) -> int:
    """The number of one-time jobs that have ended, once all have ended or the time is up."""
    until_s = time.monotonic() + DRAIN_S
    while True:
        ended: int = await monitor.fetchval("SELECT count(*) FROM sexton.endings")
        if ended >= submitted or time.monotonic() > until_s:
            return ended
        await asyncio.sleep(0.2)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url, server_settings={"application_name": "sexton soak"})
    try:
        yield connection
    finally:
        await connection.close()


def _postmaster(backend: int) -> int | None:
    """None if the server runs on another machine."""
    try:
        return int(psutil.Process(backend).ppid())
    except psutil.NoSuchProcess:
        return None
