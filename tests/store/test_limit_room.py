"""A run that was released under a limit and cannot start leaves its capacity to others (C9, C10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.sharing import QueueSettings, TenantSettings
from sexton.operations import queues, tenants
from sexton.store.sharing import parked_runs
from tests.callers import TESTER

from .support import NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from datetime import datetime

    from sexton.domain.run import Claimed
    from sexton.store.database import Connection

TWO = {"key": "k", "running": 2}
QUEUES = ("default", "other")
Hinder = Callable[["Connection"], Awaitable[None]]


async def _take(connection: Connection, worker_id: UUID, *, now: datetime = NOW, limit: int = 100) -> list[Claimed]:
    """One pass of a promoter and of a worker."""
    await parked_runs.release(connection, now=now)
    return await claim(connection, worker_id, now=now, queues=QUEUES, limit=limit)


async def _ready_count(connection: Connection) -> int:
    (row,) = await connection.fetch("SELECT count(*) FROM sexton.runs WHERE state = 'ready'")
    return int(row["count"])


async def _pause_tenant(connection: Connection) -> None:
    await tenants.pause(connection, TESTER, "a", now=NOW)


async def _fill_tenant(connection: Connection) -> None:
    await tenants.put(connection, TESTER, "a", TenantSettings(running_max=1), now=NOW)
    busy = await enlist(connection)
    await submit(connection, tenant="a")
    assert len(await claim(connection, busy)) == 1


async def _pause_queue(connection: Connection) -> None:
    await queues.pause(connection, TESTER, "other", now=NOW)


async def _empty_bucket(connection: Connection) -> None:
    await queues.put(connection, TESTER, "other", QueueSettings(release_rate=0.001, release_burst=1), now=NOW)
    busy = await enlist(connection, queues=QUEUES)
    await submit(connection, queue="other")
    assert len(await claim(connection, busy, queues=QUEUES)) == 1


async def _nothing(_connection: Connection) -> None:
    pass


async def _drain(connection: Connection) -> None:
    await enlist(connection, tasks=("unknown",))
    await connection.fetch("UPDATE sexton.workers SET draining = true")


@pytest.mark.parametrize(
    ("hinder", "task", "queue", "tenant"),
    [
        pytest.param(_pause_tenant, "a", "default", "a", id="a paused tenant"),
        pytest.param(_fill_tenant, "a", "default", "a", id="a full tenant"),
        pytest.param(_pause_queue, "a", "other", "default", id="a paused queue"),
        pytest.param(_empty_bucket, "a", "other", "default", id="a queue without a start left"),
        pytest.param(_nothing, "unknown", "default", "default", id="a task that no worker knows"),
        pytest.param(_drain, "unknown", "default", "default", id="a task that only a leaving worker knows"),
    ],
)
async def test_a_run_that_cannot_start_delays_no_other_under_its_limit(
    connection: Connection, hinder: Hinder, task: str, queue: str, tenant: str
) -> None:
    """C9, C10"""
    await hinder(connection)
    worker_id = await enlist(connection, queues=QUEUES)
    for _ in range(3):
        await submit(connection, task, queue=queue, tenant=tenant, limit=TWO)
    await parked_runs.release(connection, now=NOW)
    assert await _ready_count(connection) == 2, "nothing else waits: they have the room"

    others = [await submit(connection, tenant="b", limit="k", now=after(seconds=n)) for n in range(4)]
    for n in (0, 2):
        taken = await _take(connection, worker_id, now=after(seconds=5))
        assert [run.lease.job_id for run in taken] == others[n : n + 2]
        for run in taken:
            await finish(connection, run.lease, Succeeded(), now=after(seconds=5))


async def test_the_end_of_a_run_releases_the_next_past_those_that_cannot_start(connection: Connection) -> None:
    """C10: at once, by the statement that ended it."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("unknown", {}, limit=TWO) for _ in range(2)])
    await parked_runs.release(connection, now=NOW)
    for n in range(3):
        await submit(connection, limit="k", now=after(seconds=n))
    (first, _) = await _take(connection, worker_id)
    await finish(connection, first.lease, Succeeded())
    assert len(await claim(connection, worker_id)) == 1


