"""B10: notifications wake the services that have work to do. Polling finds the work too, a second or two later: without these
tests a missing notification would only make the service slower."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.domain.limit import standing_limit
from sexton.domain.outcome import Released, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.schedule.backfill import BackfillSpec
from sexton.operations import due, limits, one_time_jobs, replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import backfill, due_schedules, recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.operations.versions import AtVersion
from sexton.store.sharing import parked_runs
from sexton.store.work import dead_letters, runs
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, bury, claim, enlist, finish, submit

if TYPE_CHECKING:
    from sexton.store.database import Postgres
    from tests.store.support import Conn

READY, DUE, PLAN, CANCEL = "sexton_ready", "sexton_due", "sexton_plan", "sexton_cancel"
WOKEN_PROMOTER = {(DUE, "")}
PACED = "INSERT INTO sexton.queues (name, updated_at, release_rate, release_burst) VALUES ('mail', now(), 10, 1)"

Heard = set[tuple[str, str]]


@asynccontextmanager
async def listening(listener: Conn) -> AsyncIterator[Heard]:
    """The notifications of the block: PostgreSQL delivers them before it answers the listener's next statement."""
    heard: Heard = set()

    def hear(_connection: object, _pid: int, channel: str, payload: object) -> None:
        heard.add((channel, str(payload)))

    for channel in (READY, DUE, PLAN, CANCEL):
        await listener.add_listener(channel, hear)
    yield heard
    await listener.execute("SELECT 1")
    await asyncio.sleep(0)
    for channel in (READY, DUE, PLAN, CANCEL):
        await listener.remove_listener(channel, hear)


async def written(connection: Conn, *, now: datetime = NOW, every: str = "0 0 * * *", **fields: Any) -> UUID:
    """A recurring job in the queue `mail`."""
    document = {"task": "a", "queue": "mail", "schedule": {"cron": every}, **fields}
    async with connection.transaction():
        (one,) = await recurring_jobs.submit(connection, TESTER, [document], now=now)
    return one.id


async def started(database: Postgres, connection: Conn, job_id: UUID, *, now: datetime = NOW) -> UUID:
    """Fired by hand and admitted; the worker that knows its queue."""
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=now)
    await admit(database, SCHEDULER, ALL, limit=100, now=now)
    return await enlist(connection, queues=["mail"])


# Operations of a person


async def test_a_schedule_that_is_written_wakes_planners_and_promoters(connection: Conn, rival: Conn) -> None:
    async with listening(rival) as heard:
        await written(connection)
    assert heard == {(PLAN, ""), (DUE, "")}


async def test_a_schedule_that_is_edited_wakes_promoters(connection: Conn, rival: Conn) -> None:
    job_id = await written(connection)
    async with listening(rival) as heard, connection.transaction():
        document = {"task": "a", "schedule": {"cron": "* * * * *"}}
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document, now=NOW)
    assert heard == WOKEN_PROMOTER


async def test_a_run_by_hand_wakes_promoters(connection: Conn, rival: Conn) -> None:
    job_id = await written(connection)
    async with listening(rival) as heard, connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=NOW)
    assert heard == WOKEN_PROMOTER


async def test_the_end_of_a_pause_wakes_promoters(connection: Conn, rival: Conn) -> None:
    job_id = await written(connection)
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=NOW)
    async with listening(rival) as heard, connection.transaction():
        await recurring_jobs.resume(connection, TESTER, job_id, now=after(minutes=1))
    assert heard == WOKEN_PROMOTER


async def test_a_backfill_wakes_promoters(connection: Conn, rival: Conn) -> None:
    job_id = await written(connection, now=NOW - timedelta(hours=1), every="*/15 * * * *")
    asked = BackfillSpec(NOW - timedelta(days=1), fires="all")
    now: dict[str, Any] = {"monotonic": lambda: 0.0, "now": NOW}
    async with listening(rival) as heard, connection.transaction():
        assert (await backfill.start(connection, TESTER, AtVersion(job_id), asked._replace(dry_run=True), **now)).fires
    assert heard == set()
    async with listening(rival) as heard, connection.transaction():
        await backfill.start(connection, TESTER, AtVersion(job_id), asked, **now)
    assert heard == WOKEN_PROMOTER


async def test_a_limit_that_is_set_wakes_promoters(connection: Conn, rival: Conn) -> None:
    async with listening(rival) as heard, connection.transaction():
        await limits.put(connection, TESTER, standing_limit("stripe", running=2), now=NOW)
    assert heard == WOKEN_PROMOTER


async def test_a_replay_wakes_the_workers_of_its_queue_and_promoters(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection, queues=["default"])
    await bury(connection, worker_id)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    async with listening(rival) as heard, connection.transaction():
        await replay.replay(connection, TESTER, [letter.id], now=NOW)
    assert heard == {(READY, "default"), (DUE, "")}


@pytest.mark.parametrize("way", [one_time_jobs.pause, one_time_jobs.run_now], ids=["pause", "run_now"])
async def test_what_a_person_does_to_a_waiting_job(connection: Conn, rival: Conn, way: Callable[..., Awaitable[Any]]) -> None:
    job_id = await submit(connection, delay="1h", queue="mail")
    async with listening(rival) as heard, connection.transaction():
        await way(connection, TESTER, job_id, now=NOW)
    assert heard == ({(READY, "mail")} if way is one_time_jobs.run_now else set())


# Operations of schedulers


