"""The phases measured for each peer. A phase has the size and the meaning of the scenario of the same name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench.scenario import Figures, lags, per_job_us, percentile

from .testbed import PeerTestbed

TRIAL_JOBS = 2_000
DRAIN_JOBS = 100_000
DRAIN_S = 15.0  # about how long a slow peer may take
LATENCY_JOBS = 200
HERD_JOBS = 10_000
TIMER_JOBS, TIMER_SPAN_S = 500, 5.0
READY_S = 60.0
SETTLE_S = 1.2  # late acknowledgements count as cost too
LATE_S = 60.0  # a due job that does not start within this time counts as not seen


@dataclass(frozen=True, slots=True)
class Pace:
    """What a short trial showed about a peer."""

    submit_per_s: float
    jobs_per_s: float

    def drain_jobs(self, wanted: int) -> int:
        """The wanted number of jobs. A peer that would need far too long gets as many as it can do in about DRAIN_S."""
        possible = min(self.submit_per_s, self.jobs_per_s) * DRAIN_S
        return wanted if possible >= wanted / 2 else max(TRIAL_JOBS, int(possible) // 1000 * 1000)

    def lead_s(self, jobs: int) -> float:
        """Long enough to submit all jobs well before the first is due."""
        return 6.0 + 4.0 * jobs / self.submit_per_s


async def trial(testbed: PeerTestbed, jobs: int) -> Pace:
    figures = await drain(testbed, jobs, workers=1)
    return Pace(figures["submit_per_s"], figures["jobs_per_s_recorded"])


async def drain(testbed: PeerTestbed, jobs: int, workers: int) -> Figures:
    """Jobs wait, then workers start."""
    await testbed.call("setup")
    wal_before = await testbed.store.wal_bytes()
    submitted = await testbed.call("submit", jobs)
    wal_submitted = await testbed.store.wal_bytes()
    await testbed.store.settle()
    wal_settled = await testbed.store.wal_bytes()

    testbed.start(workers, with_companions=False)
    await testbed.until_started(1, READY_S)
    usage_since = testbed.meter()
    missed = testbed.record.count  # jobs that started before the first reading of the meter
    await testbed.until_started(jobs, within_s=60 + jobs / 100)
    await testbed.until_idle(within_s=60 + jobs / 100)
    recorded_at = time.time()
    await asyncio.sleep(SETTLE_S)
    usage = usage_since()
    wal_after = await testbed.store.wal_bytes()
    rss_mib = testbed.rss_mib()

    starts = testbed.record.first_starts()
    first, last = min(starts.values()), max(starts.values())
    return {
        "jobs": jobs,
        "jobs_per_s": (jobs - 1) / (last - first),
        "jobs_per_s_recorded": jobs / (recorded_at - first),
        "cpu_us_per_job_worker": per_job_us(usage.worker_s, jobs - missed),
        "cpu_us_per_job_server": per_job_us(usage.server_s, jobs - missed),
        "wal_bytes_per_job": _per_job(wal_settled, wal_after, jobs),
        "wal_bytes_per_job_submit": _per_job(wal_before, wal_submitted, jobs),
        "submit_per_s": jobs / submitted["submit_s"],
        "rss_mib": rss_mib,
        "jobs_seen": len(starts),
        "jobs_repeated": len(testbed.record.rows()) - len(starts),
        "steal_pct": usage.steal_pct,
        "elsewhere_pct": usage.elsewhere_pct,
    }


async def latency(testbed: PeerTestbed, pace: Pace) -> Figures:
    """An idle system: from a submission to the start of its handler."""
    await _warm_up(testbed)
    usage_since = testbed.meter()
    calls = (await testbed.call("trickle", LATENCY_JOBS))["calls"]
    starts = await _starts(testbed, LATENCY_JOBS, within_s=READY_S)
    usage = usage_since()
    from_return_s = [starts[number] - returned_at for number, (_, returned_at) in enumerate(calls) if number in starts]
    from_call_s = [starts[number] - called_at for number, (called_at, _) in enumerate(calls) if number in starts]
    return {
        "jobs": LATENCY_JOBS,
        "jobs_seen": len(starts),
        "latency_p50_s": percentile(from_return_s, 50),
        "latency_p99_s": percentile(from_return_s, 99),
        "latency_max_s": max(from_return_s),
        "latency_from_call_p50_s": percentile(from_call_s, 50),
        "latency_from_call_p99_s": percentile(from_call_s, 99),
        "steal_pct": usage.steal_pct,
        "elsewhere_pct": usage.elsewhere_pct,
    }


async def herd(testbed: PeerTestbed, pace: Pace) -> Figures:
    """Many jobs due at one instant."""
    return await _due(testbed, pace, HERD_JOBS, span_s=0.0)


async def timer(testbed: PeerTestbed, pace: Pace) -> Figures:
    """Jobs spread over some seconds."""
    return await _due(testbed, pace, TIMER_JOBS, span_s=TIMER_SPAN_S)


# The drains differ in their number of workers, and set their own size.
Phase = Callable[[PeerTestbed, Pace], Awaitable[Figures]]
LATER: dict[str, Phase] = {"latency": latency, "herd": herd, "timer": timer}
DRAINS: dict[str, int] = {"drain1": 1, "drain2": 2}
ALL: tuple[str, ...] = (*DRAINS, *LATER)


async def run(phase: str, testbed: PeerTestbed, pace: Pace, jobs: int) -> Figures:
    if phase in DRAINS:
        return await drain(testbed, pace.drain_jobs(jobs), DRAINS[phase])
    return await LATER[phase](testbed, pace)


async def _due(testbed: PeerTestbed, pace: Pace, jobs: int, span_s: float) -> Figures:
    await _warm_up(testbed)
    told = await testbed.call("at", jobs, pace.lead_s(jobs), span_s)
    due: list[float] = told["due"]
    ahead_s = due[0] - told["submitted_at"]
    if ahead_s < 0.5:
        raise RuntimeError(f"the first job was due {-ahead_s:.1f} s before the last was submitted")
    await asyncio.sleep(max(0.0, due[0] - 0.2 - time.time()))
    usage_since = testbed.meter()
    starts = await _starts(testbed, jobs, within_s=due[-1] - time.time() + LATE_S)
    usage = usage_since()
    lags_s = [starts[number] - at for number, at in enumerate(due) if number in starts]
    return {
        "jobs": jobs,
        "jobs_seen": len(lags_s),
        **lags(lags_s),
        "lag_min_s": min(lags_s),
        "steal_pct": usage.steal_pct,
        "elsewhere_pct": usage.elsewhere_pct,
    }


async def _warm_up(testbed: PeerTestbed) -> None:
    await testbed.call("setup")
    testbed.start(1, with_companions=True)
    await testbed.call("warm")
    await testbed.until_started(1, READY_S)
    await asyncio.sleep(1.0)


async def _starts(testbed: PeerTestbed, jobs: int, within_s: float) -> dict[int, float]:
    """Lags of the jobs that started in time, and how many did."""
    ends_at = time.monotonic() + within_s
    while True:
        seen = testbed.record.count  # read before the rows, so that it is never too high
        starts = testbed.record.first_starts()
        left_s = ends_at - time.monotonic()
        if len(starts) >= jobs or left_s <= 0:
            break
        with suppress(TimeoutError):
            await testbed.record.until(seen + jobs - len(starts), left_s)
    if not starts:
        raise RuntimeError(f"none of {jobs:,} jobs started within {within_s:.0f} s")
    return starts


def _per_job(before: Any, after: Any, jobs: int) -> float | None:
    return None if before is None or after is None else (after - before) / jobs
