"""Claims: which worker gets which runs, in which order, and never twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Lost, Released, Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.store.fleet import workers
from sexton.store.work import runs
from tests.store.support import (
    FLAKY,
    GRACE_S,
    NOW,
    after,
    claim,
    enlist,
    finish,
    plain,
    run_row,
    status,
    submit,
    submit_many,
)

if TYPE_CHECKING:
    from uuid import UUID

    from sexton.domain.job import Priority
    from tests.store.support import Conn


async def _claimed_ids(connection: Conn, worker_id: UUID, **options: object) -> list[UUID]:
    return [one.lease.job_id for one in await claim(connection, worker_id, **options)]  # type: ignore[arg-type]


async def test_a_claim_leases_the_run_to_one_worker(connection: Conn) -> None:
    """B1: state, worker, token, attempt and the time at which the sweeper ends it."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, timeout="30s")
    (claimed,) = await claim(connection, worker_id, now=after(seconds=5))
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["state"], row["worker_id"], row["token"], row["attempt"]) == ("running", worker_id, 1, 1)
    assert (row["claimed_at"], row["must_end_at"]) == (after(seconds=5), after(seconds=35 + GRACE_S))
    lease = claimed.lease
    assert (lease.run_id, lease.worker_id, lease.token, lease.attempt, lease.lost_count) == (row["id"], worker_id, 1, 1, 0)
    assert await status(connection, job_id) == "running"
    assert await claim(connection, await enlist(connection)) == []


async def test_lanes_come_in_strict_order_then_due_time(connection: Conn) -> None:
    """C8: an urgent job of now before an ordinary one of an hour ago."""
    worker_id = await enlist(connection)
    lanes: list[Priority] = ["low", "normal", "critical", "high"]
    by_lane = {}
    for lane in lanes:
        older = await submit(connection, priority=lane, now=after(seconds=-10))
        newer = await submit(connection, priority=lane)
        by_lane[lane] = [older, newer]
    expected = [job_id for lane in ("critical", "high", "normal", "low") for job_id in by_lane[lane]]
    assert await _claimed_ids(connection, worker_id) == expected


async def test_lanes_are_strict_across_queues(connection: Conn) -> None:
    """C8, C11: a worker of two queues takes the more urgent of both first."""
    worker_id = await enlist(connection)
    low = await submit(connection, queue="x", priority="low", now=after(seconds=-60))
    high = await submit(connection, queue="y", priority="high")
    assert await _claimed_ids(connection, worker_id, queues=["x", "y"], limit=1) == [high]
    assert await _claimed_ids(connection, worker_id, queues=["x", "y"], limit=1) == [low]


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 10])
async def test_a_claim_takes_no_more_than_asked_over_all_queues(connection: Conn, limit: int) -> None:
    """C1: back-pressure; runs beyond the limit stay ready and unlocked."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {}, queue=f"q{n % 3}") for n in range(9)])
    queues = ["q0", "q1", "q2"]
    assert len(await claim(connection, worker_id, queues=queues, limit=limit)) == min(limit, 9)
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs WHERE state = 'ready'") == 9 - min(limit, 9)
    assert len(await claim(connection, worker_id, queues=queues)) == 9 - min(limit, 9)


async def test_a_queue_named_twice_is_claimed_once(connection: Conn) -> None:
    """B1, C11: a configuration error causes no double claim."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {})] * 4)
    assert await _claimed_ids(connection, worker_id, queues=["default", "default"]) == ids


async def test_only_queues_of_the_worker_are_claimed(connection: Conn) -> None:
    """C11."""
    worker_id = await enlist(connection)
    await submit(connection, queue="other")
    mine = await submit(connection, queue="mine")
    assert await _claimed_ids(connection, worker_id, queues=["mine"]) == [mine]
    assert await _claimed_ids(connection, worker_id, queues=[]) == []


