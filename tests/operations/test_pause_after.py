"""Pause after so many failures in a row: counted where fires are buried, by whoever plans, from the last success or resume."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.clock import ManualClock
from sexton.domain.outcome import Outcome, Succeeded
from sexton.domain.partition import ALL
from sexton.operations import plan, recurring_jobs, replay
from sexton.operations.admit import admit
from sexton.operations.caller import SCHEDULER
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.explain import explain
from sexton.scheduler.planner import Planner
from sexton.store.work import dead_letters, failures, jobs, schedules
from sexton.telemetry.events import Event, PausedAfterFailures
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, enlist, finish

if TYPE_CHECKING:
    from sexton.store.database import Postgres
    from tests.store.support import Conn


class World:
    """A job that fires every ten minutes, a planner, a promoter and a worker, all moved by hand."""

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
        """The next fire comes and ends like this; the planner looks before and after."""
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


async def test_a_job_pauses_after_so_many_failures_in_a_row_and_says_why(world: World) -> None:
    """A7, A8: at once, by itself, with the last error in the note, an event, and nothing left to fire."""
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


async def test_a_success_between_begins_the_count_again(world: World) -> None:
    await world.write(pause_after=2)
    for outcome in (BROKEN, Succeeded(), BROKEN):
        await world.fire(outcome)
    assert await world.status() == "pending"
    assert [one.failed_count for one in await failures.in_a_row(world.connection, [world.job_id])] == [1]
    await world.fire(BROKEN)
    assert await world.status() == "paused"


async def test_a_success_counts_though_nobody_looked_between(world: World) -> None:
    """Two failures around a success are none in a row, whenever a planner comes to see them."""
    await world.write(pause_after=2)
    for minutes, outcome in ((10, BROKEN), (10, Succeeded()), (10, BROKEN)):
        world.clock.move(after(minutes=minutes) - NOW)
        seen = await schedules.to_plan(world.connection, partitions=ALL, limit=10, now=world.now)
        await plan.write(world.connection, SCHEDULER, seen, now=world.now)
        await world.end(outcome)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 2
    async with world.connection.transaction():
        assert await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now) is None
    assert await world.status() == "pending"


async def test_a_failed_attempt_that_is_retried_is_no_failure(world: World) -> None:
    await world.write(pause_after=1)
    await world.fire(FLAKY)
    assert await world.status() == "pending"


async def test_a_letter_that_was_replayed_or_discarded_still_counts_and_counts_once(world: World) -> None:
    """What failed has failed, whatever a person did with the letter; a fire that fails again in its replay is still one."""
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


async def test_what_a_person_fires_beside_the_schedule_does_not_count(world: World) -> None:
    await world.write(pause_after=1)
    async with world.connection.transaction():
        await recurring_jobs.fire(world.connection, TESTER, world.job_id, now=world.now)
    await world.end(BROKEN)
    await world.planner().run_once()
    assert await world.status() == "pending"


async def test_it_counts_from_a_resume(world: World) -> None:
    """Whoever resumes it has seen what failed: it is not paused again at once."""
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


async def test_of_two_nodes_one_pauses_it(world: World) -> None:
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
    """The planner's look is a hint; what is decided is decided under the lock."""
    await world.write(pause_after=1)
    await world.fire(FLAKY)
    await world.connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE token > 0")
    await world.end(BROKEN)
    assert await failures.in_a_row(world.connection, [world.job_id]) != []
    async with world.connection.transaction():
        await recurring_jobs.pause(world.connection, TESTER, world.job_id, now=world.now)
        await recurring_jobs.resume(world.connection, TESTER, world.job_id, now=world.now)
        assert await recurring_jobs.pause_failing(world.connection, SCHEDULER, world.job_id, now=world.now) is None
    assert await world.status() == "pending"


async def test_a_job_without_it_notes_nothing_and_is_not_looked_at(world: World) -> None:
    """Whoever did not ask for it pays nothing."""
    await world.write(pause_after=None)
    for _ in range(3):
        await world.fire(BROKEN)
    assert await world.status() == "pending"
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 0


async def test_the_burial_has_the_planner_look_at_once_but_waits_for_nobody(world: World, rival: Conn) -> None:
    """A7: long before the next fire; and a person at work on the job holds up no report."""
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


async def test_what_is_noted_of_a_job_that_is_over_is_forgotten(world: World) -> None:
    """D5."""
    await world.write(pause_after=5)
    await world.fire(BROKEN)
    await failures.forget(world.connection)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 1
    async with world.connection.transaction():
        await cancel_job(world.connection, TESTER, world.job_id, now=world.now)
    await failures.forget(world.connection)
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 0
