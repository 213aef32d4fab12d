"""Limits are slots: the claim takes them, the statement that ends the try releases them, and their number is bounded (C9,
C10)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.domain.job import Lane, submission
from sexton.domain.limit import standing_limit
from sexton.domain.outcome import Lost, Released, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.domain.run import report
from sexton.errors import LimitExceeded, SextonError
from sexton.operations import limits, one_time_jobs
from sexton.operations.caller import Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.sharing import parked_runs
from sexton.store.work import jobs, runs, schedules
from tests.callers import TESTER

from .support import BROKEN, FLAKY, NOW, after, blocked_task, claim, enlist, finish, submit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sexton.domain.outcome import Outcome
    from sexton.domain.run import Claimed
    from sexton.store.database import Connection, Postgres

    from .support import Conn

STRIPE = {"key": "stripe", "running": 2}
IN_ORDER = {"key": "acme", "ordered": True}
QUICK = Retry.after("1s", "1s", jitter=0)


async def _limited(connection: Connection, count: int, limit: dict[str, Any] = STRIPE, **options: Any) -> list[UUID]:
    return [await submit(connection, limit=limit, now=NOW + timedelta(microseconds=n), **options) for n in range(count)]


async def _states(connection: Connection, ids: Sequence[UUID]) -> list[str | None]:
    rows = await connection.fetch("SELECT id, state FROM sexton.runs WHERE id = ANY ($1)", list(ids))
    known = {row["id"]: row["state"] for row in rows}
    return [known.get(one) for one in ids]


async def _held(connection: Connection, key: str = "stripe") -> int:
    (row,) = await connection.fetch("SELECT count(*) FROM sexton.slots WHERE key = $1 AND run_id IS NOT NULL", key)
    return int(row["count"])


async def _set_tenant(connection: Connection, name: str, **settings: Any) -> None:
    await connection.fetch("INSERT INTO sexton.tenants (name, updated_at) VALUES ($1, now()) ON CONFLICT DO NOTHING", name)
    for column, value in settings.items():
        await connection.fetch(f"UPDATE sexton.tenants SET {column} = $2 WHERE name = $1", name, value)


async def _set_queue(connection: Connection, name: str, **settings: Any) -> None:
    await connection.fetch("INSERT INTO sexton.queues (name, updated_at) VALUES ($1, now()) ON CONFLICT DO NOTHING", name)
    for column, value in settings.items():
        await connection.fetch(f"UPDATE sexton.queues SET {column} = $2 WHERE name = $1", name, value)


async def _take(connection: Connection, worker_id: UUID, *, now: datetime = NOW, **options: Any) -> list[Claimed]:
    """One pass of a promoter and of a worker."""
    await parked_runs.release(connection, now=now)
    return await claim(connection, worker_id, now=now, **options)


async def test_no_more_run_than_the_limit_allows_and_the_next_follows_the_end(connection: Connection) -> None:
    """C10"""
    worker_id = await enlist(connection)
    ids = await _limited(connection, 4)
    assert await _states(connection, ids) == ["parked"] * 4
    taken = await _take(connection, worker_id)
    assert [run.lease.job_id for run in taken] == ids[:2]
    assert all(run.is_limited for run in taken)
    assert await _take(connection, worker_id) == []
    assert await _states(connection, ids) == ["running", "running", "parked", "parked"]

    await finish(connection, taken[0].lease, Succeeded())
    assert await _states(connection, ids) == [None, "running", "ready", "parked"], (
        "let through by the statement that ended the one before"
    )
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == ids[2:3]
    assert await _held(connection) == 2


async def test_two_claims_at_once_share_the_slots(database: Postgres) -> None:
    """C10: the second claim begins before the first has committed, and both saw every slot free."""
    async with database.transaction() as connection:
        worker_id = await enlist(connection)
        await _limited(connection, 6, {"key": "stripe", "running": 3})
    async with database.transaction() as connection:
        # As if all had been released: too many do no harm.
        await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
        await connection.fetch("INSERT INTO sexton.slots (key, n) SELECT 'stripe', n FROM generate_series(1, 3) AS n")
    async with database.transaction() as first, database.transaction() as second:
        one = await claim(first, worker_id, limit=2)
        other = await claim(second, worker_id, limit=2)
        assert (len(one), len(other)) == (2, 1)
    async with database.transaction() as connection:
        assert await claim(connection, worker_id) == []
        assert await _held(connection) == 3


async def test_every_end_of_a_try_releases_its_slot(connection: Connection) -> None:
    """C10, rule "slots, not counts"."""
    worker_id = await enlist(connection)
    outcomes: list[Outcome] = [Succeeded(), BROKEN, FLAKY, Released("draining")]
    for key, outcome in enumerate(outcomes):
        await _limited(connection, 1, {"key": str(key), "running": 1})
        (run,) = await _take(connection, worker_id, limit=1)
        assert await _held(connection, str(key)) == 1
        await finish(connection, run.lease, outcome)
        assert await _held(connection, str(key)) == 0, outcome


async def test_a_dead_workers_slots_are_free_once_it_is_swept(connection: Connection) -> None:
    """C10: a limit counts live leases only."""
    worker_id = await enlist(connection)
    ids = await _limited(connection, 3)
    await _take(connection, worker_id)
    await connection.fetch("UPDATE sexton.workers SET lost_at = $1", NOW)
    for overdue in await runs.abandoned(connection, lease_s=6, limit=100, now=after(seconds=7)):
        await finish(connection, overdue.lease, Lost("worker died"), now=after(seconds=7))
    heir = await enlist(connection)
    assert len(await _take(connection, heir, now=after(minutes=10))) == 2
    assert await _held(connection) == 2
    assert len(ids) == 3


async def test_a_run_that_waits_for_a_limit_delays_no_other(connection: Connection) -> None:
    """C10: it is not in the claim's index, and others overtake it."""
    worker_id = await enlist(connection)
    await _limited(connection, 50, {"key": "stripe", "running": 1})
    free = await submit(connection)
    taken = await _take(connection, worker_id, limit=2)
    assert len(taken) == 2
    assert free in {run.lease.job_id for run in taken}
    later = await submit(connection)
    assert [run.lease.job_id for run in await _take(connection, worker_id, limit=1)] == [later]


