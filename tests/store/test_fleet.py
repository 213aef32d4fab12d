"""Workers and nodes: heartbeats, losses, departures."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Lost, Succeeded
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.store.fleet import workers
from sexton.store.work import runs
from tests.callers import TESTER
from tests.store.support import NOW, after, blocked_task, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from datetime import datetime

    from tests.store.support import Conn


async def _beat(connection: Conn, worker_id: UUID, now: datetime = NOW) -> list[workers.Held] | None:
    beaten = await workers.beat(connection, worker_id, running_count=3, draining=True, refused_count=2, now=now)
    return None if beaten is None else beaten.held


async def test_a_heartbeat_writes_one_row_and_returns_the_leases_of_the_worker(connection: Conn) -> None:
    """C4, rule "reconcile lost replies": so that a claim whose reply was lost can be released."""
    worker_id, other = await enlist(connection), await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 3)
    mine = await claim(connection, worker_id, limit=2)
    await claim(connection, other)
    held = await _beat(connection, worker_id, after(seconds=2))
    assert held is not None
    assert {(one.run_id, one.token, one.cancel_requested) for one in held} == {(one.lease.run_id, 1, False) for one in mine}
    me = next(one for one in await workers.workers(connection) if one.id == worker_id)
    assert (me.beat_at, me.running_count, me.draining, me.refused_count) == (after(seconds=2), 3, True, 2)
    assert (await workers.survey(connection, lease_s=6)).beats[worker_id] == 1


async def test_an_idle_worker_holds_nothing_and_is_not_dead(connection: Conn) -> None:
    """C4: an empty list is not None."""
    assert await _beat(connection, await enlist(connection)) == []


async def test_a_heartbeat_returns_the_request_to_cancel(connection: Conn) -> None:
    """A5: it reaches the worker even if the notification was lost."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    await claim(connection, worker_id)
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
    held = await _beat(connection, worker_id)
    assert held is not None
    assert [one.cancel_requested for one in held] == [True]


async def test_a_heartbeat_also_looks_for_runs(connection: Conn) -> None:
    """B10, rule "any node does overdue work": in the worker's own queues, and for schedules and runs that have been overdue for
    five seconds."""
    worker_id = await enlist(connection)

    async def look(now: datetime) -> tuple[bool, bool]:
        beaten = await workers.beat(
            connection,
            worker_id,
            running_count=0,
            draining=False,
            refused_count=0,
            queues=["mail", "default"],
            overdue_s=5.0,
            now=now,
        )
        assert beaten is not None
        return beaten.is_ready, beaten.is_overdue

    await submit(connection, queue="other")
    await submit(connection, delay=10, queue="other")
    assert await look(after(seconds=14)) == (False, False)
    await submit(connection, queue="default", now=after(seconds=14))
    assert await look(after(seconds=15)) == (True, True)


@pytest.mark.parametrize("state", ["blocked", "parked"])
async def test_a_heartbeat_sees_runs_that_wait_for_a_limit(connection: Conn, state: str) -> None:
    """Rule "look again every pass": the scheduler that should release them may have died."""
    worker_id = await enlist(connection)
    await submit(connection, delay=3600)
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.execute("UPDATE sexton.runs SET state = $1", state)
    beaten = await workers.beat(connection, worker_id, running_count=0, draining=False, refused_count=0, overdue_s=5.0, now=NOW)
    assert beaten is not None
    assert (beaten.is_ready, beaten.is_overdue) == (False, True)
    await connection.execute("UPDATE sexton.runs SET state = 'waiting'")


async def test_a_heartbeat_sees_a_schedule_that_is_not_planned(connection: Conn) -> None:
    """Rule "any node does overdue work"."""
    worker_id = await enlist(connection)
    await recurring_jobs.submit(connection, TESTER, [{"task": "a", "schedule": {"cron": "0 * * * *"}}], now=NOW)
    for seconds, expected in ((3540, False), (3610, True)):
        beaten = await workers.beat(
            connection,
            worker_id,
            running_count=0,
            draining=False,
            refused_count=0,
            overdue_s=5.0,
            now=after(seconds=seconds),
        )
        assert beaten is not None
        assert beaten.is_overdue is expected
    survey = await workers.survey(connection, lease_s=6, now=after(seconds=3610))
    assert (survey.to_plan, survey.running) == (True, False)


async def test_a_worker_declared_lost_learns_it_and_cannot_come_back(connection: Conn) -> None:
    """C4: it must stop its handlers and register again under another id."""
    worker_id = await enlist(connection)
    assert await workers.declare_lost(connection, {worker_id: 0}, now=NOW) == [worker_id]
    assert await _beat(connection, worker_id) is None
    assert await _beat(connection, uuid4()) is None
    assert worker_id not in (await workers.survey(connection, lease_s=6)).beats
    assert await workers.declare_lost(connection, {worker_id: 0}, now=after(hours=1)) == [], "the first declaration stands"
    (row,) = await workers.workers(connection)
    assert row.lost_at == NOW


async def test_a_worker_with_a_newer_heartbeat_is_alive(connection: Conn) -> None:
    """Rule "dead only when watched": compare-and-set on the heartbeat that the sweeper saw."""
    silent, lively = await enlist(connection), await enlist(connection)
    seen = (await workers.survey(connection, lease_s=6)).beats
    await _beat(connection, lively)
    assert await workers.declare_lost(connection, seen, now=NOW) == [silent]


