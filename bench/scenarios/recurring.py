"""Many recurring jobs that fire in the same minute, beside many that do not: when the last one starts, the cost of each fire,
the cost of an idle scheduler, and how fast schedules are written in bulk."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

import msgspec

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, lags, per_job_us
from bench.testbed import Testbed
from sexton.domain.schedule import schedule
from sexton.domain.schedule.document import ScheduleDocument
from sexton.operations.recurring import recurring_jobs
from sexton.store.database import Postgres
from tests.callers import TESTER

JOBS = 100_000
TENANTS = 50_000  # each with a midnight fire in its own zone, written in one call
WINDOW_S = 10.0

_encode = msgspec.json.Encoder().encode


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    database = await Postgres.open(testbed.server.url)
    try:
        testbed.say(f"writing the midnights of {min(TENANTS, jobs):,} tenants in one call")
        bulk_s = await _write(database, _midnights(min(TENANTS, jobs)), batch=TENANTS)
        return {"bulk_s": bulk_s, "bulk_per_s": min(TENANTS, jobs) / bulk_s, **await _fire(testbed, database, options, jobs)}
    finally:
        await database.close()


async def _fire(testbed: Testbed, database: Postgres, options: Options, jobs: int) -> Figures:
    fire_at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=3 + jobs // 40_000)
    if options.quick:
        fire_at = (datetime.now(UTC) + timedelta(seconds=75)).replace(second=0, microsecond=0)
    testbed.say(f"writing {jobs:,} schedules that fire at {fire_at:%H:%M}")
    written_s = await _write(database, _minutely(jobs, fire_at), batch=5_000)

    began = time.monotonic()
    scheduler = testbed.start_scheduler()
    await testbed.until_ready()
    start_up_s = time.monotonic() - began
    for _ in range(options.workers):
        testbed.start_worker()
    await testbed.until_ready()
    await testbed.warm_up()
    warm = testbed.record.count

    testbed.say(f"watching for {WINDOW_S:g} s while nothing is due")
    usage_since = testbed.meter()
    await asyncio.sleep(1.0 if options.quick else WINDOW_S)
    idle = usage_since()
    ahead_s = fire_at.timestamp() - time.time()
    if ahead_s < (1 if options.quick else 50):
        raise RuntimeError("writing took longer than planned and planning has begun; this machine is too busy to measure")
    testbed.say(f"{jobs:,} fires are due in {ahead_s:.0f} s")
    usage_since = testbed.meter()
    await asyncio.sleep(fire_at.timestamp() - time.time() - 0.5)
    planning = usage_since()
    usage_since = testbed.meter()
    await testbed.until_started(warm + jobs, within_s=120 + jobs / 500)
    no_first = "SELECT NOT EXISTS (SELECT FROM sexton.runs WHERE state IN ('ready', 'running'))"
    await testbed.until(lambda: testbed.server.monitor.fetchval(no_first), within_s=60, every_s=0.05)
    usage = usage_since()

    lags_s = [at - fire_at.timestamp() for at in testbed.record.first_starts().values()]
    return {
        **lags(lags_s),
        "fires_per_s": jobs / max(lags_s),
        "started": len(lags_s),
        "cpu_us_per_fire_worker": per_job_us(usage.worker_s, jobs),
        "cpu_us_per_fire_scheduler": per_job_us(usage.scheduler_s, jobs),
        "cpu_us_per_fire_server": per_job_us(usage.server_s, jobs),
        "cpu_us_per_plan_scheduler": per_job_us(planning.scheduler_s, jobs),
        "cpu_us_per_plan_server": per_job_us(planning.server_s, jobs),
        "start_up_s": start_up_s,
        "idle_cpu_pct": 100 * (idle.scheduler_s + idle.worker_s + (idle.server_s or 0.0)) / idle.wall_s,
        "idle_cpu_pct_scheduler": 100 * idle.scheduler_s / idle.wall_s,
        "idle_cpu_pct_server": None if idle.server_s is None else 100 * idle.server_s / idle.wall_s,
        "written_per_s": jobs / written_s,
        "rss_mib_scheduler": scheduler.rss_mib(),
        "hot_statements": await testbed.server.hot_statements(),
    }


async def _write(database: Postgres, documents: list[ScheduleDocument], *, batch: int) -> float:
    """One transaction for all; each batch is one statement to write and one to plan."""
    began = time.perf_counter()
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = '300s'")
        for start in range(0, len(documents), batch):
            await recurring_jobs.submit(connection, TESTER, documents[start : start + batch])
    return time.perf_counter() - began


def _minutely(count: int, fire_at: datetime) -> list[ScheduleDocument]:
    """Hourly, all in one minute of the hour, with different payloads."""
    rule = schedule(now=datetime.now(UTC), cron=f"{fire_at.minute} * * * *")
    return [_document(number, rule, f"herd-{number}") for number in range(count)]


def _midnights(count: int) -> list[ScheduleDocument]:
    zones = sorted(available_timezones() - {"localtime"})
    now = datetime.now(UTC)
    rules = [schedule(now=now, cron="0 0 * * *", timezone=zone) for zone in zones]
    return [_document(-1, rules[number % len(rules)], "midnight", tenant=f"tenant-{number}") for number in range(count)]


def _document(number: int, rule: Any, name: str, *, tenant: str | None = None) -> ScheduleDocument:
    payload = msgspec.Raw(_encode({"number": number, "pad": PAD}))
    return ScheduleDocument(task="note", schedule=rule, payload=payload, name=name, tenant=tenant)


SCENARIO = Scenario(
    "recurring",
    "100,000 schedules due in the same minute, one scheduler and one worker",
    {
        "lag_max_s": Target(12.0, 7.0),
        "start_up_s": Target(5.0, 2.0),
        "idle_cpu_pct": Target(5.0, 2.0),
    },
    run,
)