async def test_only_tasks_that_the_worker_knows_are_claimed(connection: Conn) -> None:
    """Rule "claim only known tasks": during a rolling deploy unknown tasks wait, and do not delay others."""
    worker_id = await enlist(connection)
    unknown = await submit(connection, task="new", priority="critical")
    known = await submit(connection, task="a")
    assert await _claimed_ids(connection, worker_id, tasks=["a"], limit=1) == [known]
    assert await _claimed_ids(connection, worker_id, tasks=["a"]) == []
    assert await _claimed_ids(connection, worker_id, tasks=["a", "new"]) == [unknown]


async def test_waiting_runs_are_not_claimed_before_they_are_promoted(connection: Conn) -> None:
    """B1: a due time is not enough; the promotion applies the policies."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, delay="1s")
    assert await claim(connection, worker_id, now=after(hours=1)) == []
    promoted = await runs.promote(connection, Scan(ALL, 10), now=after(seconds=1))
    assert (promoted.promoted_count, promoted.queues, promoted.next_due_s) == (1, ["default"], None)
    assert await _claimed_ids(connection, worker_id, now=after(seconds=1)) == [job_id]


async def test_a_locked_run_is_skipped_not_awaited(connection: Conn, rival: Conn) -> None:
    """B1: SKIP LOCKED; the second worker takes the next one at once."""
    one, other = await enlist(connection), await enlist(connection)
    first, second = await submit_many(connection, [submission("a", {})] * 2)
    await rival.execute("SET lock_timeout = '100ms'")
    async with connection.transaction():
        assert await _claimed_ids(connection, one, limit=1) == [first]
        assert await _claimed_ids(rival, other) == [second]
        assert await _claimed_ids(rival, other) == []
    assert await _claimed_ids(rival, other) == []


async def test_a_claim_that_rolls_back_gives_everything_back(connection: Conn) -> None:
    """B1."""
    worker_id = await enlist(connection)
    await submit(connection)
    transaction = connection.transaction()
    await transaction.start()
    (first,) = await claim(connection, worker_id)
    await transaction.rollback()
    (second,) = await claim(connection, worker_id)
    assert (first.lease.token, second.lease.token) == (1, 1)


async def test_many_claimers_at_once_share_without_overlap(database_url: str, connection: Conn) -> None:
    """B1, F6: every run is claimed exactly once."""
    ids = await submit_many(connection, [submission("a", {"n": n}) for n in range(600)])
    others = [await asyncpg.connect(database_url) for _ in range(6)]

    async def drain(one: Conn) -> list[UUID]:
        worker_id = await enlist(one)
        mine: list[UUID] = []
        while claimed := await claim(one, worker_id, limit=7):
            mine += [got.lease.job_id for got in claimed]
        return mine

    taken = await asyncio.gather(*(drain(one) for one in others))
    for one in others:
        await one.close()
    assert Counter(job_id for mine in taken for job_id in mine) == Counter(ids)
    assert sum(bool(mine) for mine in taken) > 1


async def test_a_worker_declared_lost_claims_nothing(connection: Conn) -> None:
    """C4: a worker that was declared lost stays lost."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    assert await workers.declare_lost(connection, {worker_id: 0}, now=NOW) == [worker_id]
    assert await claim(connection, worker_id) == []
    assert await claim(connection, uuid4()) == [], "and neither does one that never enlisted"
    assert await _claimed_ids(connection, await enlist(connection)) == [job_id]


async def test_a_latest_start_is_exact_to_the_microsecond(connection: Conn) -> None:
    """C3: `start_within` refuses a start that is too late."""
    worker_id = await enlist(connection)
    await submit(connection, start_within="10s")
    assert await claim(connection, worker_id, now=after(seconds=10.000001)) == []
    assert len(await claim(connection, worker_id, now=after(seconds=10))) == 1


@pytest.mark.parametrize(
    "outcome", [FLAKY, Lost("gone"), Snoozed(1.0), Snoozed(0.0)], ids=lambda outcome: type(outcome).__name__
)
async def test_a_latest_start_binds_the_first_start_only(connection: Conn, outcome: object) -> None:
    """C3: a run that has started in time may start later in a retry, after a loss or after a snooze."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, start_within="10s", retry=Retry.after("1s"))
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, outcome, started_s=0.0, took_s=1.0)  # type: ignore[arg-type]
    much_later = after(hours=1)
    await runs.promote(connection, Scan(ALL, 10), now=much_later)
    assert await runs.expired(connection, limit=10, now=much_later) == []
    assert await _claimed_ids(connection, worker_id, now=much_later) == [job_id]


async def test_a_run_handed_back_before_it_started_keeps_its_latest_start(connection: Conn) -> None:
    """C3, C12: a hand-back is not a start."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, start_within="10s")
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Released("drain"))
    assert await claim(connection, worker_id, now=after(seconds=11)) == []
    (overdue,) = await runs.expired(connection, limit=10, now=after(seconds=11))
    assert overdue.lease.job_id == job_id


