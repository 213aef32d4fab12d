"""Rule "never wait inside a batch": an open transaction holds one row, and the rows beside it are handled on time.

Each test here waits five seconds for a lock and fails if its batch waits for the row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from sexton.domain import partition, run
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import Scan
from sexton.domain.sharing import QueueSettings
from sexton.errors import Contention
from sexton.operations import due, queues
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan, replan
from sexton.operations.recurring.admit import AGAIN_S, admit
from sexton.scheduler.guardian import FULL_S, Guardian
from sexton.scheduler.sweeper import ALONE_BATCH
from sexton.store.sharing import parked_runs
from sexton.store.work import runs, schedules
from sexton.telemetry.events import PausedAfterFailures, Planned, Repaired
from tests.callers import TESTER
from tests.rig import LEASE_S, NOW, Between, Rig
from tests.store.support import BROKEN, after, bury, claim, enlist, finish
from tests.timetable import Timetable
from tests.tzdata import FakeRelease, rules, using

if TYPE_CHECKING:
    import asyncpg

    Conn = asyncpg.Connection[asyncpg.Record]
    Hold = Callable[..., Any]

SCHEDULE = "SELECT FROM sexton.jobs_recurring WHERE id = $1 FOR UPDATE"
RUN = "SELECT FROM sexton.runs WHERE job_id = $1 FOR UPDATE"
LIMIT = "SELECT FROM sexton.limits WHERE key = $1 FOR UPDATE"


@pytest.fixture
def holding(connection: Conn) -> Hold:
    """A second session: its transaction stays open until the block ends, and is rolled back."""

    @asynccontextmanager
    async def hold(query: str, *arguments: object) -> AsyncIterator[None]:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.fetch(query, *arguments)
            yield
        finally:
            await transaction.rollback()

    return hold


async def planned(rig: Rig) -> set[UUID]:
    later = "SELECT job_id FROM sexton.runs WHERE fire_at > $1"
    return {row["job_id"] for row in await rig.execute(later, rig.clock.database_now())}


async def write_three(rig: Rig, **fields: Any) -> tuple[Timetable, UUID, set[UUID]]:
    """A time table, the schedule that will be locked, and two others."""
    table = Timetable(rig)
    locked, *others = [await table.write(name=f"n{n}", **fields) for n in range(3)]
    return table, locked, set(others)


async def test_a_schedule_that_is_submitted_in_an_open_transaction_stops_no_other(rig: Rig, holding: Hold) -> None:
    """B3, C19: the documented call, whose transaction stays open over three fires of the others."""
    table = Timetable(rig)
    ids = [await table.write(name=f"n{n}", schedule={"every": "10s"}) for n in range(10)]
    async with holding("SELECT sexton.submit_schedule('a', name => 'n0', every => '20 seconds')"):
        await table.until(2, step_s=5)
        by_job = {row["job_id"]: row["count"] for row in await rig.execute(FIRES)}
        assert {by_job[job_id] for job_id in ids[1:]} == {12}
        assert max((start.at - start.fire_at).total_seconds() for start in table.starts) < 5
    rig.move(1)
    await table.turn()
    assert ids[0] in await planned(rig)


FIRES = "SELECT job_id, count(*) FROM sexton.executions WHERE status = 'succeeded' GROUP BY job_id"


async def test_one_statement_plans_all_unlocked_schedules_and_names_the_locked_ones(rig: Rig, holding: Hold) -> None:
    """Also if the batch is not divided."""
    table, locked, others = await write_three(rig)
    rig.move(15 * 60)
    async with rig.database.connection() as connection, holding(SCHEDULE, locked):
        seen = await schedules.to_plan(connection, Scan(partition.ALL, 10), now=table.now)
        done = await plan.write(connection, SCHEDULER, seen, now=table.now)
    assert (set(done.ids), done.locked) == (others, [locked])


async def test_locked_schedules_that_fill_a_batch_do_not_hide_the_next(rig: Rig, holding: Hold) -> None:
    table, _, _ = await write_three(rig)
    rig.move(15 * 60)
    planner, _ = table.node(limit=2)
    first_two = "SELECT FROM sexton.jobs_recurring ORDER BY plan_at, id LIMIT 2 FOR UPDATE"
    async with holding(first_two):
        assert await planner.run_once() > 0.0, "it does not try again without a rest"
        assert [event.count for event in rig.of(Planned)] == [1]


async def test_a_locked_run_whose_siblings_fill_a_batch_does_not_hide_the_next_job(rig: Rig, holding: Hold) -> None:
    """B3, C19: the siblings are not locked, but no decision about their job is possible. Found by the simulation."""
    table = Timetable(rig)
    crowd = await table.write(name="crowd", schedule={"every": "5s"}, recurrence={"overlap": {"policy": "queue"}})
    other = await table.write(name="other", schedule={"every": "20s"})
    rig.move(21)
    async with holding("SELECT FROM sexton.runs WHERE job_id = $1 ORDER BY fire_at LIMIT 1 FOR UPDATE", crowd):
        done = await admit(rig.database, SCHEDULER, partition.ALL, limit=2, now=table.now)
        assert await states(rig, other) == ["ready"]
    assert (done.admitted_count, done.again_in_s) == (1, AGAIN_S)


async def test_a_locked_run_costs_a_pass_no_second_look(rig: Rig, holding: Hold) -> None:
    """B10: a batch that is not full hides no job behind it."""
    table, between = Timetable(rig), Between(rig.database)
    crowd = await table.write(name="crowd", schedule={"every": "5s"}, recurrence={"overlap": {"policy": "queue"}})
    rig.move(21)
    async with holding("SELECT FROM sexton.runs WHERE job_id = $1 ORDER BY fire_at LIMIT 1 FOR UPDATE", crowd):
        done = await admit(between, SCHEDULER, partition.ALL, limit=100, now=table.now)
    assert (done.admitted_count, done.again_in_s) == (0, AGAIN_S)
    assert between.statements.count("promote_alone") == 1


@pytest.mark.parametrize("fault", ['{"cron": "nonsense"}', "[]"])
async def test_a_locked_schedule_that_cannot_be_read_stops_no_other(rig: Rig, holding: Hold, fault: str) -> None:
    table, locked, others = await write_three(rig)
    await rig.execute("UPDATE sexton.jobs_recurring SET schedule = $2::jsonb, tzdata = NULL WHERE id = $1", locked, fault)
    rig.move(15 * 60)
    for query in (SCHEDULE, RUN):
        async with holding(query, locked):
            await table.planner.run_once()
            assert await planned(rig) == others
            assert (await table.show(locked)).status == "pending"
    await table.planner.run_once()
    assert (await table.show(locked)).status == "failed"


async def test_a_locked_schedule_that_fails_unexpectedly_stops_no_other(
    rig: Rig, holding: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, locked, others = await write_three(rig)
    rig.move(15 * 60)
    usual = plan.plan_of

    def broken(seen: Any, **options: Any) -> Any:
        if seen.id == locked:
            raise RuntimeError("a bug")
        return usual(seen, **options)

    monkeypatch.setattr(plan, "plan_of", broken)
    async with holding(SCHEDULE, locked):
        await table.planner.run_once()
    assert await planned(rig) == others


async def test_a_locked_late_fire_is_recalled_later_and_others_at_once(rig: Rig, holding: Hold) -> None:
    table, locked, others = await write_three(rig)
    rig.move(60 * 60)
    late = "SELECT job_id FROM sexton.runs WHERE due_at < $1"
    async with holding(RUN, locked):
        while await table.planner.run_once() == 0.0:
            pass
        assert {row["job_id"] for row in await rig.execute(late, table.now)} == {locked}
    rig.move(11)
    while await table.planner.run_once() == 0.0:
        pass
    assert await planned(rig) == {locked, *others}


async def test_locked_late_fires_that_fill_a_batch_do_not_hide_the_next(rig: Rig, holding: Hold) -> None:
    """B3: the fires of one schedule are more than a batch, and they are older than those of the other."""
    table = Timetable(rig)
    locked = await table.write(name="locked", schedule={"every": "5s"})
    rig.move(30)
    other = await table.write(name="other", schedule={"every": "20s"})
    rig.move(15 * 60)
    planner, _ = table.node(limit=3)
    late = "SELECT DISTINCT job_id FROM sexton.runs WHERE due_at < $1"
    async with holding(SCHEDULE, locked):
        while await planner.run_once() == 0.0:
            pass
        oldest = table.now - timedelta(minutes=5)
        assert {row["job_id"] for row in await rig.execute(late, oldest)} == {locked}
    assert other in await planned(rig)


async def test_locked_blocked_jobs_that_fill_a_batch_do_not_hide_the_next(rig: Rig, holding: Hold) -> None:
    """B3: each has a fire that waited for an earlier run, which has ended."""
    table, count = Timetable(rig), 4
    ids = [
        await table.write(name=f"n{n}", schedule={"every": "20s"}, recurrence={"overlap": {"policy": "queue"}})
        for n in range(count)
    ]
    await rig.execute("DELETE FROM sexton.runs WHERE fire_at > $1", table.now + timedelta(seconds=21))
    await rig.execute("UPDATE sexton.runs SET state = 'blocked'")
    first = sorted(ids)[:2]
    async with holding("SELECT FROM sexton.runs WHERE job_id = ANY ($1) FOR UPDATE", first):
        done = await admit(rig.database, SCHEDULER, partition.ALL, limit=2, now=table.now)
        assert (done.admitted_count, done.again_in_s) == (2, 0.0)
        done = await admit(rig.database, SCHEDULER, partition.ALL, limit=2, now=table.now)
        assert (done.admitted_count, done.again_in_s) == (0, AGAIN_S), "it does not try again without a rest"
    assert await states(rig, *first) == ["blocked"] * 2


@pytest.mark.parametrize("query", [SCHEDULE, RUN], ids=["schedule", "run"])
async def test_a_locked_failing_job_pauses_later_and_others_at_once(rig: Rig, holding: Hold, query: str) -> None:
    table, locked, others = await write_three(rig, recurrence={"pause_after": 1})
    rig.move(15 * 60)
    await table.schedule()
    await table.work(BROKEN)
    await table._end(BROKEN)
    rig.move(1)
    async with holding(query, locked):
        await table.planner.run_once()
        assert {event.job_id for event in rig.of(PausedAfterFailures)} == others


async def test_the_guardian_repairs_unlocked_schedules(rig: Rig, holding: Hold) -> None:
    table, locked, others = await write_three(rig)
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_at = NULL")
    async with holding(SCHEDULE, locked):
        await table.guardian.run_once()
        assert {job_id for event in rig.of(Repaired) for job_id in event.job_ids} == others
    await table.guardian.run_once()
    assert {job_id for event in rig.of(Repaired) for job_id in event.job_ids} == {locked, *others}


async def test_the_full_check_sets_back_unlocked_schedules(rig: Rig, holding: Hold) -> None:
    table, locked, others = await write_three(rig)
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute(
        """UPDATE sexton.jobs_recurring
           SET plan_cursor_at = plan_cursor_at + interval '1 day', plan_at = plan_at + interval '1 day'"""
    )
    async with holding(SCHEDULE, locked):
        rig.move(FULL_S)
        await table.guardian.run_once()
        assert {job_id for event in rig.of(Repaired) for job_id in event.job_ids} == others


async def test_a_pause_that_meets_contention_keeps_no_other_paused(rig: Rig, holding: Hold) -> None:
    """The locked job is first; the rows of its failures are locked, not its own row."""
    table, locked, others = await write_three(rig, recurrence={"pause_after": 5})
    await rig.execute("INSERT INTO sexton.failures (job_id, id, said) VALUES ($1, gen_random_uuid(), 'x')", locked)
    for minute, job_id in enumerate([locked, *others]):
        await table.pause(job_id, resume_at=table.now + timedelta(minutes=minute + 1))
    rig.move(6 * 60)
    async with holding("SELECT FROM sexton.failures FOR UPDATE"):
        with pytest.raises(Exception, match="lock"):
            await table.guardian.run_once()
        assert {job_id for job_id in others if (await table.show(job_id)).status == "pending"} == others
    await table.guardian.run_once()
    assert (await table.show(locked)).status == "pending"


@pytest.mark.parametrize("query", [SCHEDULE, RUN], ids=["schedule", "run"])
async def test_newer_time_zone_data_replan_unlocked_schedules(rig: Rig, holding: Hold, query: str) -> None:
    zone = "Europe/Berlin"
    old, new = FakeRelease("2026a", {zone: rules(1)}), FakeRelease("2026b", {zone: rules(0)})
    with using(old):
        table, locked, others = await write_three(rig, schedule={"cron": "0 15 * * *", "timezone": zone})
    guardian = Guardian(rig.database, clock=rig.clock, emit=rig.heard)
    behind = "SELECT id FROM sexton.jobs_recurring WHERE tzdata = '2026a'"
    with using(new):
        async with holding(query, locked):
            async with rig.database.transaction() as connection:  # also if the batch is not divided
                assert set(await replan.replan(connection, SCHEDULER, [locked, *others], now=table.now)) == others
            for _ in range(3):
                await guardian.run_once()
            assert {row["id"] for row in await rig.execute(behind)} == {locked}
        for _ in range(4):
            await guardian.run_once()
    assert await rig.execute(behind) == []
    assert {tuple(await table.waiting(job_id)) for job_id in (locked, *others)} == {(after(hours=3),)}


async def test_idle_workers_plan_and_promote_unlocked_rows(rig: Rig, holding: Hold) -> None:
    """Rule "any node does overdue work"."""
    _, locked, others = await write_three(rig)
    rig.move(15 * 60 + 10)
    async with holding(SCHEDULE, locked):
        await due.do_overdue_work(rig.database, SCHEDULER, after=parked_runs.FIRST, now=rig.clock.database_now())
        assert await planned(rig) == others


async def limited(rig: Rig, key: str, **limit: Any) -> UUID:
    return await rig.submit(limit={"key": key, **limit})


async def states(rig: Rig, *job_ids: UUID) -> list[str | None]:
    return [await rig.state(job_id) for job_id in job_ids]


async def test_a_locked_limit_keeps_no_run_of_another_limit_parked(rig: Rig, holding: Hold) -> None:
    table = Timetable(rig)
    locked, other = await limited(rig, "a", running=1), await limited(rig, "b", running=1)
    async with holding(LIMIT, "a"):
        await table.promoter.run_once()
        assert await states(rig, locked, other) == ["parked", "ready"]
    await table.promoter.run_once()
    assert await states(rig, locked) == ["ready"]


async def test_a_locked_run_of_a_removed_limit_keeps_no_other_parked(rig: Rig, holding: Hold) -> None:
    table = Timetable(rig)
    locked, other = await limited(rig, "a", running=1), await limited(rig, "a", running=1)
    await rig.execute("DELETE FROM sexton.limits")
    async with holding(RUN, locked):
        await table.promoter.run_once()
        assert await states(rig, locked, other) == ["parked", "ready"]


async def test_a_report_does_not_wait_for_the_limit_that_it_frees(rig: Rig, holding: Hold) -> None:
    """C10: the other reports of its batch would wait as well. The promoter fills the slot afterwards."""
    table = Timetable(rig)
    both, other = {await limited(rig, "a", running=1) for _ in range(2)}, await rig.submit()
    await table.promoter.run_once()
    claimed = await table_claim(rig)
    (next_in_line,) = both - {one.lease.job_id for one in claimed}  # submitted at one instant, in any order
    assert len(claimed) == 2
    async with holding(LIMIT, "a"):
        async with rig.database.connection() as connection:
            for one in claimed:
                await finish(connection, one.lease, Succeeded(), now=rig.clock.database_now())
        assert await rig.status(other) == "completed"
        assert await states(rig, next_in_line) == ["parked"]
    await table.promoter.run_once()
    assert await states(rig, next_in_line) == ["ready"]


async def waits(connection: Any, function: str) -> int:
    """How often this transaction has called a function that waits 50 ms for a locked row."""
    query = "SELECT coalesce(sum(calls), 0)::int AS calls FROM pg_stat_xact_user_functions WHERE funcname = $1"
    (row,) = await connection.fetch(query, function)
    return int(row["calls"])


async def test_reports_that_go_one_by_one_wait_for_their_limit_once(rig: Rig, holding: Hold) -> None:
    """C4, C10: all of them free a slot of a limit that an open transaction holds."""
    table, count = Timetable(rig), 20
    jobs = [await limited(rig, "a", running=count) for _ in range(2 * count)]
    await table.promoter.run_once()
    claimed = await table_claim(rig)
    assert len(claimed) == count
    reports = [run.report(one.lease, Succeeded(), Random(1)) for one in claimed]
    async with holding(LIMIT, "a"), rig.database.transaction() as connection:
        await connection.execute("SET LOCAL track_functions = 'pl'")
        finished, locked = await runs.finish_each(connection, reports, now=rig.clock.database_now())
        assert (len(finished), locked) == (count, set())
        assert await waits(connection, "lock_limits") == 1
    parked = {job_id for job_id in jobs if await states(rig, job_id) == ["parked"]}
    assert parked == set(jobs) - {one.lease.job_id for one in claimed}
    await table.promoter.run_once()
    assert await states(rig, *parked) == ["ready"] * count


async def test_a_claim_waits_once_for_all_its_paced_queues(rig: Rig, holding: Hold) -> None:
    """C9: ten locked queues in two lanes. The run of another queue is claimed in a lower lane."""
    names = tuple(f"q{n}" for n in range(10))
    for name in names:
        async with rig.database.transaction() as connection:
            await queues.put(connection, TESTER, name, QueueSettings(release_rate=10, release_burst=10), now=NOW)
        for priority in ("high", "normal"):
            await rig.submit(queue=name, priority=priority)
    other = await rig.submit(priority="low")
    wanted = (*names, "default")
    async with rig.database.connection() as connection:
        worker_id = await enlist(connection, now=rig.clock.database_now(), queues=wanted)
    async with holding("SELECT FROM sexton.queues FOR UPDATE"), rig.database.transaction() as connection:
        await connection.execute("SET LOCAL track_functions = 'pl'")
        claimed = await claim(connection, worker_id, now=rig.clock.database_now(), queues=wanted)
        assert [one.lease.job_id for one in claimed] == [other]
        assert await waits(connection, "lock_queue") == 1


async def test_one_by_one_the_sweeper_ends_few_runs_in_a_statement(rig: Rig) -> None:
    """C4: otherwise a batch with many locked runs exceeds the statement timeout, and the pass ends none of them."""
    between = Between(rig.database)
    sweeper, count = rig.sweeper(between), 2 * ALONE_BATCH + 1
    ids = await rig.submit_many(count)
    await table_claim(rig, limit=count)

    async def contention() -> None:
        raise Contention("a row is locked")

    between.before("finish", contention)
    for _ in range(8):
        await sweeper.run_once()
        rig.move(LEASE_S / 6)
    assert between.statements.count("finish_each") == 3
    assert set(await states(rig, *ids)) == {"ready"}


async def table_claim(rig: Rig, **options: Any) -> list[Any]:
    async with rig.database.connection() as connection:
        worker_id = await enlist(connection, now=rig.clock.database_now(), queues=options.get("queues", ("default",)))
        return await claim(connection, worker_id, now=rig.clock.database_now(), **options)


async def test_a_claim_does_not_wait_for_the_bucket_of_one_run(rig: Rig, holding: Hold) -> None:
    """C9, C10: if the limit is locked its run is parked, and the claim takes the others."""
    table = Timetable(rig)
    locked = await limited(rig, "a", count=10, per="1s")
    others = [await rig.submit(), await limited(rig, "b", count=10, per="1s")]
    await table.promoter.run_once()
    async with holding(LIMIT, "a"):
        assert {one.lease.job_id for one in await table_claim(rig)} == set(others)
        assert await states(rig, locked) == ["parked"]
    rig.move(1)
    await table.promoter.run_once()
    assert [one.lease.job_id for one in await table_claim(rig)] == [locked]


async def test_a_claim_does_not_wait_for_the_bucket_of_one_queue(rig: Rig, holding: Hold) -> None:
    async with rig.database.transaction() as connection:
        await queues.put(connection, TESTER, "paced", QueueSettings(release_rate=10, release_burst=10), now=NOW)
    locked, other = await rig.submit(queue="paced"), await rig.submit()
    both = ("paced", "default")
    async with holding("SELECT FROM sexton.queues WHERE name = 'paced' FOR UPDATE"):
        assert [one.lease.job_id for one in await table_claim(rig, queues=both)] == [other]
    assert [one.lease.job_id for one in await table_claim(rig, queues=both)] == [locked]


async def test_a_locked_worker_row_keeps_no_other_worker_alive(rig: Rig, holding: Hold) -> None:
    sweeper = rig.sweeper()
    ids = [await enlist_one(rig) for _ in range(3)]
    async with holding("SELECT FROM sexton.workers WHERE id = $1 FOR UPDATE", ids[0]):
        for _ in range(12):
            await sweeper.run_once()
            rig.move(LEASE_S / 6)
        lost = {row["id"] for row in await rig.execute("SELECT id FROM sexton.workers WHERE lost_at IS NOT NULL")}
        assert lost == set(ids[1:])


async def test_the_locked_slot_of_one_lost_run_keeps_no_other_from_being_swept(rig: Rig, holding: Hold) -> None:
    """C4, C9: both were running on a worker that died, and one of them cannot release the slot of its limit."""
    sweeper = rig.sweeper()
    locked, other = await limited(rig, "busy", running=1), await rig.submit()
    await Timetable(rig).promoter.run_once()
    assert {one.lease.job_id for one in await table_claim(rig)} == {locked, other}
    async with holding("SELECT FROM sexton.slots WHERE key = 'busy' FOR UPDATE"):
        for _ in range(12):
            await sweeper.run_once()
            rig.move(LEASE_S / 6)
        assert await states(rig, locked, other) == ["running", "ready"]
    await sweeper.run_once()
    assert await states(rig, locked) != ["running"]


async def enlist_one(rig: Rig) -> UUID:
    async with rig.database.connection() as connection:
        return await enlist(connection, now=rig.clock.database_now())


async def test_the_janitor_deletes_unlocked_rows(rig: Rig, holding: Hold) -> None:
    """Every table that it cleans has two old rows, one of which is locked."""
    ids = sorted([uuid4(), uuid4()], key=str)
    for n in ids:
        await rig.execute(OLD_WORKER, n)
        await rig.execute(
            "INSERT INTO sexton.nodes (id, name, started_at, beat_at) VALUES ($1, 'n', $2, $2)", n, after(days=-9)
        )
        await rig.execute("INSERT INTO sexton.live_output (run_id, token, updated_at) VALUES ($1, 1, $2)", n, after(days=-9))
        await rig.execute("INSERT INTO sexton.failures (job_id, id, said) VALUES ($1, $1, 'x')", n)
        await rig.execute(
            "INSERT INTO sexton.run_payloads (run_id, job_id, payload) VALUES ($1, $1, '1')", UUID(int=n.int >> 96)
        )
    tables = {"workers": "id", "nodes": "id", "live_output": "run_id", "failures": "id", "run_payloads": "run_id"}
    locks = " UNION ALL ".join(
        f"SELECT 1 FROM (SELECT FROM sexton.{table} ORDER BY {key} LIMIT 1 FOR UPDATE) x" for table, key in tables.items()
    )
    async with holding(locks):
        await rig.janitor().run_once()
        counts = {table: (await rig.execute(f"SELECT count(*) FROM sexton.{table}"))[0]["count"] for table in tables}
        assert counts == dict.fromkeys(tables, 1)


OLD_WORKER = """INSERT INTO sexton.workers (id, name, queues, tasks, concurrency, started_at, beat_at, lost_at)
    SELECT $1, 'w', '{}', '{}', 1, at, at, at FROM (SELECT timestamptz '2026-01-01' AS at) x"""


async def test_locked_letters_that_fill_a_batch_do_not_hide_the_next(
    rig: Rig, holding: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7."""
    from sexton.scheduler import janitor as janitors

    monkeypatch.setattr(janitors, "REPLAY_LIMIT", 1)
    async with rig.database.connection() as connection:
        worker_id = await enlist(connection)
        first, _ = [await bury(connection, worker_id, now=after(seconds=n)) for n in range(2)]
    await rig.execute("UPDATE sexton.dead_letters SET replay_at = buried_at")
    rig.move(5)
    async with holding("SELECT FROM sexton.dead_letters WHERE job_id = $1 FOR UPDATE", first):
        await rig.janitor().run_once()
        assert [letter.job_id for letter in await rig.letters()] == [first]
