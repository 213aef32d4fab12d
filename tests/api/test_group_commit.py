"""Group commit: many submissions share a few transactions, and each is answered when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from sexton.api import group_commit
from sexton.api.answers.problems import Refused
from sexton.api.group_commit import GroupCommit
from sexton.api.lock_waiters import Stored
from sexton.clock import SystemClock
from sexton.domain.job import Submission, submission
from sexton.errors import DatabaseUnavailable, KeyReused, LimitExceeded
from sexton.store.database import Connection, Postgres
from tests.api.support import Api, problem


class Counted:
    """A database that counts round trips, each a separate transaction, and may lose the connection after a given one."""

    def __init__(self, real: Postgres) -> None:
        self._real = real
        self.count = 0
        self.lost_after: int | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        self.count += 1
        number = self.count
        async with self._real.connection() as connection:
            yield connection
        if number == self.lost_after:
            raise DatabaseUnavailable("gone")

    def transaction(self) -> Any:
        return self._real.transaction()


CUT = """SELECT pg_stat_clear_snapshot(); SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = 'sexton' AND pid <> pg_backend_pid()"""


def job(**options: Any) -> Submission:
    return submission("a", {}, **options)


async def rows(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM sexton.jobs"))


async def until_waiting(connection: asyncpg.Connection[Any]) -> None:
    """Waits until a statement of this server waits for a lock."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'sexton.runs'::regclass"
    while not await connection.fetchval(query):  # noqa: ASYNC110  (no notification for this)
        await asyncio.sleep(0.01)


