"""B1-B4: recurring jobs while their schedulers are killed. Every expected fire is one run, or the ledger has a reason."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from sexton.domain.schedule import schedule
from sexton.domain.schedule.catch_up import CatchUp
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.overlap import Overlap
from sexton.domain.schedule.recurrence import Recurrence
from sexton.operations.recurring import recurring_jobs
from tests.callers import TESTER
from tests.sizes import size

from . import checker
from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

SCHEDULES = size("SCHEDULES", 150)  # the requirement is 500
SPAN_S = size("SCHEDULES_S", 10)  # the requirement is 60
LATE_S_LIMIT = 20.0  # on two busy cores; the test checks that each fires once, not how soon


@pytest.mark.timeout(90 + 2 * SPAN_S)
async def test_three_schedulers_killed_at_random_fire_every_second_once(
    connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """Many jobs, each every second, with every overlap policy among them."""
    cluster = start_cluster(**SHORT, worker_concurrency=100)
    names = [f"scheduler-{number}" for number in (1, 2, 3)]
    for name in names:
        cluster.scheduler(name)
    for number in (1, 2):
        cluster.worker(f"worker-{number}")
    await cluster.until_ready()
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    end = begin + timedelta(seconds=SPAN_S)
    documents = [_document(number, begin, end) for number in range(SCHEDULES)]
    async with connection.transaction():
        ids = [written.id for written in await recurring_jobs.submit(connection, TESTER, documents)]
    rng, kills = Random(1), 0
    while datetime.now(UTC) < end:
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        victim = rng.choice(names)
        cluster.kill(victim)
        cluster.restart(victim)
        kills += 1
    began = time.monotonic()
    over = (
        "SELECT NOT EXISTS (SELECT FROM sexton.runs) AND NOT EXISTS (SELECT FROM sexton.jobs_recurring WHERE over_at IS NULL)"
    )
    await cluster.until(lambda: connection.fetchval(over), "the end of all schedules", within_s=45)
    found = await checker.check_fires(connection, cluster.journal_directory, ids)
    figure(f"schedules: {kills} kills of 3 schedulers; {found}; over {time.monotonic() - began:.1f} s after the last fire")
    assert found.is_sound, f"{found}\n{cluster.logs()}"
    assert found.expected_count == SCHEDULES * (SPAN_S + 1)
    assert found.executed_count >= found.expected_count // 2, str(found)  # at least those of `queue` and `parallel`
    assert kills >= 3
    assert found.late_s < LATE_S_LIMIT, str(found)


async def test_each_due_fire_of_a_cancelled_schedule_is_a_run_or_a_row_of_history(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    """A5, A9: fires that queue behind a long run were due, so the ledger records how they ended."""
    cluster = start_cluster()
    cluster.worker("worker")
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    scheduled = await app.schedule("nap", {"seconds": 60}, every="1s", overlap="queue")
    queued = "SELECT count(*) >= 3 FROM sexton.runs WHERE state = 'blocked'"
    await cluster.until(lambda: connection.fetchval(queued), "three fires that wait for the first")
    planned = "SELECT fire_at FROM sexton.runs WHERE job_id = $1 AND due_at <= clock_timestamp() ORDER BY fire_at"
    due = {row["fire_at"] for row in await connection.fetch(planned, scheduled.id)}
    await app.cancel(scheduled.id)
    over = "SELECT NOT EXISTS (SELECT FROM sexton.runs WHERE job_id = $1)"
    await cluster.until(lambda: connection.fetchval(over, scheduled.id), "the end of the run that was under way")
    told = {execution.fire_at: execution.status for execution in await app.executions(scheduled.id)}
    assert due <= told.keys()
    assert set(told.values()) == {"cancelled"}
    fires = sorted(told)
    assert [later - earlier for earlier, later in pairwise(fires)] == [timedelta(seconds=1)] * (len(fires) - 1), "no gap"


def _document(number: int, begin: datetime, end: datetime) -> ScheduleDocument:
    rule = schedule(
        now=begin - timedelta(seconds=20),
        every=1,
        anchor_at=begin,
        start_at=begin,
        end_at=end,
    )
    chosen: list[Overlap] = [Overlap(), Overlap("queue"), Overlap("parallel"), Overlap("replace")]
    return ScheduleDocument(
        task="nap",
        schedule=rule,
        name=f"schedule-{number}",
        recurrence=Recurrence(overlap=chosen[number % 4], catch_up=CatchUp(policy="all")),
    )