async def test_an_admitted_fire_wakes_the_workers_of_its_queue(database: Postgres, connection: Conn, rival: Conn) -> None:
    job_id = await written(connection)
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=NOW)
    async with listening(rival) as heard:
        assert (await admit(database, SCHEDULER, ALL, limit=100, now=NOW)).admitted_count == 1
    assert heard == {(READY, "mail")}


async def test_a_fire_that_replaces_another_wakes_its_worker(database: Postgres, connection: Conn, rival: Conn) -> None:
    job_id = await written(connection, recurrence={"overlap": {"policy": "replace"}})
    worker_id = await started(database, connection, job_id)
    assert len(await claim(connection, worker_id, queues=["mail"])) == 1
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=after(seconds=1))
    async with listening(rival) as heard:
        await admit(database, SCHEDULER, ALL, limit=100, now=after(seconds=1))
    assert heard == {(CANCEL, "")}


async def test_what_is_promoted_wakes_the_workers_of_its_queue(connection: Conn, rival: Conn) -> None:
    await submit(connection, delay="1h", queue="mail")
    async with listening(rival) as heard:
        await due.promote_runs(connection, SCHEDULER, Scan(ALL, 100), now=after(hours=1))
    assert heard == {(READY, "mail")}


async def test_a_released_run_wakes_the_workers_of_its_queue(connection: Conn, rival: Conn) -> None:
    await submit(connection, queue="mail", limit={"key": "stripe", "running": 1})
    async with listening(rival) as heard:
        await due.release_parked(connection, SCHEDULER, after=parked_runs.FIRST, now=NOW)
    assert heard == {(READY, "mail")}


async def test_a_paced_queue_that_may_go_on_wakes_its_workers(connection: Conn, rival: Conn) -> None:
    await connection.execute(PACED)
    await submit(connection, queue="mail")
    async with listening(rival) as heard:
        await due.tend_queues(connection, SCHEDULER, now=after(seconds=5))
    assert heard == {(READY, "mail")}


async def test_a_fire_that_is_planned_for_soon_wakes_promoters(connection: Conn, rival: Conn, database: Postgres) -> None:
    await written(connection, every="*/5 * * * * *")
    await connection.execute("DELETE FROM sexton.runs")
    await connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = NULL, plan_at = submitted_at")
    options: dict[str, Any] = {"announce_within_s": 3.0, "unforeseen": lambda _error: None}
    async with listening(rival) as heard:
        planned = await due_schedules.plan_fires(database, SCHEDULER, Scan(ALL, 10), now=after(seconds=3), **options)
    assert planned.planned.next_due_s is not None
    assert heard == WOKEN_PROMOTER


# The end of a run


async def test_a_run_that_is_held_back_wakes_promoters(connection: Conn, rival: Conn) -> None:
    async with listening(rival) as heard:
        await submit(connection, queue="mail", limit={"key": "stripe", "running": 1})
    assert (DUE, "") in heard


async def test_the_end_of_a_run_wakes_the_workers_of_the_next_under_its_limit(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    for n, queue in enumerate(("default", "mail")):
        await submit(connection, queue=queue, limit={"key": "stripe", "running": 1}, now=after(seconds=n))
    await parked_runs.release(connection, now=NOW)
    (run,) = await claim(connection, worker_id)
    async with listening(rival) as heard:
        await finish(connection, run.lease, Succeeded())
    assert heard == {(READY, "mail")}


async def test_the_end_of_a_run_wakes_workers_for_its_tenant(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection, queues=["mail"])
    await connection.execute("INSERT INTO sexton.tenants (name, updated_at, running_max) VALUES ('acme', now(), 1)")
    for _ in range(2):
        await submit(connection, queue="mail", tenant="acme")
    (run,) = await claim(connection, worker_id, queues=["mail"])
    async with listening(rival) as heard:
        await finish(connection, run.lease, Succeeded())
    assert heard == {(READY, "mail")}


async def test_a_run_that_is_handed_back_wakes_the_workers_of_its_queue(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection, queues=["mail"])
    await submit(connection, queue="mail")
    (run,) = await claim(connection, worker_id, queues=["mail"])
    async with listening(rival) as heard:
        await finish(connection, run.lease, Released("draining"))
    assert heard == {(READY, "mail")}


async def test_the_first_in_line_that_steps_out_wakes_promoters(connection: Conn, rival: Conn) -> None:
    job_id = await submit(connection, limit={"key": "acme", "ordered": True})
    await parked_runs.release(connection, now=NOW)
    async with listening(rival) as heard, connection.transaction():
        await one_time_jobs.pause(connection, TESTER, job_id, now=NOW)
    assert heard == WOKEN_PROMOTER


async def test_a_fire_that_fails_for_good_wakes_planners_where_they_count_it(
    database: Postgres, connection: Conn, rival: Conn
) -> None:
    job_id = await written(connection, recurrence={"pause_after": 3})
    await connection.execute("UPDATE sexton.jobs_recurring SET plan_at = $1", after(hours=1))
    worker_id = await started(database, connection, job_id)
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.execute("UPDATE sexton.runs SET origin = 'schedule' WHERE origin = 'now'")
    await connection.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    (run,) = await claim(connection, worker_id, queues=["mail"])
    async with listening(rival) as heard:
        await finish(connection, run.lease, BROKEN)
    assert (PLAN, "") in heard


async def test_a_postponed_run_whose_host_is_up_again_wakes_promoters(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, FLAKY)
    async with listening(rival) as heard:
        assert await runs.make_due(connection, [(job_id, 1)], now=NOW) == [job_id]
    assert heard == WOKEN_PROMOTER