async def test_nothing_starts_at_or_after_its_deadline(connection: Conn) -> None:
    """C3: the deadline bounds all attempts together, and the time at which the sweeper ends them."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, deadline="20s", timeout="1h")
    assert await claim(connection, worker_id, now=after(seconds=20)) == []
    (claimed,) = await claim(connection, worker_id, now=after(seconds=15))
    assert claimed.lease.deadline_left_s == pytest.approx(5)
    row = await run_row(connection, job_id)
    assert row is not None
    assert row["must_end_at"] == after(seconds=20 + GRACE_S)


async def test_at_most_once_runs_are_left_out_on_request(connection: Conn) -> None:
    """C6, rule "bounded prefetch": prefetched runs never include them."""
    worker_id = await enlist(connection)
    once = await submit(connection, delivery="at_most_once")
    normal = await submit(connection)
    assert await _claimed_ids(connection, worker_id, at_most_once=False) == [normal]
    (claimed,) = await claim(connection, worker_id, at_most_once=True)
    assert (claimed.lease.job_id, claimed.lease.at_most_once) == (once, True)


async def test_the_token_grows_with_every_claim_and_is_never_reset(connection: Conn) -> None:
    """C4: the fence; attempts are counted separately."""
    worker_id = await enlist(connection)
    await submit(connection, retry=Retry.immediate(max_attempts=9), max_lost=9)
    seen = []
    for outcome in (Released("drain"), Snoozed(0), Lost("gone"), FLAKY, FLAKY, Released("drain")):
        (claimed,) = await claim(connection, worker_id)
        seen.append((claimed.lease.token, claimed.lease.attempt, claimed.lease.lost_count))
        await finish(connection, claimed.lease, outcome)
    assert seen == [(1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 1), (5, 2, 1), (6, 3, 1)]


async def test_everything_that_a_handler_needs_is_part_of_the_claim(connection: Conn) -> None:
    """C6, E3: payload, policy, key, trace, name and times, in the same round trip."""
    worker_id = await enlist(connection, queues=["mail"])
    retry = Retry.after("1s", "2s")
    await submit(
        connection,
        payload={"n": [1, None]},
        key="k",
        trace="t",
        name="n",
        tenant="acme",
        queue="mail",
        priority="high",
        retry=retry,
        max_lost=8,
    )
    (claimed,) = await claim(connection, worker_id, queues=["mail"], now=after(seconds=1))
    assert plain(claimed.payload_json) == {"n": [1, None]}
    assert (claimed.lease.policy.retry, claimed.lease.policy.max_lost) == (retry, 8)
    found = (claimed.idempotency_key, claimed.trace, claimed.name, claimed.tenant, claimed.queue, claimed.lane, claimed.task)
    assert found == ("k", "t", "n", "acme", "mail", 1, "a")
    assert (claimed.fire_at, claimed.due_at, claimed.claimed_at) == (NOW, NOW, after(seconds=1))
    assert (claimed.timeout_s, claimed.job_version, claimed.completed_by) == (30.0, 1, None)


@pytest.mark.made_up_rows
async def test_a_run_whose_definition_is_gone_is_claimed_without_payload(connection: Conn) -> None:
    """C7: so that the worker can bury it; otherwise it would block the queue."""
    worker_id = await enlist(connection)
    await submit(connection)
    await connection.execute("DELETE FROM sexton.jobs")
    (claimed,) = await claim(connection, worker_id)
    assert (claimed.payload_json, claimed.lease.policy_json) == (None, None)


@pytest.mark.made_up_rows
async def test_a_completed_key_names_the_execution_that_completed_it(connection: Conn) -> None:
    """C6: the completion record is checked before the handler starts."""
    worker_id = await enlist(connection)
    await submit(connection, key="k")
    done_by = uuid4()
    await connection.execute("UPDATE sexton.idempotency_keys SET completed_at = $1, execution_id = $2", NOW, done_by)
    (claimed,) = await claim(connection, worker_id)
    assert claimed.completed_by == done_by


@pytest.mark.made_up_rows
async def test_the_key_of_another_tenant_completes_nothing(connection: Conn) -> None:
    """C6, C9."""
    worker_id = await enlist(connection)
    await submit(connection, key="k", tenant="x")
    await submit(connection, key="k", tenant="y", delay="1h")
    await connection.execute(
        "UPDATE sexton.idempotency_keys SET completed_at = $1, execution_id = $2 WHERE tenant = 'y'", NOW, uuid4()
    )
    (claimed,) = await claim(connection, worker_id)
    assert claimed.completed_by is None


async def test_a_lost_run_keeps_its_place_in_the_queue(connection: Conn) -> None:
    """C4, C12: a hand-back and a loss do not move a run to the end of the queue."""
    worker_id = await enlist(connection)
    first = await submit(connection, now=after(seconds=-5))
    (claimed,) = await claim(connection, worker_id)
    second = await submit(connection)
    await finish(connection, claimed.lease, Released("drain"), now=after(seconds=5))
    assert await _claimed_ids(connection, worker_id, now=after(seconds=5)) == [first, second]


# Promotion.


async def test_promotion_takes_only_what_is_due_in_its_partitions_up_to_its_limit(connection: Conn) -> None:
    """B1, B2: earliest first."""
    ids = await submit_many(connection, [msgspec.structs.replace(submission("a", {}), delay_s=float(n)) for n in range(1, 101)])
    rows = await connection.fetch("SELECT job_id, partition FROM sexton.runs")
    partition_of = {row["job_id"]: row["partition"] for row in rows}
    assert all(partition_of[job_id] == job_id.int & 63 for job_id in ids)
    due = [job_id for job_id in ids[:50] if partition_of[job_id] < 32]
    promoted = await runs.promote(connection, Scan(range(32), 5), now=after(seconds=50))
    assert promoted.promoted_count == 5
    ready = await connection.fetch("SELECT job_id FROM sexton.runs WHERE state = 'ready' ORDER BY due_at")
    assert [row["job_id"] for row in ready] == due[:5]
    rest = await runs.promote(connection, Scan(range(32), 1000), now=after(seconds=50))
    assert rest.promoted_count == len(due) - 5
    expected_next = next(n for n, job_id in enumerate(ids[50:], 51) if partition_of[job_id] < 32)
    assert rest.next_due_s == pytest.approx(expected_next - 50)


async def test_a_helper_promotes_only_what_is_long_overdue(connection: Conn) -> None:
    """Rule "any node does overdue work": any process may promote runs that are more than two seconds overdue, in any
    partition."""
    await submit(connection, delay="10s")
    for elapsed_s, count in ((11.9, 0), (12.0, 1)):
        promoted = await runs.promote(connection, Scan(ALL, 10, 2.0), now=after(seconds=elapsed_s))
        assert promoted.promoted_count == count


async def test_two_promoters_at_once_promote_each_run_once(connection: Conn, rival: Conn) -> None:
    """B1, B2: correctness never depends on leadership; the second skips what the first holds."""
    await submit_many(connection, [submission("a", {}, delay="1s")] * 10)
    await rival.execute("SET lock_timeout = '100ms'")
    async with connection.transaction():
        first = await runs.promote(connection, Scan(ALL, 6), now=after(seconds=1))
        second = await runs.promote(rival, Scan(ALL, 100), now=after(seconds=1))
    assert (first.promoted_count, second.promoted_count) == (6, 4)


async def test_a_completed_job_is_never_claimed_again(connection: Conn) -> None:
    """B1."""
    worker_id = await enlist(connection)
    await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Succeeded())
    assert await claim(connection, worker_id, now=after(days=1)) == []
