"""A run has the options of its job, whether it was planned, run by hand, backfilled or replayed (A7, C4, C10, D4)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL
from sexton.domain.schedule.backfill import BackfillSpec
from sexton.operations import replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import backfill, recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.operations.versions import AtVersion
from sexton.store.sharing import parked_runs
from sexton.store.work import dead_letters
from tests.callers import TESTER
from tests.store.support import BROKEN, NOW, after, claim, enlist, finish, submit

if TYPE_CHECKING:
    from sexton.store.database import Postgres
    from tests.store.support import Conn

POLICY = {"deadline_s": 600, "lease_s": 45, "start_within_s": 30}
LIMIT = {"key": "account:{payload.n}", "running": 1}


def document(**fields: Any) -> dict[str, Any]:
    known = {"task": "a", "queue": "mail", "lane": 1, "tenant": "acme", "timeout_s": 7, "at_most_once": True}
    return {**known, "schedule": {"cron": "*/15 * * * *"}, "payload": {"n": 1}, "policy": POLICY, "limit": LIMIT, **fields}


async def written(connection: Conn, *, ago: timedelta = timedelta(), **fields: Any) -> UUID:
    async with connection.transaction():
        (one,) = await recurring_jobs.submit(connection, TESTER, [document(**fields)], now=NOW - ago)
    return one.id


async def fire(connection: Conn, job_id: UUID) -> None:
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=NOW)


async def the_run(connection: Conn, origin: str) -> dict[str, Any]:
    rows = await connection.fetch("SELECT * FROM sexton.runs WHERE origin = $1 ORDER BY fire_at LIMIT 1", origin)
    return dict(rows[0])


def of_its_job(run: dict[str, Any]) -> tuple[Any, ...]:
    names = ("queue", "lane", "tenant", "task", "timeout_s", "at_most_once", "lease_s", "limit_key", "job_version")
    return tuple(run[name] for name in names)


EXPECTED = ("mail", 1, "acme", "a", 7.0, True, 45.0, "account:1", 1)


async def test_a_planned_run(connection: Conn) -> None:
    await written(connection)
    run = await the_run(connection, "schedule")
    assert of_its_job(run) == EXPECTED
    assert run["start_by"] - run["due_at"] == timedelta(seconds=30)
    assert run["deadline_at"] - run["due_at"] == timedelta(seconds=600)


async def test_a_run_by_hand(connection: Conn) -> None:
    await fire(connection, await written(connection))
    run = await the_run(connection, "now")
    assert of_its_job(run) == EXPECTED
    assert (run["start_by"], run["deadline_at"]) == (after(seconds=30), after(seconds=600))


async def test_a_run_by_hand_is_under_the_limit_of_its_own_payload(connection: Conn) -> None:
    job_id = await written(connection)
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, payload=msgspec.Raw(b'{"n": 2}'), now=NOW)
    assert (await the_run(connection, "now"))["limit_key"] == "account:2"


async def test_a_backfilled_run(connection: Conn) -> None:
    """It waits for others, so neither its latest start nor its deadline counts from its due time."""
    job_id = await written(connection, ago=timedelta(hours=2))
    async with connection.transaction():
        await backfill.start(
            connection,
            TESTER,
            AtVersion(job_id),
            BackfillSpec(NOW - timedelta(days=1), fires="all"),
            monotonic=lambda: 0.0,
            now=NOW,
        )
    run = await the_run(connection, "backfill")
    assert of_its_job(run) == EXPECTED
    assert (run["start_by"], run["deadline_at"]) == (None, None)


async def test_a_one_time_run(connection: Conn) -> None:
    await submit(connection, payload={"n": 1}, limit=LIMIT, deadline=600, lease=45, start_within=30, delay=5)
    run = await the_run(connection, "now")
    assert (run["lease_s"], run["limit_key"]) == (45.0, "account:1")
    assert (run["start_by"], run["deadline_at"]) == (after(seconds=35), after(seconds=605))


async def replayed(database: Postgres, connection: Conn, **fields: Any) -> UUID:
    """The job whose run by hand failed permanently and is replayed an hour later."""
    job_id, worker_id = await written(connection, **fields), await enlist(connection, queues=["mail"])
    await fire(connection, job_id)
    await admit(database, SCHEDULER, ALL, limit=100, now=NOW)
    await parked_runs.release(connection, now=NOW)
    (claimed,) = await claim(connection, worker_id, queues=["mail"])
    await finish(connection, claimed.lease, BROKEN)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    async with connection.transaction():
        assert len(await replay.replay(connection, TESTER, [letter.id], now=after(hours=1))) == 1
    return job_id


async def test_a_replayed_run(database: Postgres, connection: Conn) -> None:
    """Its deadline counts from the replay. It is not missed again because it did not start in time before."""
    await replayed(database, connection)
    run = await the_run(connection, "replay")
    assert of_its_job(run) == EXPECTED
    assert (run["start_by"], run["deadline_at"]) == (None, after(hours=1, seconds=600))


async def test_a_replay_that_waits_for_its_limit_is_parked(connection: Conn) -> None:
    """Of a one-time job, which is ready at once without a limit."""
    worker_id = await enlist(connection)
    await submit(connection, payload={"n": 1}, limit=LIMIT)
    await parked_runs.release(connection, now=NOW)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, BROKEN)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    async with connection.transaction():
        await replay.replay(connection, TESTER, [letter.id], now=NOW)
    run = await the_run(connection, "replay")
    assert (run["state"], run["limit_key"]) == ("parked", "account:1")


async def test_an_edit_does_not_change_a_replay(database: Postgres, connection: Conn) -> None:
    """It repeats the failed version, with its limit and its queue."""
    job_id = await replayed(database, connection)
    before = await the_run(connection, "replay")
    changed = document(queue="slow", lane=3, timeout_s=99, at_most_once=False, payload={"n": 2}, policy={"lease_s": 9})
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), changed, now=after(hours=1))
    assert await the_run(connection, "replay") == before
    planned = await the_run(connection, "schedule")
    assert (planned["job_version"], planned["queue"], planned["limit_key"]) == (2, "slow", "account:2")


@pytest.mark.parametrize("policy", ["skip", "queue", "replace"])
async def test_no_fire_drops_a_waiting_replay(database: Postgres, connection: Conn, policy: str) -> None:
    """D4, B5: a person requested it, and its letter is gone."""
    fields = {"schedule": {"cron": "0 0 1 1 *"}, "recurrence": {"overlap": {"policy": policy}}, "policy": {}}
    job_id = await replayed(database, connection, at_most_once=False, **fields)
    worker_id = await enlist(connection, queues=["mail"])
    await fire(connection, job_id)
    await admit(database, SCHEDULER, ALL, limit=100, now=NOW)
    await parked_runs.release(connection, now=NOW)
    (first,) = await claim(connection, worker_id, queues=["mail"])
    assert first.lease.origin == "now"
    await admit(database, SCHEDULER, ALL, limit=100, now=after(hours=1))
    assert (await the_run(connection, "replay"))["state"] == "blocked"

    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, now=after(hours=1, seconds=1))
    await admit(database, SCHEDULER, ALL, limit=100, now=after(hours=1, seconds=1))
    assert (await the_run(connection, "replay"))["state"] == "blocked"
    await finish(connection, first.lease, Succeeded(), now=after(hours=1, seconds=2))
    await admit(database, SCHEDULER, ALL, limit=100, now=after(hours=1, seconds=2))
    assert (await the_run(connection, "replay"))["state"] in ("parked", "ready"), "it came first, so it goes first"