async def test_however_many_cannot_start_they_are_skipped_and_few_of_them_are_released(connection: Connection) -> None:
    """C10: of the same tenant and lane, due earlier. Few are ready at a time: the claim parks those that it cannot start."""
    worker_id = await enlist(connection, queues=QUEUES)
    await queues.pause(connection, TESTER, "other", now=NOW)
    await submit_many(connection, [submission("a", {}, queue="other", limit=TWO) for _ in range(1500)])
    for n in range(20):
        job_id = await submit(connection, limit="k", priority="low", now=after(seconds=n))
        await parked_runs.release(connection, now=after(seconds=n))  # the first of those that cannot start are released here
        (run,) = await _take(connection, worker_id, now=after(seconds=n))
        assert run.lease.job_id == job_id
        assert await _ready_count(connection) <= 4
        await finish(connection, run.lease, Succeeded(), now=after(seconds=n))


async def test_a_run_that_could_not_start_runs_when_it_can_within_the_limit(connection: Connection) -> None:
    """C10"""
    worker_id = await enlist(connection, queues=QUEUES)
    await queues.pause(connection, TESTER, "other", now=NOW)
    await submit_many(connection, [submission("a", {}, queue="other", limit=TWO) for _ in range(5)])
    await submit_many(connection, [submission("a", {}, limit=TWO) for _ in range(5)], now=after(seconds=1))
    ended = 0
    for n in range(12):
        if n == 2:
            await queues.resume(connection, TESTER, "other")
        taken = await _take(connection, worker_id, now=after(seconds=5 + n))
        assert len(taken) <= 2
        for run in taken:
            await finish(connection, run.lease, Succeeded(), now=after(seconds=5 + n))
        ended += len(taken)
    assert ended == 10


async def test_released_runs_follow_weights_and_lanes(connection: Connection) -> None:
    """C9: a paused tenant has no turn."""
    worker_id = await enlist(connection)
    await tenants.put(connection, TESTER, "c", TenantSettings(weight=2), now=NOW)
    await tenants.pause(connection, TESTER, "a", now=NOW)
    await submit_many(connection, [submission("a", {}, tenant="a", limit={"key": "k", "running": 1}) for _ in range(3)])
    await parked_runs.release(connection, now=NOW)
    for tenant in "bcd":
        await submit_many(connection, [submission("a", {}, tenant=tenant, limit="k") for _ in range(3)], now=after(seconds=1))
    await submit(connection, tenant="d", limit="k", priority="high", now=after(seconds=2))
    order = []
    while taken := await _take(connection, worker_id, now=after(seconds=3)):
        (run,) = taken
        order.append(run.tenant)
        await finish(connection, run.lease, Succeeded(), now=after(seconds=3))
    assert order[0] == "d", "the higher lane first"
    assert sorted(order) == list("bbbcccdddd")
    assert set(order[1:4]) == set("bcd"), "no tenant twice before all had a turn"


async def test_a_tenant_gets_no_more_of_the_capacity_than_it_can_use(connection: Connection) -> None:
    """C9, C10: two of three slots of the key stay for others."""
    worker_id = await enlist(connection)
    await tenants.put(connection, TESTER, "a", TenantSettings(running_max=1), now=NOW)
    await submit_many(connection, [submission("a", {}, tenant="a", limit={"key": "k", "running": 3}) for _ in range(9)])
    await parked_runs.release(connection, now=NOW)
    await submit_many(connection, [submission("a", {}, tenant="b", limit="k") for _ in range(9)], now=after(seconds=1))
    taken = await _take(connection, worker_id, now=after(seconds=1))
    assert sorted(run.tenant for run in taken) == ["a", "b", "b"]


async def test_every_key_is_examined_however_many_are_full(connection: Connection) -> None:
    """C10, rule "look again every pass": 1,000 at a time, from where the last look stopped."""
    worker_id = await enlist(connection)
    full = [submission("a", {}, limit={"key": f"k{n:04}", "running": 1}) for n in range(1000)]
    await submit_many(connection, full * 2)
    await parked_runs.release(connection, now=NOW)
    assert len(await claim(connection, worker_id, limit=1000)) == 1000
    last = await submit(connection, limit={"key": "last", "running": 1})

    first_look = await parked_runs.release(connection, now=NOW)
    assert (first_look.released_count, first_look.next_s) == (0, 0), "there are more, so it does not rest"
    second_look = await parked_runs.release(connection, after=first_look.stopped_at, now=NOW)
    assert second_look.released_count == 1
    assert second_look.stopped_at == parked_runs.FIRST
    (run,) = await claim(connection, worker_id)
    assert run.lease.job_id == last
