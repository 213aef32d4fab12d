"""Pause after a number of consecutive failures: counted where fires are buried, checked by any planner, from the last success
or resume."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.clock import ManualClock
from sexton.domain.outcome import Outcome, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.operations import replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.explain import explain
from sexton.operations.recurring import plan, recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.scheduler.planner import FAILING_S, Planner
from sexton.store.work import dead_letters, failures, jobs, schedules
from sexton.telemetry.events import Event, PausedAfterFailures
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, enlist, finish

if TYPE_CHECKING:
    from sexton.store.database import Postgres
    from tests.store.support import Conn


class World:
    """A job that fires every ten minutes, a planner, a promoter and a worker, all stepped by the test."""

    def __init__(self, database: Postgres, connection: Conn) -> None:
        self.database, self.connection = database, connection
        self.clock = ManualClock(NOW)
        self.events: list[Event] = []
        self.job_id = UUID(int=0)
        self.worker_id = UUID(int=0)

    @property
    def now(self) -> datetime:
        return self.clock.database_now()

    def planner(self) -> Planner:
        return Planner(self.database, lambda: ALL, limit=100, clock=self.clock, emit=self.events.append)

    async def write(self, pause_after: int | None = 2, **recurrence: Any) -> None:
        if pause_after is not None:
            recurrence["pause_after"] = pause_after
        document = {"task": "a", "schedule": {"cron": "*/10 * * * *"}, "recurrence": recurrence or None}
        self.worker_id = await enlist(self.connection)
        async with self.connection.transaction():
            (written,) = await recurring_jobs.submit(self.connection, TESTER, [document], now=NOW)
        self.job_id = written.id

    async def fire(self, outcome: Outcome) -> None:
        """The next fire ends like this; the planner runs before and after."""
        minutes = 10 - self.now.minute % 10
        self.clock.move(after(minutes=minutes) - NOW)
        await self.planner().run_once()
        await self.end(outcome)
        await self.planner().run_once()

    async def end(self, outcome: Outcome) -> None:
        await admit(self.database, SCHEDULER, ALL, limit=100, now=self.now)
        for claimed in await claim(self.connection, self.worker_id, now=self.now):
            await finish(self.connection, claimed.lease, outcome, now=self.now)

    async def status(self) -> str:
        return (await jobs.show(self.connection, self.job_id)).status


@pytest.fixture
def world(database: Postgres, connection: Conn) -> World:
    return World(database, connection)


async def test_a_job_pauses_after_so_many_failures_in_a_row_and_shows_the_reason(world: World) -> None:
    """A7, A8: at once, by itself, with the last error in the note, an event, and no planned fire left."""
    await world.write(pause_after=2)
    await world.fire(BROKEN)
    assert await world.status() == "pending"
    await world.fire(BROKEN)
    shown = await jobs.show(world.connection, world.job_id)
    assert (shown.status, shown.paused_by, shown.next_fire_at) == ("paused", "sexton", None)
    assert shown.note == "its last 2 fires failed: ValueError: broken"
    assert PausedAfterFailures(world.job_id, 2, "ValueError: broken") in world.events
    answer = (await explain(world.connection, TESTER, world.job_id, now=world.now)).answer
    assert "by sexton: its last 2 fires failed: ValueError: broken" in answer


async def test_a_success_in_between_restarts_the_count(world: World) -> None:
    await world.write(pause_after=2)
    for outcome in (BROKEN, Succeeded(), BROKEN):
        await world.fire(outcome)
    assert await world.status() == "pending"
    assert [one.failed_count for one in await failures.consecutive(world.connection, [world.job_id])] == [1]
    await world.fire(BROKEN)
    assert await world.status() == "paused"


async def test_a_success_counts_even_if_no_planner_ran_in_between(world: World) -> None:
    """Two failures with a success between them are not consecutive, whenever a planner sees them."""
    await world.write(pause_after=2)
    for minutes, outcome in ((10, BROKEN), (10, Succeeded()), (10, BROKEN)):
        world.clock.move(after(minutes=minutes) - NOW)
        seen = await schedules.to_plan(world.connection, Scan(ALL, 10), now=world.now)
        await plan.write(world.connection, SCHEDULER, seen, now=world.now)
        await world.end(outcome)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 2
    async with world.connection.transaction():
        assert await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now) is None
    assert await world.status() == "pending"


async def test_a_failed_attempt_that_is_retried_does_not_count_as_a_failure(world: World) -> None:
    await world.write(pause_after=1)
    await world.fire(FLAKY)
    assert await world.status() == "pending"


async def test_a_letter_that_was_replayed_or_discarded_still_counts_and_counts_once(world: World) -> None:
    """A failure counts, whatever a person did with the letter; a fire that fails again in its replay is one failure."""
    await world.write(pause_after=3)
    await world.fire(BROKEN)
    (letter,) = await dead_letters.find(world.connection, dead_letters.Filter())
    async with world.connection.transaction():
        await replay.replay(world.connection, TESTER, [letter.id], now=world.now)
    await world.end(BROKEN)
    await world.fire(BROKEN)
    assert await world.status() == "pending"
    await world.connection.execute("DELETE FROM sexton.dead_letters")
    await world.fire(BROKEN)
    assert await world.status() == "paused"


async def test_runs_by_hand_do_not_count(world: World) -> None:
    await world.write(pause_after=1)
    async with world.connection.transaction():
        await recurring_jobs.fire(world.connection, TESTER, world.job_id, now=world.now)
    await world.end(BROKEN)
    await world.planner().run_once()
    assert await world.status() == "pending"


async def test_it_counts_from_a_resume(world: World) -> None:
    """A person who resumes it has seen the failures: it is not paused again at once."""
    await world.write(pause_after=2)
    await world.fire(BROKEN)
    await world.fire(BROKEN)
    async with world.connection.transaction():
        await recurring_jobs.resume(world.connection, TESTER, world.job_id, now=world.now)
    await world.planner().run_once()
    assert await world.status() == "pending"
    await world.fire(BROKEN)
    assert await world.status() == "pending"
    await world.fire(BROKEN)
    assert await world.status() == "paused"


async def test_only_one_of_two_nodes_pauses_it(world: World) -> None:
    """B2: the count is taken under the lock of the job."""
    await world.write(pause_after=1)
    await world.fire(FLAKY)
    await world.connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE token > 0")
    await world.end(BROKEN)
    async with world.connection.transaction():
        first = await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now)
        second = await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now)
    assert (first is not None, second) == (True, None)


async def test_a_resume_between_the_look_and_the_lock_wins(world: World) -> None:
    """The planner's query is only a hint; the decision is made under the lock."""
    await world.write(pause_after=1)
    await world.fire(FLAKY)
    await world.connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE token > 0")
    await world.end(BROKEN)
    assert await failures.consecutive(world.connection, [world.job_id]) != []
    async with world.connection.transaction():
        await recurring_jobs.pause(world.connection, TESTER, world.job_id, now=world.now)
        await recurring_jobs.resume(world.connection, TESTER, world.job_id, now=world.now)
        assert await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now) is None
    assert await world.status() == "pending"