async def test_a_heartbeat_in_flight_saves_its_worker(connection: Conn, rival: Conn) -> None:
    """Rules "dead only when watched" and "never wait inside a batch": the declaration skips the row, and then finds that its
    heartbeat has changed."""
    worker_id = await enlist(connection)
    seen = (await workers.survey(connection, lease_s=6)).beats
    async with connection.transaction():
        await _beat(connection, worker_id)
        assert await workers.declare_lost(rival, seen, now=NOW) == []
    assert await workers.declare_lost(rival, seen, now=NOW) == []


async def test_a_declaration_in_flight_rejects_the_heartbeat(connection: Conn, rival: Conn) -> None:
    """C4: the other way round."""
    worker_id = await enlist(connection)
    async with connection.transaction():
        await workers.declare_lost(connection, {worker_id: 0}, now=NOW)
        beat = await blocked_task(connection, rival, _beat(rival, worker_id))
    assert await beat is None


async def test_a_worker_leaves_only_when_it_holds_nothing(connection: Conn) -> None:
    """C12: otherwise the sweeper could not find out which worker had the runs."""
    worker_id = await enlist(connection)
    await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await workers.leave(connection, worker_id)
    assert len(await workers.workers(connection)) == 1
    await finish(connection, claimed.lease, Succeeded())
    await workers.leave(connection, worker_id)
    assert await workers.workers(connection) == []


async def test_lost_workers_are_forgotten_after_an_hour_if_they_hold_nothing(connection: Conn) -> None:
    """C4: a row that still has runs is kept."""
    alive, lost, holding = [await enlist(connection) for _ in range(3)]
    await submit(connection)
    await claim(connection, holding)
    await workers.declare_lost(connection, {lost: 0, holding: 0}, now=NOW)
    await workers.forget_workers(connection, now=after(minutes=59))
    assert len(await workers.workers(connection)) == 3
    await workers.forget_workers(connection, now=after(minutes=61))
    assert {one.id for one in await workers.workers(connection)} == {alive, holding}
    (overdue,) = await runs.abandoned(connection, lease_s=6, limit=10, now=after(minutes=61))
    await finish(connection, overdue.lease, Lost("gone"))
    await workers.forget_workers(connection, now=after(minutes=61))
    assert {one.id for one in await workers.workers(connection)} == {alive}


async def test_runs_of_a_live_worker_are_not_abandoned(connection: Conn) -> None:
    """C7: whatever the reason for the look."""
    worker_id = await enlist(connection)
    await submit(connection)
    await submit(connection, lease=60)
    assert len(await claim(connection, worker_id)) == 2
    assert await runs.abandoned(connection, lease_s=6, limit=100, now=after(days=1)) == []


async def test_two_sweepers_at_once_share_the_abandoned_runs(connection: Conn, rival: Conn) -> None:
    """C4, B1: the second skips what the first has locked."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 5)
    await claim(connection, worker_id)
    await workers.declare_lost(connection, {worker_id: 0}, now=NOW)
    async with connection.transaction(), rival.transaction():
        one = await runs.abandoned(connection, lease_s=6, limit=3, now=NOW)
        other = await runs.abandoned(rival, lease_s=6, limit=10, now=NOW)
    assert (len(one), len(other)) == (3, 2)
    assert {run.lease.run_id for run in one}.isdisjoint(run.lease.run_id for run in other)


async def test_nodes_see_each_other_while_they_beat(connection: Conn) -> None:
    """B2: live nodes are those with a heartbeat within the given time; a node always counts itself."""
    one, other = UUID(int=1), UUID(int=2)

    async def beat(node: UUID, now: datetime) -> list[UUID]:
        return sorted(await workers.node_beat(connection, node, name="n", partitions=[node.int], now=now))

    assert await beat(one, NOW) == [one]
    assert await beat(other, after(seconds=5)) == [one, other]
    assert await beat(other, after(seconds=6)) == [other]
    assert await beat(one, after(seconds=6)) == [one, other]
    assert [(node.id, node.partitions, node.started_at) for node in await workers.nodes(connection)] == [
        (one, [1], NOW),
        (other, [2], after(seconds=5)),
    ]
    await workers.node_leave(connection, one)
    assert await beat(other, after(seconds=6)) == [other]
    await workers.forget_nodes(connection, now=after(hours=2))
    assert await workers.nodes(connection) == []


@pytest.mark.parametrize("elapsed_s", [0, 3600, 3601])
async def test_task_options_are_rewritten_only_when_they_change_or_after_an_hour(connection: Conn, elapsed_s: int) -> None:
    """B10: a hundred workers that start at once do not write the same row a hundred times."""
    await workers.register_tasks(connection, {"a": {"queue": "x"}, "b": {}}, now=NOW)
    await workers.register_tasks(connection, {"a": {"queue": "x"}, "b": {"lane": 1}}, now=after(seconds=elapsed_s))
    rows = {row["name"]: row for row in await connection.fetch("SELECT * FROM sexton.tasks")}
    assert rows["a"]["seen_at"] == (NOW if elapsed_s <= 3600 else after(seconds=elapsed_s))
    assert rows["b"]["options"] == '{"lane": 1}'
