"""The claim decides: however many runs are ready, no more start than slots and tokens allow, and a run that did not start costs
nothing (C9, C10)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.domain.job import submission
from sexton.domain.limit import standing_limit
from sexton.domain.outcome import Succeeded
from sexton.errors import LimitExceeded
from sexton.operations import limits
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.sharing import parked_runs
from tests.callers import TESTER

from .support import NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from sexton.store.database import Connection

HOURLY = {"key": "mail", "count": 2, "per": "1h", "burst": 2}


async def let_through(connection: Connection, count: int, **options: Any) -> list[UUID]:
    """Ready, though their limit has no capacity for so many."""
    ids = [await submit(connection, now=NOW + timedelta(microseconds=n), **options) for n in range(count)]
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    return ids


async def counted(connection: Connection, state: str) -> int:
    (row,) = await connection.fetch("SELECT count(*) FROM sexton.runs WHERE state = $1", state)
    return int(row["count"])


async def tokens(connection: Connection, key: str) -> int:
    (row,) = await connection.fetch(
        "SELECT sexton.tokens(bucket_at, count / per_s, burst, $2) AS tokens FROM sexton.limits WHERE key = $1", key, NOW
    )
    return int(row["tokens"])


async def held(connection: Connection, key: str) -> list[int]:
    rows = await connection.fetch("SELECT n FROM sexton.slots WHERE key = $1 AND run_id IS NOT NULL ORDER BY n", key)
    return [row["n"] for row in rows]


async def test_ready_runs_beyond_their_limit_are_parked_by_the_claim(connection: Connection) -> None:
    worker_id = await enlist(connection)
    ids = await let_through(connection, 5, limit={"key": "stripe", "running": 2})
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == ids[:2]
    assert await counted(connection, "parked") == 3


@pytest.mark.parametrize("ended", [[0, 1], [1, 2], [0, 4], [3, 4]], ids=str)
async def test_a_lowered_limit_is_kept_though_more_are_ready_than_it_allows(connection: Connection, ended: list[int]) -> None:
    """Five ran, three may, and some of the five end: whichever slots these had, no more than three run."""
    worker_id = await enlist(connection)
    await let_through(connection, 5, limit={"key": "stripe", "running": 5})
    running = await claim(connection, worker_id)
    await limits.put(connection, TESTER, standing_limit("stripe", running=3), now=NOW)
    await let_through(connection, 5, limit="stripe")
    assert await claim(connection, worker_id) == []
    for number, index in enumerate(ended):
        await finish(connection, running[index].lease, Succeeded())
        await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
        assert await claim(connection, worker_id) == []
        assert len(await held(connection, "stripe")) == 4 - number
    await finish(connection, running[2 if 2 not in ended else 3].lease, Succeeded())
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert len(await claim(connection, worker_id)) == 1
    assert len(await held(connection, "stripe")) == 3


async def test_ready_runs_beyond_their_rate_are_parked_by_the_claim(connection: Connection) -> None:
    worker_id = await enlist(connection)
    ids = await let_through(connection, 5, limit=HOURLY)
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == ids[:2]
    assert await counted(connection, "parked") == 3


async def test_a_run_that_its_rate_holds_back_releases_its_slot(connection: Connection) -> None:
    """Otherwise the slot would be lost until the janitor finds it."""
    worker_id = await enlist(connection)
    await let_through(connection, 4, limit={**HOURLY, "running": 3})
    assert len(await claim(connection, worker_id)) == 2
    assert len(await held(connection, "mail")) == 2


async def test_a_run_without_a_slot_spends_no_token(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await let_through(connection, 4, limit={"key": "mail", "running": 1, "count": 4, "per": "1h", "burst": 4})
    assert len(await claim(connection, worker_id)) == 1
    assert await tokens(connection, "mail") == 3


async def test_a_run_that_its_tenant_holds_back_spends_neither_slot_nor_token(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await connection.fetch("INSERT INTO sexton.tenants (name, updated_at, running_max) VALUES ('acme', now(), 2)")
    limit = {"key": "mail", "running": 4, "count": 4, "per": "1h", "burst": 4}
    ids = await let_through(connection, 1, limit=limit, tenant="acme")
    (first,) = await claim(connection, worker_id)
    # The tenant had a free slot when the claim picked the run, and has none when it takes it.
    await let_through(connection, 2, limit="mail", tenant="acme")
    await connection.fetch("INSERT INTO sexton.slots (key, n, run_id) VALUES ('@tenant:acme', 2, NULL) ON CONFLICT DO NOTHING")
    (second,) = await claim(connection, worker_id)
    assert (first.lease.job_id, second.tenant) == (ids[0], "acme")
    assert await claim(connection, worker_id) == []
    assert len(await held(connection, "mail")) == 2
    assert await tokens(connection, "mail") == 2


async def test_no_more_are_released_than_the_limit_has_capacity(connection: Connection) -> None:
    """However many passes there are, and though some were released before."""
    worker_id = await enlist(connection)
    await submit(connection, limit={"key": "stripe", "running": 3})
    assert await counted(connection, "ready") == 0
    await parked_runs.release(connection, now=NOW)
    assert await counted(connection, "ready") == 1
    for _ in range(5):
        await submit(connection, limit="stripe")
    for _ in range(3):
        await parked_runs.release(connection, now=NOW)
        assert await counted(connection, "ready") == 3
    assert len(await claim(connection, worker_id, limit=2)) == 2
    for _ in range(3):
        await parked_runs.release(connection, now=NOW)
        assert await counted(connection, "ready") == 1


async def test_tenants_share_the_capacity_of_one_pass(connection: Connection) -> None:
    """C9: the first tenant by name does not get all of it."""
    for tenant in ("big", "small"):
        for _ in range(6):
            await submit(connection, tenant=tenant, limit={"key": "stripe", "running": 4})
    await parked_runs.release(connection, now=NOW)
    rows = await connection.fetch("SELECT tenant, count(*) FROM sexton.runs WHERE state = 'ready' GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [("big", 2), ("small", 2)]


async def test_a_bucket_that_was_full_for_long_has_no_more_than_its_burst(connection: Connection) -> None:
    worker_id = await enlist(connection)
    await let_through(connection, 1, limit=HOURLY)
    assert len(await claim(connection, worker_id)) == 1
    week = after(days=7)
    for _ in range(2):
        await submit(connection, limit="mail", now=week)
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert len(await claim(connection, worker_id, limit=1, now=week)) == 1
    for _ in range(3):
        await submit(connection, limit="mail", now=week)
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert len(await claim(connection, worker_id, now=week)) == 1


async def test_of_jobs_in_one_call_the_first_sets_the_numbers_of_a_new_limit(connection: Connection) -> None:
    """By its place in the call, not by chance: a plan made on newer statistics chose another one."""
    for key, order in (("a", (5, 2, 9)), ("b", (2, 9, 5))):
        given = [submission("a", {}, limit={"key": key, "running": running}) for running in order]
        await submit_many(connection, [submission("a", {}, limit=key), *given])
        (row,) = await connection.fetch("SELECT running FROM sexton.limits WHERE key = $1", key)
        assert row["running"] == order[0]


@pytest.mark.parametrize("setting", ["waiting_max = 1", "submit_rate = 0.001, submit_burst = 1"])
async def test_a_repeated_submission_is_not_counted_against_its_tenant(connection: Connection, setting: str) -> None:
    """A caller that repeats it after a lost reply gets its job, not a rejection."""
    await connection.fetch("INSERT INTO sexton.tenants (name, updated_at) VALUES ('acme', now())")
    await connection.fetch(f"UPDATE sexton.tenants SET {setting}")
    job_id = await submit(connection, tenant="acme", key="k")
    for _ in range(3):
        assert await submit(connection, tenant="acme", key="k") == job_id
    with pytest.raises(LimitExceeded), translated_errors():
        await submit(connection, tenant="acme")