async def test_many_submissions_at_once_share_few_transactions(database: Postgres) -> None:
    """A1."""
    counted = Counted(database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    stored = await asyncio.gather(*(group.submit(job(name=str(n))) for n in range(200)))
    assert [one.job.name for one in stored] == [str(n) for n in range(200)]
    assert all(one.created for one in stored)
    assert counted.count <= 3


async def test_one_submission_is_one_round_trip(database: Postgres) -> None:
    """A1: an idle API answers after one commit and no other statement."""
    counted = Counted(database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    assert (await group.submit(job())).created
    assert counted.count == 1


async def test_no_caller_is_answered_before_the_commit(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """A1: while the transaction cannot end, no answer is sent, and no other session sees the job."""
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        requests = [asyncio.create_task(api.submit()) for _ in range(20)]
        await until_waiting(connection)
        assert await rows(connection) == 0
        assert not any(request.done() for request in requests)
    answers = await asyncio.gather(*requests)
    assert len({answer["id"] for answer in answers}) == await rows(connection) == 20


async def test_a_caller_that_disconnects_before_its_group_has_submitted_nothing(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1: a caller that disconnects while the transaction runs does not affect the others."""
    group = GroupCommit(database, SystemClock(), notify=True)
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        first = asyncio.create_task(group.submit(job(name="under way")))
        await until_waiting(connection)
        waiting = [asyncio.create_task(group.submit(job(name=name))) for name in ("leaves", "stays")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        first.cancel()
        await asyncio.gather(first, waiting[0], return_exceptions=True)
    assert (await waiting[1]).created
    names = await connection.fetch("SELECT name FROM sexton.jobs ORDER BY name")
    assert [row["name"] for row in names] == ["stays", "under way"]


async def test_one_invalid_job_does_not_affect_the_others(api: Api) -> None:
    """A1, A10: only the job whose key the database rejects fails."""
    await api.submit(handler="first", idempotency_key="taken")
    bodies: list[dict[str, Any]] = [{"handler": "a", "payload": n} for n in range(20)]
    bodies[7] = {"handler": "other", "idempotency_key": "taken"}
    responses = await asyncio.gather(*(api.http.post("/v1/jobs", json=body) for body in bodies))
    problem(responses[7], 422, "idempotency_key_reused", "/idempotency_key")
    assert [response.status_code for n, response in enumerate(responses) if n != 7] == [201] * 19
    assert await api.count() == 20


async def test_equal_keys_in_one_group_are_one_job(database: Postgres) -> None:
    """A10."""
    group = GroupCommit(database, SystemClock(), notify=True)
    stored = await asyncio.gather(*(group.submit(job(key="k")) for _ in range(10)))
    assert len({one.job.id for one in stored}) == 1
    assert [one.created for one in stored].count(True) == 1
    with pytest.raises(KeyReused):
        await group.submit(job(key="k", queue="other"))


async def test_a_key_that_outlives_its_job_is_a_conflict(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """A10: history is dropped after 90 days; a key may have a longer retention."""
    await api.submit(idempotency_key="k", idempotency_ttl="365d")
    await connection.execute("DELETE FROM sexton.runs")
    await connection.execute("DELETE FROM sexton.jobs")
    bodies: list[dict[str, Any]] = [{"handler": "a"}, {"handler": "a", "idempotency_key": "k", "idempotency_ttl": "365d"}]
    other, forgotten = await asyncio.gather(*(api.http.post("/v1/jobs", json=body) for body in bodies))
    assert other.status_code == 201
    problem(forgotten, 409, "conflict", "/idempotency_key")


async def test_a_lost_reply_is_an_error_and_the_next_group_continues(database: Postgres) -> None:
    counted = Counted(database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    counted.lost_after = 1
    with pytest.raises(DatabaseUnavailable):
        await group.submit(job(key="k"))
    assert not (await group.submit(job(key="k"))).created


async def test_new_jobs_are_acknowledged_although_the_query_for_existing_ones_fails(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1, A10: that query runs after the commit, and concerns only callers that repeat a key."""
    counted = Counted(database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    first = await group.submit(job(key="k"))
    counted.lost_after = 3
    old, new = await asyncio.gather(group.submit(job(key="k")), group.submit(job(name="new")), return_exceptions=True)
    assert isinstance(old, DatabaseUnavailable)
    assert isinstance(new, Stored)
    assert new.created
    assert await rows(connection) == 2
    assert (await group.submit(job(key="k"))).job.id == first.job.id


async def test_a_connection_cut_inside_a_group_submits_nothing_and_every_caller_gets_an_error(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1: no caller gets an acknowledgement for a job that does not exist; the next group has a new connection."""
    group = GroupCommit(database, SystemClock(), notify=True)
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        requests = [asyncio.create_task(group.submit(job()))]
        for _ in range(2):  # a single submission, then a group of 20
            await until_waiting(connection)
            requests += [asyncio.create_task(group.submit(job())) for _ in range(20)]
            await asyncio.sleep(0)
            await connection.execute(CUT)
        answers = await asyncio.gather(*requests[:21], return_exceptions=True)
        assert {type(answer) for answer in answers} == {DatabaseUnavailable}
        assert await rows(connection) == 0
    assert len(await asyncio.gather(*requests[21:])) == await rows(connection) == 20


async def test_no_acknowledged_job_is_lost_when_connections_are_cut_at_any_moment(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1: at any moment, an acknowledged job exists, once."""
    acknowledged: list[str] = []
    refused = 0
    for cut in range(15):
        group = GroupCommit(database, SystemClock(), notify=True)
        requests = [asyncio.create_task(group.submit(job(name=f"{cut}-{n}"))) for n in range(20)]
        for _ in range(cut):  # a little later each time
            await connection.fetchval("SELECT 1")
        await connection.execute(CUT)
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, Stored):
                acknowledged.append(str(answer.job.name))
            else:
                assert isinstance(answer, DatabaseUnavailable), answer
                refused += 1
    stored = [row["name"] for row in await connection.fetch("SELECT name FROM sexton.jobs")]
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    assert len(acknowledged) + refused == 300


async def test_a_tenant_over_its_limit_does_not_divide_the_groups_of_others(api: Api) -> None:
    """C9: its jobs are rejected one by one; those of the others share groups again."""
    assert (await api.http.put("/v1/tenants/loud", json={"waiting_max": 2})).status_code == 200
    counted = Counted(api.database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    group._few = asyncio.Semaphore(1)  # with two at once, one may be decided by the cached numbers of its tenant
    loud = [group.submit(job(tenant="loud")) for _ in range(5)]
    quiet = [group.submit(job(tenant=f"quiet-{n}")) for n in range(50)]
    answers = await asyncio.gather(*loud, *quiet, return_exceptions=True)
    assert sum(isinstance(answer, Stored) for answer in answers[:5]) == 2
    assert sum(isinstance(answer, LimitExceeded) for answer in answers[:5]) == 3
    assert all(isinstance(answer, Stored) for answer in answers[5:])
    assert counted.count == 1 + 1 + 5


async def test_a_group_with_many_invalid_jobs_is_retried_a_bounded_number_of_times(database: Postgres) -> None:
    """A10: the error names one job at a time; after a few of them each job is submitted alone."""
    counted = Counted(database)
    group = GroupCommit(counted, SystemClock(), notify=True)
    await asyncio.gather(*(group.submit(job(key=f"k{n}")) for n in range(10)))
    counted.count = 0
    again = [group.submit(job(key=f"k{n}", queue="other")) for n in range(10)]
    answers = await asyncio.gather(*again, group.submit(job(name="good")), return_exceptions=True)
    assert all(isinstance(answer, KeyReused) for answer in answers[:10])
    assert isinstance(answers[10], Stored)
    assert counted.count == 4 + 11


async def test_too_many_waiting_callers_are_rejected(
    database: Postgres, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING_LIMIT", 5)
    group = GroupCommit(database, SystemClock(), notify=True)
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        first = asyncio.create_task(group.submit(job()))
        await until_waiting(connection)
        waiting = [asyncio.create_task(group.submit(job())) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="already waiting") as refused:
            await group.submit(job())
    assert (refused.value.code, refused.value.headers) == ("overloaded", {"Retry-After": "1"})
    assert len(await asyncio.gather(first, *waiting)) == 6


async def test_closing_waits_for_accepted_submissions(database: Postgres, connection: asyncpg.Connection[Any]) -> None:
    group = GroupCommit(database, SystemClock(), notify=True)
    requests = [asyncio.create_task(group.submit(job())) for _ in range(3)]
    await asyncio.sleep(0)
    await group.close()
    assert await rows(connection) == 3
    assert len(await asyncio.gather(*requests)) == 3