async def test_runs_without_a_slot_are_replaced_by_those_behind_them_in_the_same_claim(connection: Connection) -> None:
    """C10: a claim that found no slot parks the run, and continues."""
    worker_id = await enlist(connection)
    ids = await _limited(connection, 5, {"key": "stripe", "running": 1})
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    free = await submit(connection, now=after(seconds=1))
    taken = await claim(connection, worker_id, limit=2, now=after(seconds=2))
    assert [run.lease.job_id for run in taken] == [ids[0], free]
    assert (await _states(connection, ids)).count("parked") == 4


async def test_a_lowered_limit_includes_the_running_runs(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await _limited(connection, 8, {"key": "stripe", "running": 5})
    taken = await _take(connection, worker_id)
    assert len(taken) == 5
    await connection.fetch("UPDATE sexton.limits SET running = 3 WHERE key = 'stripe'")
    for run, running in zip(taken[:3], (4, 3, 3), strict=True):  # the lowest numbers first: they must not be given out at once
        await finish(connection, run.lease, Succeeded())
        await _take(connection, worker_id)
        assert await _held(connection) == running


async def test_a_limit_that_was_raised_or_removed_releases_more(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await _limited(connection, 6)
    assert len(await _take(connection, worker_id)) == 2
    await connection.fetch("UPDATE sexton.limits SET running = 4 WHERE key = 'stripe'")
    assert len(await _take(connection, worker_id)) == 2
    await connection.fetch("DELETE FROM sexton.limits")
    assert len(await _take(connection, worker_id)) == 2


@pytest.mark.parametrize("running", [1, 2, 3, 5])
async def test_slots_that_were_forgotten_below_a_held_one_are_made_again(connection: Connection, running: int) -> None:
    """The limit was removed while only its third slot was held; jobs that name it made it again."""
    worker_id = await enlist(connection)
    await _limited(connection, 3, {"key": "stripe", "running": 3})
    *others, third = sorted(await _take(connection, worker_id), key=lambda run: run.run_id.int)
    for run in others:
        await finish(connection, run.lease, Succeeded())
    await limits.remove(connection, TESTER, "stripe")
    await _limited(connection, 6, {"key": "stripe", "running": running})
    assert len(await _take(connection, worker_id)) == running - 1, "the third run counts"
    await finish(connection, third.lease, Succeeded())
    assert len(await _take(connection, worker_id)) == 1
    assert await _held(connection) == running


async def test_a_run_that_was_parked_while_a_slot_became_free_is_found_by_the_next_pass(connection: Connection) -> None:
    """Rule "look again every pass": the run that ended saw no waiting run."""
    worker_id = await enlist(connection)
    await _limited(connection, 1, {"key": "stripe", "running": 1})
    (run,) = await _take(connection, worker_id)
    await finish(connection, run.lease, Succeeded())
    late = await _limited(connection, 1, "stripe")  # type: ignore[arg-type]
    assert await claim(connection, worker_id) == []
    assert [run.lease.job_id for run in await _take(connection, worker_id)] == late


async def test_tenants_take_turns_at_a_shared_limit(connection: Connection) -> None:
    """C9: one tenant's hundred do not delay another's two."""
    worker_id = await enlist(connection)
    for _ in range(10):
        await submit(connection, tenant="big", limit={"key": "stripe", "running": 1})
    for _ in range(2):
        await submit(connection, tenant="small", limit="stripe")
    order = []
    for _ in range(5):
        (run,) = await _take(connection, worker_id)
        order.append(run.tenant)
        await finish(connection, run.lease, Succeeded())
    assert order == ["big", "small", "big", "small", "big"]


async def test_a_rate_is_never_exceeded_in_any_second_and_is_used_completely(connection: Connection) -> None:
    """C10: a token bucket has no fixed interval, so there is no burst at its boundary."""
    worker_id = await enlist(connection)
    await jobs.submit(connection, [_rated() for _ in range(300)], now=NOW)
    starts: list[float] = []
    for step in range(1000):
        at = after(milliseconds=step * 7)
        starts += [step * 0.007] * len(await _take(connection, worker_id, now=at))
    assert len(starts) >= 10 + 0.98 * 100 * 2
    for index, start in enumerate(starts):
        within = [other for other in starts[index:] if other < start + 1.0]
        assert len(within) <= 110
    assert len([start for start in starts if start < 1.0]) <= 110


def _rated() -> Any:
    return submission("a", {}, limit={"key": "mail", "count": 100, "per": "1s", "burst": 10})


async def test_a_promoter_that_finds_a_bucket_locked_comes_back_soon(database: Postgres) -> None:
    """C10, rule "look again every pass": an idle worker may hold the lock, and an unused bucket loses tokens."""
    async with database.transaction() as connection:
        await jobs.submit(connection, [_rated() for _ in range(30)], now=NOW)
    async with database.transaction() as first, database.transaction() as second:
        assert (await parked_runs.release(first, now=NOW)).released_count == 10
        late = await parked_runs.release(second, now=NOW)
        assert late.released_count == 0
        assert late.next_s is not None
        assert late.next_s < 0.05


async def test_a_clock_that_was_set_back_does_not_close_a_rate(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await jobs.submit(connection, [_rated() for _ in range(30)], now=NOW)
    await _take(connection, worker_id, now=NOW)
    back = NOW - timedelta(hours=1)
    assert len(await _take(connection, worker_id, now=back)) == 10
    assert await _take(connection, worker_id, now=back) == []


async def test_an_ordered_key_runs_one_at_a_time_by_due_time_including_retries(connection: Connection) -> None:
    """C10: a serial key."""
    worker_id = await enlist(connection)
    third = await submit(connection, limit=IN_ORDER, run_at=after(seconds=3))
    first = await submit(connection, limit=IN_ORDER, run_at=after(seconds=1), priority="low")
    second = await submit(connection, limit=IN_ORDER, run_at=after(seconds=2), priority="critical")
    now = after(seconds=5)
    await runs.promote(connection, Scan(ALL, 100), now=now)
    (run,) = await _take(connection, worker_id, now=now)
    assert run.lease.job_id == first
    assert await _take(connection, worker_id, now=now) == []

    await finish(connection, run.lease, FLAKY, now=now)
    assert await _take(connection, worker_id, now=now) == [], "the first waits for its next attempt, and the others behind it"
    now = after(minutes=5)
    await runs.promote(connection, Scan(ALL, 100), now=now)
    (run,) = await _take(connection, worker_id, now=now)
    assert (run.lease.job_id, run.lease.attempt) == (first, 2)
    await finish(connection, run.lease, Succeeded(), now=now)
    order = []
    while taken := await _take(connection, worker_id, now=now):
        (run,) = taken
        order.append(run.lease.job_id)
        await finish(connection, run.lease, Succeeded(), now=now)
    assert order == [second, third]


async def test_a_key_that_becomes_ordered_runs_one_at_a_time_though_several_held_slots(connection: Connection) -> None:
    """C10: they are between two tries; one keeps its slot, and the others wait in line."""
    worker_id = await enlist(connection)
    await _limited(connection, 3, {"key": "acme", "running": 3})
    taken = await _take(connection, worker_id)
    assert len(taken) == 3
    await limits.put(connection, TESTER, standing_limit("acme", ordered=True), now=NOW)
    for run in taken[:2]:
        await finish(connection, run.lease, FLAKY)
    await finish(connection, taken[2].lease, Released("draining"))
    assert await _held(connection, "acme") == 1
    now = after(hours=1)
    await runs.promote(connection, Scan(ALL, 100), now=now)
    count = 0
    while taken := await _take(connection, worker_id, now=now):
        (run,) = taken
        count += 1
        await finish(connection, run.lease, Succeeded(), now=now)
    assert count == 3


async def test_an_ordered_key_waits_for_a_run_that_is_due_earlier_and_not_promoted_yet(connection: Connection) -> None:
    """C10: the scheduler of its partition may be late or dead."""
    worker_id = await enlist(connection)
    first = await submit(connection, limit=IN_ORDER, run_at=after(seconds=1))
    second = await submit(connection, limit=IN_ORDER, run_at=after(seconds=2))
    now = after(seconds=3)
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE id = $1", second)  # as its own scheduler would
    assert await _states(connection, [first, second]) == ["waiting", "parked"]
    assert await _take(connection, worker_id, now=now) == []
    await runs.promote(connection, Scan(ALL, 100), now=now)
    (run,) = await _take(connection, worker_id, now=now)
    assert run.lease.job_id == first


async def test_many_keys_in_one_claim_cost_no_more_each_than_a_few(connection: Connection) -> None:
    """C10: also where slots were few when the statements were planned."""
    worker_id = await enlist(connection)
    await connection.execute("VACUUM ANALYZE sexton.slots")  # empty, and PostgreSQL's statistics say so
    each_s: dict[int, list[float]] = {50: [], 1000: []}
    for count, seen in each_s.items():
        for _ in range(3):
            given = [submission("a", {}, limit={"key": str(n), "running": 5}) for n in range(count)]
            await jobs.submit(connection, given, now=NOW)
            await parked_runs.release(connection, now=NOW)
            began = time.perf_counter()
            taken = await claim(connection, worker_id, limit=count)
            seen.append((time.perf_counter() - began) / count)
            assert len(taken) == count
            await runs.finish(connection, [report(run.lease, Succeeded(), Random(1)) for run in taken], now=NOW)
    # At first there are no slots. When all were compared with each other, a thousand took eight times as long each.
    assert min(each_s[1000][1:]) < 3 * min(each_s[50][1:]), each_s


async def test_the_first_in_line_of_an_ordered_key_leaves_it_when_it_is_cancelled_or_paused(connection: Connection) -> None:
    worker_id = await enlist(connection)
    first, second, third = await _limited(connection, 3, IN_ORDER)
    await parked_runs.release(connection, now=NOW)
    assert await _states(connection, [first, second, third]) == ["ready", "parked", "parked"]
    await cancel_job(connection, TESTER, first, now=NOW)
    await parked_runs.release(connection, now=NOW)
    assert await _states(connection, [second]) == ["ready"]
    await one_time_jobs.pause(connection, Caller("test"), second, note=None, now=NOW)
    (run,) = await _take(connection, worker_id)
    assert run.lease.job_id == third
    await one_time_jobs.resume(connection, TESTER, second, now=after(seconds=1))
    assert await _take(connection, worker_id) == []
    await finish(connection, run.lease, Succeeded())
    (run,) = await _take(connection, worker_id)
    assert run.lease.job_id == second


async def test_a_run_that_is_paused_between_two_tries_leaves_the_line_too(connection: Connection) -> None:
    """C10: otherwise the key would wait as long as the pause."""
    worker_id = await enlist(connection)
    first, second = await _limited(connection, 2, IN_ORDER)
    (run,) = await _take(connection, worker_id)
    await finish(connection, run.lease, FLAKY)
    assert await _states(connection, [first, second]) == ["waiting", "parked"]
    assert await _held(connection, "acme") == 1
    await one_time_jobs.pause(connection, Caller("test"), first, note=None, now=NOW)
    assert await _held(connection, "acme") == 0
    (run,) = await _take(connection, worker_id)
    assert run.lease.job_id == second
    await one_time_jobs.resume(connection, TESTER, first, now=after(hours=1))
    assert await _take(connection, worker_id, now=after(hours=1)) == []
    await finish(connection, run.lease, Succeeded(), now=after(hours=1))
    (run,) = await _take(connection, worker_id, now=after(hours=1))
    assert run.lease.job_id == first


async def _held_back_between_two_tries(connection: Connection) -> tuple[UUID, UUID, UUID]:
    """A worker, and two jobs of an ordered key with a rate: the first has failed once, and its rate holds back the retry."""
    worker_id = await enlist(connection)
    limit = {"key": "acme", "ordered": True, "count": 1, "per": "1m"}
    first, second = await _limited(connection, 2, limit, retry=QUICK)
    (run,) = await _take(connection, worker_id)
    await finish(connection, run.lease, FLAKY)
    now = after(seconds=5)
    await runs.promote(connection, Scan(ALL, 100), now=now)
    assert await _take(connection, worker_id, now=now) == []
    assert await _states(connection, [first, second]) == ["parked", "parked"]
    return worker_id, first, second


@pytest.mark.parametrize("stays_ordered", [True, False])
async def test_a_retry_that_its_rate_holds_back_is_released_again(connection: Connection, stays_ordered: bool) -> None:
    """C10, rule "look again every pass": it keeps the slot of its ordered key; once it waited for its own slot, for ever."""
    worker_id, first, second = await _held_back_between_two_tries(connection)
    if not stays_ordered:
        await limits.put(connection, TESTER, standing_limit("acme", running=1, count=1, per="1m"), now=after(seconds=5))
    (run,) = await _take(connection, worker_id, now=after(minutes=5))
    assert (run.lease.job_id, run.lease.attempt) == (first, 2)
    assert await _take(connection, worker_id, now=after(minutes=10)) == []  # the slot is taken
    await finish(connection, run.lease, Succeeded(), now=after(minutes=11))
    (run,) = await _take(connection, worker_id, now=after(minutes=12))
    assert run.lease.job_id == second


async def test_a_run_that_is_paused_while_its_rate_holds_it_back_leaves_the_line(connection: Connection) -> None:
    """C10: it releases its place as well as its slot."""
    worker_id, first, second = await _held_back_between_two_tries(connection)
    await one_time_jobs.pause(connection, Caller("test"), first, note=None, now=after(seconds=6))
    (run,) = await _take(connection, worker_id, now=after(minutes=5))
    assert run.lease.job_id == second
    await one_time_jobs.resume(connection, TESTER, first, now=after(minutes=6))
    assert await _take(connection, worker_id, now=after(minutes=10)) == []
    await finish(connection, run.lease, Succeeded(), now=after(minutes=11))
    (run,) = await _take(connection, worker_id, now=after(minutes=12))
    assert run.lease.job_id == first


async def test_two_claims_that_want_buckets_in_opposite_order_do_not_wait_for_each_other(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": a claim goes lane by lane, and keeps its locks."""
    worker_id = await enlist(connection)
    for key, priority in (("b", "critical"), ("a", "normal")):
        await submit(connection, limit={"key": key, "count": 10, "per": "1s"}, priority=priority)
    await parked_runs.release(connection, now=NOW)
    async with rival.transaction():
        await rival.fetch("SELECT FROM sexton.limits WHERE key = 'a' FOR UPDATE")
        async with asyncio.timeout(3):
            (taken,) = await claim(connection, worker_id)
        assert taken.lane == Lane.CRITICAL
    (taken,) = await _take(connection, worker_id)
    assert taken.lane == Lane.NORMAL


async def test_a_lowered_limit_does_not_wait_for_a_claim_that_waits_for_it(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": the claim has a slot and needs a token; the session that sets the limit has the bucket and
    deletes free slots."""
    worker_id = await enlist(connection)
    await submit(connection, limit={"key": "a", "running": 3, "count": 10, "per": "1s"})
    (taken,) = await _take(connection, worker_id)
    await finish(connection, taken.lease, Succeeded())
    async with rival.transaction():
        await rival.fetch("SELECT FROM sexton.slots WHERE key = 'a' FOR UPDATE")  # as a claim has it
        async with asyncio.timeout(3), connection.transaction():
            await limits.put(connection, TESTER, standing_limit("a", count=10, per="1s"), now=NOW)


async def test_a_tenant_runs_no_more_than_its_limit_and_others_use_the_rest(connection: Connection) -> None:
    """C9"""
    worker_id = await enlist(connection)
    await _set_tenant(connection, "acme", running_max=3)
    for tenant in ("acme", "zeta"):
        for _ in range(10):
            await submit(connection, tenant=tenant)
    taken = await claim(connection, worker_id, limit=8)
    assert sorted(run.tenant for run in taken) == ["acme"] * 3 + ["zeta"] * 5
    assert [run.tenant for run in await claim(connection, worker_id, limit=2)] == ["zeta"] * 2
    await finish(connection, next(run for run in taken if run.tenant == "acme").lease, Succeeded())
    assert sorted(run.tenant for run in await claim(connection, worker_id, limit=2)) == ["acme", "zeta"]
    assert await _held(connection, "@tenant:acme") == 3


async def test_two_claims_at_once_share_a_tenants_slots(database: Postgres) -> None:
    """C9"""
    async with database.transaction() as connection:
        worker_id = await enlist(connection)
        await _set_tenant(connection, "acme", running_max=3)
        for _ in range(8):
            await submit(connection, tenant="acme")
    async with database.transaction() as first, database.transaction() as second:
        one = await claim(first, worker_id, limit=2)
        await first.execute("COMMIT; BEGIN")
        other = await claim(second, worker_id, limit=4)
        assert (len(one), len(other)) == (2, 1)


async def test_a_queue_is_released_at_its_rate(connection: Connection) -> None:
    """C10"""
    worker_id = await enlist(connection)
    await _set_queue(connection, "default", release_rate=10.0, release_burst=2)
    for _ in range(20):
        await submit(connection)
    assert len(await claim(connection, worker_id)) == 2
    assert await claim(connection, worker_id) == []
    assert len(await claim(connection, worker_id, now=after(seconds=0.1))) == 1
    tended = await parked_runs.tend(connection, now=after(seconds=1))
    assert tended.queues == ["default"]
    assert tended.next_s == pytest.approx(0.1)
    assert len(await claim(connection, worker_id, now=after(seconds=10))) == 2


async def test_a_run_that_waited_long_rises_a_lane_if_its_queue_ages(connection: Connection) -> None:
    """C8: off unless the queue sets it."""
    worker_id = await enlist(connection, queues=("default", "plain"))
    old = await submit(connection, priority="low")
    elsewhere = await submit(connection, priority="low", queue="plain")
    await _set_queue(connection, "default", ageing_s=60.0)
    for minute in (1, 2):
        assert (await parked_runs.tend(connection, now=after(minutes=minute))).aged_count == 1
        assert (await parked_runs.tend(connection, now=after(minutes=minute, seconds=30))).aged_count == 0
    await submit(connection, priority="normal", now=after(minutes=2))
    first, *_ = await claim(connection, worker_id, limit=1, now=after(minutes=3))
    assert (first.lease.job_id, first.lane) == (old, 1)
    await finish(connection, first.lease, FLAKY, now=after(minutes=3))
    (row,) = await connection.fetch("SELECT lane, aged FROM sexton.runs WHERE id = $1", old)
    assert tuple(row) == (3, 0), "the next attempt begins in its own lane"
    (row,) = await connection.fetch("SELECT lane FROM sexton.runs WHERE id = $1", elsewhere)
    assert row["lane"] == 3
    (row,) = await connection.fetch("SELECT lane FROM sexton.executions WHERE job_id = $1", old)
    assert row["lane"] == 3


async def test_the_runs_of_every_lane_and_tenant_rise(connection: Connection) -> None:
    """C8: of this queue only."""
    await _set_queue(connection, "default", ageing_s=60.0)
    for tenant in ("a", "b", "c"):
        for priority in ("high", "low"):
            await submit(connection, tenant=tenant, priority=priority)
    await submit(connection, tenant="b", priority="low", queue="plain")
    assert (await parked_runs.tend(connection, now=after(minutes=1))).aged_count == 6
    rows = await connection.fetch("SELECT queue, lane, count(*) FROM sexton.runs GROUP BY queue, lane ORDER BY queue, lane")
    assert [tuple(row) for row in rows] == [("default", 0, 3), ("default", 2, 3), ("plain", 3, 1)]


async def test_a_key_may_come_from_the_payload(connection: Connection) -> None:
    await submit(connection, payload={"account": {"id": 7}}, limit={"key": "stripe:{payload.account.id}", "running": 1})
    (row,) = await connection.fetch("SELECT limit_key, running FROM sexton.runs JOIN sexton.limits ON key = limit_key")
    assert tuple(row) == ("stripe:7", 1)
    with pytest.raises(SextonError, match=r'/limit/key: the payload has no "account\.id"'), translated_errors():
        await submit(connection, payload={}, limit={"key": "stripe:{payload.account.id}", "running": 1})


async def test_the_numbers_of_a_job_only_create_a_limit(connection: Connection) -> None:
    await submit(connection, limit={"key": "stripe", "running": 2})
    await submit(connection, limit={"key": "stripe", "running": 9})
    (row,) = await connection.fetch("SELECT running FROM sexton.limits")
    assert row["running"] == 2


async def test_a_key_without_a_limit_is_rejected(connection: Connection) -> None:
    with pytest.raises(SextonError, match=r'/limit/key: there is no limit named "nobody"'), translated_errors():
        await submit(connection, limit="nobody")


async def test_a_tenant_with_too_many_waiting_is_rejected_until_some_have_started(connection: Connection) -> None:
    """C9, F4"""
    worker_id = await enlist(connection)
    await _set_tenant(connection, "acme", waiting_max=3)
    for _ in range(3):
        await submit(connection, tenant="acme")
    with pytest.raises(LimitExceeded, match=r'"acme" has 3 runs waiting, and may have 3') as refused, translated_errors():
        await submit(connection, tenant="acme", now=after(seconds=2))
    assert refused.value.retry_after_s == 1
    await submit(connection, tenant="other", now=after(seconds=2))
    await claim(connection, worker_id, limit=2, now=after(seconds=2))
    await submit(connection, tenant="acme", now=after(seconds=4))


async def test_a_tenant_that_submits_too_fast_gets_the_time_of_its_next_try(connection: Connection) -> None:
    """C9, F4"""
    await _set_tenant(connection, "acme", submit_rate=2.0, submit_burst=4)
    for _ in range(4):
        await submit(connection, tenant="acme")
    with pytest.raises(LimitExceeded) as refused, translated_errors():
        await submit(connection, tenant="acme")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    await submit(connection, tenant="acme", now=after(seconds=0.5))


async def test_slots_without_a_run_are_found_and_freed(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await _limited(connection, 3)
    await _take(connection, worker_id)
    assert await parked_runs.mend(connection) == 0
    await connection.fetch("UPDATE sexton.slots SET run_id = gen_random_uuid() WHERE n = 1")  # by hand
    assert await parked_runs.mend(connection) == 1


async def test_a_slot_that_was_taken_since_the_first_look_is_not_mended(database: Postgres, rival: Conn) -> None:
    """C10, rule "lock, then decide": another session has freed it, and a claim has taken it since; its run is younger than the
    first look."""
    async with database.transaction() as connection:
        worker_id = await enlist(connection)
        await _limited(connection, 1)
        await parked_runs.release(connection, now=NOW)
        await connection.fetch("INSERT INTO sexton.slots (key, n, run_id) VALUES ('stripe', 1, gen_random_uuid())")  # by hand
    body = await rival.fetchval("SELECT pg_get_functiondef('sexton.mend_slots'::regproc)")
    first_look = "FROM slots s WHERE s.run_id IS NOT NULL"
    assert body.count(first_look) == 1
    waiting = body.replace(first_look, f"{first_look} AND pg_advisory_xact_lock_shared(4711) IS NOT NULL")
    await rival.execute(waiting.replace("mend_slots", "mend_slots_later"))

    async with database.transaction() as connection:
        await connection.fetch("SELECT pg_advisory_xact_lock(4711)")
        late = await blocked_task(connection, rival, rival.fetchval("SELECT sexton.mend_slots_later()"))
        async with database.transaction() as other:
            assert await parked_runs.mend(other) == 1
            assert len(await claim(other, worker_id)) == 1
    assert await late == 0
    async with database.transaction() as connection:
        assert await _held(connection) == 1


async def test_a_schedule_takes_its_jitter_timeout_and_limit_from_its_queue_and_task(connection: Connection) -> None:
    """B7, C10, C11: its own value comes first, then that of its queue, then of its tenant."""
    await _set_tenant(connection, "acme", jitter_s=30.0)
    await _set_queue(connection, "slow", jitter_s=60.0, timeout_s=300.0)
    for queue, given, jitter_s in (("default", None, 30.0), ("slow", None, 60.0), ("slow", {"max": 5.0}, 5.0)):
        rule: dict[str, Any] = {"every": 3600} | ({} if given is None else {"jitter": given})
        document = {"task": "a", "tenant": "acme", "queue": queue, "schedule": rule, "limit": STRIPE}
        (written,) = await recurring_jobs.submit(connection, TESTER, [document], now=NOW)
        (row,) = await connection.fetch(
            """SELECT (schedule->'jitter'->>'max')::float8 AS jitter_s, j.timeout_s, limit_key, due_at - fire_at AS spread
               FROM sexton.jobs_recurring j JOIN sexton.runs r ON r.job_id = j.id WHERE j.id = $1""",
            written.id,
        )
        assert (row["jitter_s"], row["limit_key"]) == (jitter_s, "stripe")
        assert timedelta(0) < row["spread"] <= timedelta(seconds=jitter_s)
        assert row["timeout_s"] == (300 if queue == "slow" else 30)


async def test_the_limit_of_a_schedule_is_made_at_the_moment_of_the_statement(connection: Connection) -> None:
    """C10: when it is written, and when it is edited."""
    made_at = {}
    for moment, key in ((NOW, "first"), (after(hours=1), "second")):
        document = {"task": "a", "name": "nightly", "schedule": {"every": 60}, "limit": {"key": key, "running": 1}}
        await recurring_jobs.submit(connection, TESTER, [document], now=moment)
        made_at[key] = moment
    rows = await connection.fetch("SELECT key, updated_at FROM sexton.limits")
    assert {row["key"]: row["updated_at"] for row in rows} == made_at


async def test_a_fire_that_waits_for_a_limit_is_live_for_overlap_and_taken_back_by_a_pause(connection: Connection) -> None:
    """C10, rule "lock, then decide"."""
    await submit(connection, limit=STRIPE | {"running": 1})
    (written,) = await recurring_jobs.submit(
        connection, TESTER, [{"task": "a", "schedule": {"every": 60}, "limit": {"key": "stripe"}}], now=NOW
    )
    due = await connection.fetch("SELECT id FROM sexton.runs WHERE job_id = $1 ORDER BY due_at", written.id)
    assert await schedules.admit(connection, [due[0]["id"]]) == ["default"]
    assert await _states(connection, [due[0]["id"]]) == ["parked"]
    (sibling, *_) = await schedules.competing_runs(connection, [written.id], now=NOW)
    assert sibling.is_live
    await recurring_jobs.pause(connection, TESTER, written.id, now=NOW)
    assert await _states(connection, [due[0]["id"]]) == [None]