async def test_a_job_without_the_option_writes_nothing_and_is_not_examined(world: World) -> None:
    """The option costs nothing for jobs without it."""
    await world.write(pause_after=None)
    for _ in range(3):
        await world.fire(BROKEN)
    assert await world.status() == "pending"
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 0


async def test_a_burial_wakes_the_planner_but_does_not_wait_for_the_job_row(world: World, rival: Conn) -> None:
    """A7: long before the next fire; and a person who edits the job delays no report."""
    await world.write(pause_after=1)
    world.clock.move(after(minutes=10) - NOW)
    await world.planner().run_once()
    async with rival.transaction():
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
        await world.end(BROKEN)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 1
    world.clock.move(after(minutes=10) - NOW)
    await world.planner().run_once()
    assert await world.status() == "paused", "at the latest when it is planned again"


async def test_the_counts_of_an_ended_job_are_deleted(world: World) -> None:
    """D5."""
    await world.write(pause_after=5)
    await world.fire(BROKEN)
    await failures.forget(world.connection)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 1
    async with world.connection.transaction():
        await cancel_job(world.connection, TESTER, world.job_id, now=world.now)
    await failures.forget(world.connection)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 0


async def test_a_failure_beside_an_open_transaction_on_the_job_pauses_it(world: World, rival: Conn) -> None:
    """C19: the burial cannot wake the planner, and the next fire may be a month away."""
    await world.write(pause_after=1)
    world.clock.move(after(minutes=10) - NOW)
    await world.planner().run_once()
    planner = world.planner()
    await planner.run_once()
    async with rival.transaction():
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
        await world.end(BROKEN)
        await planner.run_once()
        assert await world.status() == "pending"
    world.clock.move(timedelta(seconds=FAILING_S))
    await planner.run_once()
    assert await world.status() == "paused"
