"""Backfill: the fires of a past range on demand, each once, throttled, without an effect on the schedule."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.outcome import Outcome, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.run import Previous
from sexton.domain.schedule import backfill as domain
from sexton.errors import NotAllowedIn, NotFound, VersionMismatch
from sexton.operations import replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.explain import explain as explain_job
from sexton.operations.recurring import backfill, recurring_jobs
from sexton.operations.recurring import plan as planning
from sexton.operations.recurring.admit import admit
from sexton.operations.versions import AtVersion
from sexton.store.sql import statements
from sexton.store.work import dead_letters, jobs, schedules
from tests.callers import TESTER
from tests.store.support import BROKEN, NOW, blocked_task, claim, enlist, finish, snapshot, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sexton.domain.run import Claimed
    from sexton.operations.recurring.backfill import Backfill
    from sexton.store.database import Postgres
    from tests.store.support import Conn

MIDNIGHT = NOW.replace(hour=0)  # of the day whose history is kept
START = MIDNIGHT + timedelta(hours=2)
HOURLY = {"cron": "0 * * * *"}


def at(hour: float, minute: float = 0, second: float = 0) -> datetime:
    return MIDNIGHT + timedelta(hours=hour, minutes=minute, seconds=second)


def hours(*wanted: int) -> list[datetime]:
    return [at(hour) for hour in wanted]


class World:
    """An hourly job since 02:00, a promoter and a worker, all stepped by the test."""

    def __init__(self, database: Postgres, connection: Conn) -> None:
        self.database, self.connection = database, connection
        self.job_id = self.worker_id = UUID(int=0)

    async def write(self, schedule: dict[str, Any] | None = None, now: datetime = START, **fields: Any) -> None:
        self.worker_id = await enlist(self.connection)
        document = {"task": "a", "schedule": schedule or HOURLY, **fields}
        async with self.connection.transaction():
            (written,) = await recurring_jobs.submit(self.connection, TESTER, [document], now=now)
        self.job_id = written.id

    async def outage(self, until: datetime) -> None:
        """After a downtime: catch-up ran the latest fire, the ledger has the others."""
        await schedules.recall(self.connection, partitions=ALL, limit=100, now=until)
        await self.plan(until)

    async def plan(self, now: datetime) -> None:
        await planning.write(
            self.connection, SCHEDULER, await schedules.to_plan(self.connection, Scan(ALL, 10), now=now), now=now
        )

    async def ask(
        self,
        from_at: datetime,
        until: datetime | None = None,
        *,
        version: int | None = None,
        now: datetime = NOW,
        **asked: Any,
    ) -> Backfill:
        wanted, spec = AtVersion(self.job_id, version), domain.BackfillSpec(from_at, until, **asked)
        async with self.connection.transaction():
            return await backfill.start(self.connection, TESTER, wanted, spec, monotonic=lambda: 0.0, now=now)

    async def begin(self, now: datetime) -> list[Claimed]:
        await admit(self.database, SCHEDULER, ALL, limit=100, now=now)
        return await claim(self.connection, self.worker_id, now=now)

    async def end(self, claimed: Claimed, outcome: Outcome | None = None, *, now: datetime) -> None:
        await finish(self.connection, claimed.lease, outcome or Succeeded(), now=now)

    async def runs(self, origin: str = "backfill") -> dict[datetime, str]:
        rows = await self.connection.fetch(
            "SELECT fire_at, state FROM sexton.runs WHERE job_id = $1 AND origin = $2 ORDER BY fire_at", self.job_id, origin
        )
        return {row["fire_at"]: row["state"] for row in rows}

    async def cursor(self) -> datetime:
        found: datetime = await self.connection.fetchval("SELECT plan_cursor_at FROM sexton.jobs_recurring")
        return found


@pytest.fixture
def world(database: Postgres, connection: Conn) -> World:
    return World(database, connection)


async def test_the_missing_fires_of_a_range_run_one_after_the_other_with_their_nominal_time(world: World) -> None:
    """A7, B6: oldest first, each due a spacing later, marked, and `fire_at` is the nominal time."""
    await world.write()
    await world.outage(at(8, 10))
    done = await world.ask(at(3), at(6), now=at(8, 10), spacing="10s")
    assert (done.fires, done.dry_run, done.last_due_at) == (hours(3, 4, 5), False, at(8, 10, 20))
    rows = await world.connection.fetch("SELECT fire_at, due_at FROM sexton.runs WHERE origin = 'backfill' ORDER BY due_at")
    assert [tuple(row) for row in rows] == [(at(3 + n), at(8, 10, 10 * n)) for n in range(3)]
    (regular,) = await world.begin(at(8, 10, 30))
    assert (regular.lease.origin, regular.fire_at) == ("schedule", at(8)), "the fire that was caught up with goes first"
    await world.end(regular, now=at(8, 11))
    seen = []
    for minute in (12, 13, 14):
        (claimed,) = await world.begin(at(8, minute))
        seen.append((claimed.lease.origin, claimed.fire_at))
        await world.end(claimed, now=at(8, minute))
    assert seen == [("backfill", fire_at) for fire_at in hours(3, 4, 5)]


async def test_a_dry_run_returns_the_same_and_changes_nothing(world: World) -> None:
    await world.write()
    await world.outage(at(8, 10))
    before = await snapshot(world.connection)
    told = await world.ask(at(3), at(6), now=at(8, 10), dry_run=True)
    assert (told.fires, told.dry_run, told.last_due_at) == (hours(3, 4, 5), True, at(8, 10, 2))
    assert await snapshot(world.connection) == before
    done = await world.ask(at(3), at(6), now=at(8, 10))
    assert done == told._replace(dry_run=False)


async def test_a_repeated_call_runs_each_fire_once(world: World) -> None:
    """A7: while its runs are live, and after they have succeeded."""
    await world.write()
    await world.outage(at(5, 10))
    assert (await world.ask(at(3), at(5), now=at(5, 10))).fires == hours(3, 4)
    again = await world.ask(at(3), at(5), now=at(5, 10))
    assert (again.fires, again.live_count, again.already_ran_count) == ([], 2, 0)
    for second in (10, 20, 30):  # with the one that was caught up
        (claimed,) = await world.begin(at(5, 10, second))
        await world.end(claimed, now=at(5, 10, second))
    again = await world.ask(at(3), at(5), now=at(5, 20))
    assert (again.fires, again.live_count, again.already_ran_count) == ([], 0, 2)
    everything = await world.ask(at(3), at(5), now=at(5, 20), fires="all")
    assert (everything.fires, everything.already_ran_count) == (hours(3, 4), 0)
    assert (await world.ask(at(3), at(5), now=at(5, 20), fires="all")).live_count == 2


async def test_two_calls_at_once_write_each_fire_once(world: World, rival: Conn) -> None:
    """Rule "lock, then decide": first the lock of the job, then the query."""
    await world.write()
    await world.outage(at(8, 10))

    async def ask(connection: Conn) -> Backfill:
        async with connection.transaction():
            return await backfill.start(
                connection, TESTER, AtVersion(world.job_id), domain.BackfillSpec(at(3), at(6)), monotonic=float, now=at(8, 10)
            )

    async with world.connection.transaction():
        assert len((await ask(world.connection)).fires) == 3
        other = await blocked_task(world.connection, rival, ask(rival))
    assert ((await other).fires, (await other).live_count) == ([], 3)
    assert len(await world.runs()) == 3


async def test_fires_that_ran_by_the_schedule_and_dead_letters_are_left_out(world: World) -> None:
    """A backfill repeats no effect, and does not replace the replay of a dead letter."""
    await world.write()
    for hour, outcome in ((3, Succeeded()), (4, BROKEN)):
        await world.plan(at(hour))
        (claimed,) = await world.begin(at(hour))
        await world.end(claimed, outcome, now=at(hour, 1))
    await world.outage(at(7, 50))
    told = await world.ask(at(2, 30), at(6), now=at(7, 50), dry_run=True)
    assert (told.fires, told.already_ran_count, told.dead_letter_count) == (hours(5), 1, 1)
    told = await world.ask(at(2, 30), at(6), now=at(7, 50), dry_run=True, fires="all")
    assert (told.fires, told.already_ran_count, told.dead_letter_count) == (hours(3, 4, 5), 0, 0)
    await replay.discard(world.connection, TESTER, [one.id for one in await dead_letters.find(world.connection, LETTERS)])
    assert (await world.ask(at(2, 30), at(6), now=at(7, 50), dry_run=True)).fires == hours(4, 5)


LETTERS = dead_letters.Filter()


async def test_fires_are_those_of_the_rule_with_zone_exclusions_start_and_end(world: World) -> None:
    """A3: 02:30 in New York on the day of the gap is 03:00."""
    await world.write(
        {
            "cron": "30 2 * * *",
            "timezone": "America/New_York",
            "start_at": "2026-03-05T00:00:00Z",
            "end_at": "2026-03-10T00:00:00Z",
            "exclude": ["2026-03-07"],
        },
        now=datetime(2026, 3, 4, 2, tzinfo=UTC),
    )
    now = datetime(2026, 3, 20, tzinfo=UTC)
    await world.connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = '2026-03-09T06:30:00Z'")
    await world.connection.execute("DELETE FROM sexton.runs")
    told = await world.ask(datetime(2026, 3, 1, tzinfo=UTC), now=now, dry_run=True, fires="all")
    march = [(5, 7, 30), (6, 7, 30), (8, 7, 0), (9, 6, 30)]
    assert told.fires == [datetime(2026, 3, day, hour, minute, tzinfo=UTC) for day, hour, minute in march]


async def test_more_fires_than_a_call_may_write_are_rejected_with_advice_to_split_the_range(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write()
    await world.outage(at(10, 10))
    monkeypatch.setattr(backfill, "LIMIT", 3)
    with pytest.raises(Invalid) as refused:
        await world.ask(at(3), at(9), now=at(10, 10))
    assert str(refused.value) == (
        "until: more than 3 fires to run; split it: until 2026-03-04T06:00:00Z first, then from 2026-03-04T06:00:00Z on"
    )
    assert await world.runs() == {}
    for span in ((at(3), at(6)), (at(6), at(9))):
        assert len((await world.ask(*span, now=at(10, 10))).fires) == 3
    monkeypatch.setattr(domain, "SEARCH_LIMIT", 5)
    with pytest.raises(Invalid, match="more than 5 fires; split it: until 2026-03-04T08:00:00Z"):
        await world.ask(at(3), at(9), now=at(10, 10))


async def test_a_search_that_takes_too_long_is_rejected(world: World) -> None:
    """A7: bounded in time, whatever the rule."""
    await world.write({"every": "1s", "anchor_at": "2026-03-04T00:00:00Z"})
    ticks = iter(range(100))
    with pytest.raises(Invalid, match="split it"):
        async with world.connection.transaction():
            await backfill.start(
                world.connection,
                TESTER,
                AtVersion(world.job_id),
                domain.BackfillSpec(at(0), at(1)),
                monotonic=lambda: next(ticks),
                now=at(3),
            )


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"from_at": at(9), "until": at(5)}, "until"),
        ({"from_at": at(5), "until": at(5)}, "until"),
        ({"from_at": at(5), "until": at(13)}, "until"),
        ({"from_at": at(13)}, "from"),
        ({"from_at": at(5).replace(tzinfo=None)}, "from"),
        ({"from_at": datetime(1960, 1, 1, tzinfo=UTC)}, "from"),
        ({"from_at": at(5), "spacing": "25h"}, "spacing"),
        ({"from_at": at(5), "spacing": "-1s"}, "spacing"),
        ({"from_at": at(5), "overlap": "parallel"}, "overlap"),
    ],
)
async def test_an_invalid_range_is_rejected_with_its_reason_and_nothing_is_written(
    world: World, asked: Any, field: str
) -> None:
    await world.write()
    with pytest.raises(Invalid) as refused:
        await world.ask(**asked)
    assert refused.value.field == field
    assert await world.runs() == {}


async def test_a_range_before_the_oldest_history_is_rejected(world: World) -> None:
    """A fire that ran before the oldest partition would run again; `all` allows that."""
    await world.write(now=at(0.5))
    await world.outage(at(5, 10))
    with pytest.raises(Invalid, match=r"history goes back to 2026-03-04T01:00:00Z.*set fires to all"):
        await world.ask(at(-5), at(2), now=at(5, 10))
    assert len((await world.ask(at(-5), at(2), now=at(5, 10), fires="all", dry_run=True)).fires) == 7
    assert (await world.ask(at(1), at(3), now=at(5, 10), dry_run=True)).fires == hours(1, 2)


async def test_all_fires_before_the_submission_are_missing(world: World) -> None:
    await world.write()
    told = await world.ask(at(-48), at(-46), now=at(2, 30), dry_run=True)
    assert len(told.fires) == 2


async def test_neither_the_cursor_nor_a_planned_fire_changes(world: World) -> None:
    await world.write()
    await world.outage(at(5, 10))
    cursor, planned = await world.cursor(), await world.runs("schedule")
    await world.ask(at(3), at(5), now=at(5, 10))
    assert (await world.cursor(), await world.runs("schedule")) == (cursor, planned)


async def test_fires_that_the_schedule_will_still_decide_are_left_to_it(world: World) -> None:
    """Rule "plan by compare-and-set": a fire after an outage that no planner has seen yet would run twice, by catch-up and by
    backfill."""
    await world.write()
    told = await world.ask(at(2, 30), now=at(6, 10), dry_run=True)
    assert (told.fires, told.live_count, told.undecided_count) == ([], 1, 3)
    await world.outage(at(6, 10))
    told = await world.ask(at(2, 30), now=at(6, 10), dry_run=True)
    assert (told.fires, told.live_count, told.undecided_count) == (hours(3, 4, 5), 1, 0)


async def test_a_backfill_that_waits_for_long_takes_no_planned_fire_back(world: World) -> None:
    """C9: the planner recalls late fires of the schedule. A late run of a backfill is none, and would be found in each pass."""
    await world.write()
    await world.outage(at(5, 10))
    await world.connection.execute("DELETE FROM sexton.runs WHERE fire_at < $1", at(5, 30))
    await world.ask(at(3), at(5), now=at(5, 10))
    assert set(await world.runs()) == set(hours(3, 4))
    cursor, planned = await world.cursor(), await world.runs("schedule")
    assert (await schedules.recall(world.connection, partitions=ALL, limit=100, now=at(5, 59))).recalled_count == 0
    assert (await world.cursor(), await world.runs("schedule")) == (cursor, planned)
    assert planned


@pytest.mark.parametrize(("on_resume", "wanted"), [("skip", [3, 4]), ("all", [])])
async def test_a_paused_job_may_be_backfilled_unless_its_resume_would_fire_the_same(
    world: World, on_resume: str, wanted: list[int]
) -> None:
    await world.write(recurrence={"on_resume": on_resume} if on_resume != "skip" else None)
    async with world.connection.transaction():
        await recurring_jobs.pause(world.connection, TESTER, world.job_id, now=at(2, 30))
    done = await world.ask(at(2, 30), at(5), now=at(5, 10))
    assert (done.fires, done.undecided_count) == (hours(*wanted), 2 - len(wanted))
    for claimed in await world.begin(at(5, 11)):
        assert claimed.lease.origin == "backfill"
        await world.end(claimed, now=at(5, 11))
    async with world.connection.transaction():
        shown = await recurring_jobs.resume(world.connection, TESTER, world.job_id, now=at(5, 20))
    assert shown.paused_at is None


async def test_a_cancelled_job_and_a_one_time_job_are_refused(world: World) -> None:
    await world.write()
    async with world.connection.transaction():
        await cancel_job(world.connection, TESTER, world.job_id, now=at(3, 10))
    with pytest.raises(NotAllowedIn, match="cancelled"):
        await world.ask(at(2, 30), at(3), now=at(3, 10))
    world.job_id = await submit(world.connection)
    with pytest.raises(NotAllowedIn, match="one-time"):
        await world.ask(at(2, 30), at(3), now=at(3, 10))
    world.job_id = UUID(int=(1 << 127) + 1)
    with pytest.raises(NotFound):
        await world.ask(at(2, 30), at(3), now=at(3, 10))
    with pytest.raises(NotFound):
        await backfill.stop(world.connection, TESTER, world.job_id)


async def test_with_a_version_only_that_version_is_backfilled(world: World) -> None:
    """The backfill does what the preview showed."""
    await world.write()
    await world.outage(at(5, 10))
    told = await world.ask(at(3), at(5), now=at(5, 10), dry_run=True)
    async with world.connection.transaction():
        await recurring_jobs.edit(
            world.connection, TESTER, AtVersion(world.job_id), {"task": "a", "schedule": {"cron": "30 * * * *"}}, now=at(5, 11)
        )
    with pytest.raises(VersionMismatch):
        await world.ask(at(3), at(5), now=at(5, 12), version=told.version)
    assert await world.runs() == {}


@pytest.mark.parametrize("policy", ["skip", "queue", "replace"])
async def test_a_regular_fire_waits_for_the_running_one_and_starts_before_the_rest_of_the_backfill(
    world: World, policy: str
) -> None:
    """B5: because of a backfill no fire of the schedule is skipped, and no run of the backfill is replaced."""
    await world.write(recurrence={"overlap": {"policy": policy}} if policy != "skip" else None)
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1, plan_at = $1", at(5, 55))
    await world.ask(at(3), at(5, 30), now=at(5, 58), spacing=0)
    (first,) = await world.begin(at(5, 58))
    await world.plan(at(5, 58))
    assert (first.lease.origin, await world.begin(at(6, 0, 1))) == ("backfill", [])
    assert (await world.runs("schedule"))[at(6)] == "blocked"
    assert await world.runs() == {at(3): "running", at(4): "blocked", at(5): "blocked"}
    await world.end(first, now=at(6, 1))
    order = []
    for minute in (2, 3, 4):
        (claimed,) = await world.begin(at(6, minute))
        order.append(claimed.fire_at)
        await world.end(claimed, now=at(6, minute))
    assert order == hours(6, 4, 5)
    told = await world.connection.fetch("SELECT DISTINCT status FROM sexton.executions WHERE fire_at >= $1", at(3))
    assert [row["status"] for row in told] == ["succeeded"]


async def test_among_themselves_regular_fires_keep_their_policy_during_a_backfill(world: World) -> None:
    """B5: if two fires come while a run of a backfill is live, the second is skipped because of the first."""
    await world.write({"cron": "*/10 * * * *"})
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1, plan_at = $1", at(5, 55))
    await world.ask(at(3), at(3, 5), now=at(5, 58))
    (beside,) = await world.begin(at(5, 58))
    for minute in (0, 10):
        await world.plan(at(6, minute))
        assert await world.begin(at(6, minute)) == []
    (row,) = await world.connection.fetch("SELECT fire_at, status, reason FROM sexton.executions WHERE status = 'skipped'")
    assert (row["fire_at"], str(beside.lease.run_id) in row["reason"]) == (at(6, 10), False)


async def test_a_full_queue_of_backfills_leaves_the_places_of_regular_fires_free(world: World) -> None:
    """B5: `max_queued` counts only fires of the schedule, and drops no run of the backfill."""
    await world.write({"cron": "*/10 * * * *"}, recurrence={"overlap": {"policy": "queue", "max_queued": 1}})
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1, plan_at = $1", at(5, 55))
    await world.ask(at(3), at(4), now=at(5, 58), spacing=0)
    await world.begin(at(5, 58))
    await world.plan(at(6))
    await world.begin(at(6))
    assert sorted((await world.runs()).values()) == ["blocked"] * 5 + ["running"]
    assert (await world.runs("schedule"))[at(6)] == "blocked"


@pytest.mark.parametrize(("overlap", "at_once"), [("queue", 1), ("parallel", 3)])
async def test_a_job_that_may_overlap_itself_runs_one_backfill_at_a_time_by_default(
    world: World, overlap: str, at_once: int
) -> None:
    await world.write(recurrence={"overlap": {"policy": "parallel", "max_parallel": 3}})
    await world.outage(at(9, 50))
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.ask(at(3), at(8), now=at(9, 50), spacing=0, overlap=overlap)
    claimed = await world.begin(at(9, 51))
    assert [one.fire_at for one in claimed] == hours(3, 4, 5)[:at_once]
    await world.end(claimed[0], now=at(9, 52))
    assert len(await world.begin(at(9, 52))) == 1
    assert sorted((await world.runs()).values()) == sorted(["running"] * at_once + ["blocked"] * (4 - at_once))


async def test_a_regular_fire_of_such_a_job_waits_while_a_backfill_uses_its_capacity(world: World) -> None:
    await world.write({"cron": "*/10 * * * *"}, recurrence={"overlap": {"policy": "parallel", "max_parallel": 2}})
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.connection.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1, plan_at = $1", at(5, 55))
    await world.ask(at(3), at(4), now=at(5, 58), spacing=0, overlap="parallel")
    first, _ = await world.begin(at(5, 58))
    await world.plan(at(6))
    assert await world.begin(at(6)) == []
    assert (await world.runs("schedule"))[at(6)] == "blocked"
    await world.end(first, now=at(6, 1))
    (claimed,) = await world.begin(at(6, 1))
    assert (claimed.lease.origin, claimed.fire_at) == ("schedule", at(6))


async def test_no_deadline_and_no_latest_start_counts_while_it_waits_its_turn_also_after_an_edit(world: World) -> None:
    """They count from the due time, which means nothing for a run that waits for a hundred others."""
    document = {"task": "a", "schedule": HOURLY, "policy": {"deadline_s": 60, "start_within_s": 60}}
    await world.write(policy=document["policy"])
    await world.outage(at(5, 10))
    await world.ask(at(3), at(5), now=at(5, 10))
    bounds = "SELECT start_by, deadline_at, job_version FROM sexton.runs WHERE origin = 'backfill'"
    assert [tuple(row) for row in await world.connection.fetch(bounds)] == [(None, None, 1)] * 2
    async with world.connection.transaction():
        await recurring_jobs.edit(
            world.connection, TESTER, AtVersion(world.job_id), {**document, "payload": {"n": 2}}, now=at(5, 11)
        )
    assert [tuple(row) for row in await world.connection.fetch(bounds)] == [(None, None, 2)] * 2


async def test_an_edit_leaves_a_backfill_one_at_a_time(world: World) -> None:
    recurrence = {"overlap": {"policy": "parallel"}}
    await world.write(recurrence=recurrence)
    await world.outage(at(5, 10))
    await world.ask(at(3), at(5), now=at(5, 10))
    async with world.connection.transaction():
        document = {"task": "a", "schedule": HOURLY, "recurrence": recurrence, "payload": {"n": 2}}
        await recurring_jobs.edit(world.connection, TESTER, AtVersion(world.job_id), document, now=at(5, 11))
    rows = await world.connection.fetch("SELECT DISTINCT overlap FROM sexton.runs WHERE origin = 'backfill'")
    assert [row["overlap"] for row in rows] == [1]


async def test_another_rule_and_a_pause_leave_the_backfill(world: World) -> None:
    """A7: both take planned fires back, and a run of a backfill is none."""
    await world.write()
    await world.outage(at(5, 10))
    await world.ask(at(3), at(5), now=at(5, 10), spacing="10m")
    waiting = await world.runs()
    assert waiting == {at(3): "waiting", at(4): "waiting"}
    async with world.connection.transaction():
        await recurring_jobs.edit(
            world.connection, TESTER, AtVersion(world.job_id), {"task": "a", "schedule": {"cron": "30 * * * *"}}, now=at(5, 9)
        )
    assert await world.runs() == waiting
    async with world.connection.transaction():
        await recurring_jobs.pause(world.connection, TESTER, world.job_id, now=at(5, 9))
    assert (await world.runs(), await world.runs("schedule")) == (waiting, {})


async def test_the_previous_fire_of_a_backfilled_run_is_the_one_before_it_in_the_range(world: World) -> None:
    """C1: for a regular fire it is the previous regular one, for a backfilled run the one before its own fire."""
    await world.write()
    await world.outage(at(5, 10))
    (regular,) = await world.begin(at(5, 10))
    await world.end(regular, now=at(5, 11))
    await world.ask(at(3), at(5), now=at(5, 12), spacing=0)
    seen = []
    for minute in (12, 13):
        (claimed,) = await world.begin(at(5, minute))
        seen.append(claimed.previous)
        await world.end(claimed, now=at(5, minute))
    assert seen == [None, Previous("succeeded", at(3))]
    await world.connection.execute(
        """INSERT INTO sexton.executions SELECT (b.new).* FROM (
             SELECT jsonb_populate_record(e, jsonb_build_object(
               'id', sexton.uuid7(extract(epoch FROM e.ended_at)::bigint * 1000000 + n), 'run_id', gen_random_uuid())) AS new
             FROM sexton.executions e, generate_series(1, 150) n WHERE e.origin = 'backfill' AND e.fire_at = $1) b""",
        at(4),
    )
    await world.plan(at(6))
    (regular,) = await world.begin(at(6))
    assert regular.previous == Previous("succeeded", at(5)), "however many there were of it"


async def test_a_schedule_that_is_over_may_be_backfilled_up_to_its_last_fire(world: World) -> None:
    await world.write({**HOURLY, "end_at": "2026-03-04T05:00:00Z"})
    await world.outage(at(5, 50))
    await world.plan(at(6))
    assert (await jobs.show(world.connection, world.job_id)).status == "completed"
    done = await world.ask(at(2, 30), now=at(7))
    assert (done.fires, done.undecided_count) == (hours(3, 4, 5), 0)
    (claimed,) = await world.begin(at(7))
    assert claimed.fire_at == at(3)
    async with world.connection.transaction():
        assert (await cancel_job(world.connection, TESTER, world.job_id, now=at(7))).ended_count == 2


async def test_a_lost_plan_is_found_while_a_backfill_waits(world: World) -> None:
    """B4: the guardian looks only at fires of the schedule."""
    await world.write()
    await world.outage(at(5, 10))
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.ask(at(3), at(5), now=at(5, 10))
    assert await schedules.unplanned(world.connection, now=at(5, 11)) == [world.job_id]


async def test_a_backfill_can_be_stopped_without_the_schedule(world: World) -> None:
    """Waiting runs never start and the history has the reason; running ones continue, and so does the schedule."""
    await world.write()
    await world.outage(at(8, 50))
    await world.connection.execute("DELETE FROM sexton.runs WHERE state <> 'waiting' OR due_at < $1", at(8, 50, 30))
    await world.ask(at(3), at(7), now=at(8, 50), spacing=0)
    (running,) = await world.begin(at(8, 50))
    planned = await world.runs("schedule")
    async with world.connection.transaction():
        assert await backfill.stop(world.connection, TESTER, world.job_id, now=at(8, 51)) == (3, 1)
    assert (await world.runs(), await world.runs("schedule")) == ({at(3): "running"}, planned)
    rows = await world.connection.fetch(
        "SELECT DISTINCT status, origin, reason FROM sexton.executions WHERE status = 'cancelled'"
    )
    assert [tuple(row) for row in rows] == [("cancelled", "backfill", "its backfill was stopped")]
    await world.end(running, now=at(8, 52))
    assert (await world.ask(at(3), at(7), now=at(8, 53), dry_run=True)).fires == hours(4, 5, 6), "and may be asked for again"


async def test_a_cancel_of_the_job_ends_its_backfill(world: World) -> None:
    await world.write()
    await world.outage(at(5, 10))
    await world.ask(at(3), at(5), now=at(5, 10))
    async with world.connection.transaction():
        await cancel_job(world.connection, TESTER, world.job_id, now=at(5, 11))
    assert await world.runs() == {}


async def test_failures_of_a_backfill_pause_no_job(world: World) -> None:
    await world.write(recurrence={"pause_after": 1})
    await world.outage(at(5, 10))
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.ask(at(3), at(4), now=at(5, 10))
    (claimed,) = await world.begin(at(5, 10))
    await world.end(claimed, BROKEN, now=at(5, 11))
    assert await world.connection.fetchval("SELECT count(*) FROM sexton.failures") == 0
    (letter,) = await dead_letters.find(world.connection, LETTERS)
    assert (letter.origin, letter.fire_at) == ("backfill", at(3))


async def test_why_and_history_say_that_it_is_a_backfill(world: World) -> None:
    """A8."""
    await world.write()
    await world.outage(at(5, 50))
    await world.connection.execute("DELETE FROM sexton.runs")
    await world.ask(at(3), at(4), now=at(5, 50))
    (claimed,) = await world.begin(at(5, 50))
    assert "(a backfill)" in (await explain_job(world.connection, TESTER, world.job_id, now=at(5, 50))).answer
    await world.end(claimed, now=at(5, 51))
    links = (await explain_job(world.connection, TESTER, world.job_id, now=at(5, 51))).chain
    assert any(link.check == "last_fire" and "(a backfill)" in link.detail for link in links)
    (*_, newest) = await jobs.executions(world.connection, world.job_id)
    assert (newest.origin, newest.fire_at) == ("backfill", at(3))


async def test_executed_fires_are_found_by_the_range_however_often_the_job_fires(world: World) -> None:
    """A7: two fires among 20,000, found by the index."""
    await world.write()
    await world.connection.execute(
        """INSERT INTO sexton.executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane,
             origin, status, queue, tenant, task)
           SELECT sexton.uuid7(extract(epoch FROM at)::bigint * 1000000), $1, gen_random_uuid(), at, at, at, 1, 1, 0, 1, 2,
             'schedule', 'succeeded', 'default', 'default', 'a'
           FROM generate_series($2::timestamptz, $2 + interval '20000 seconds', interval '1 second') AS at""",
        world.job_id,
        at(3),
    )
    await world.connection.execute(f"PREPARE handled AS {statements('sexton.store.work.backfills')['handled']}")
    lowest = UUID(int=0)
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE handled ('{world.job_id}', '{at(4)}', '{at(4, 0, 2)}', '{lowest}')"
    (plan,) = json.loads(await world.connection.fetchval(explain))
    read = [node for node in _nodes(plan["Plan"]) if node.get("Index Name", "").endswith("_idx") and node["Actual Rows"] > 0]
    assert [node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in read] == [2], plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


async def test_a_fire_and_its_backfill_are_replayed_one_after_the_other(world: World) -> None:
    """C7, rule "a replay consumes its letter": both at once would be the same run twice. It once also failed the other replays
    of the batch."""
    await world.write()
    await world.plan(at(2, 30))
    (fire,) = await world.begin(at(3))
    await world.end(fire, BROKEN, now=at(3, 1))
    await world.ask(at(3), at(3, 5), now=at(3, 5), fires="all")
    (again,) = await world.begin(at(3, 6))
    assert (again.fire_at, again.lease.origin) == (at(3), "backfill")
    await world.end(again, BROKEN, now=at(3, 7))
    letters = [letter.id for letter in await dead_letters.find(world.connection, LETTERS)]
    assert len(letters) == 2
    assert len(await replay.replay(world.connection, TESTER, letters, now=at(3, 8))) == 1
    assert len(await dead_letters.find(world.connection, LETTERS)) == 1
