"""Group commit: many submissions, few transactions, each answered when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from sexton.api import grouping
from sexton.api.grouping import Grouping
from sexton.api.problems import Refused
from sexton.clock import SystemClock
from sexton.domain.job import Submission, submission
from sexton.errors import DatabaseUnavailable, KeyReused
from sexton.store.database import Connection, Postgres
from tests.api.support import Api, problem


class Counted:
    """A database that counts transactions, and may lose the connection before or after a commit."""

    def __init__(self, real: Postgres) -> None:
        self._real = real
        self.count = 0
        self.lost_after_commit = False

    def connection(self) -> Any:
        return self._real.connection()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        self.count += 1
        async with self._real.transaction() as connection:
            yield connection
        if self.lost_after_commit:
            raise DatabaseUnavailable("gone")


def job(**options: Any) -> Submission:
    return submission("a", {}, **options)


async def rows(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM sexton.jobs"))


async def until_waiting(connection: asyncpg.Connection[Any]) -> None:
    """Until a statement of ours waits for a lock."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'sexton.runs'::regclass"
    while not await connection.fetchval(query):  # noqa: ASYNC110  (nobody tells us)
        await asyncio.sleep(0.01)


async def test_many_submissions_at_once_share_few_transactions(database: Postgres) -> None:
    """A1."""
    counted = Counted(database)
    group = Grouping(counted, SystemClock(), notify=True)
    stored = await asyncio.gather(*(group.submit(job(name=str(n))) for n in range(200)))
    assert [one.job.name for one in stored] == [str(n) for n in range(200)]
    assert all(one.created for one in stored)
    assert counted.count <= 3


async def test_nobody_is_answered_before_the_commit(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """A1: while the transaction cannot end, no answer comes, and nobody sees the job."""
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        requests = [asyncio.create_task(api.submit()) for _ in range(20)]
        await until_waiting(connection)
        assert await rows(connection) == 0
        assert not any(request.done() for request in requests)
    answers = await asyncio.gather(*requests)
    assert len({answer["id"] for answer in answers}) == await rows(connection) == 20


async def test_whoever_leaves_before_their_turn_has_submitted_nothing(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1: and one who leaves while the transaction runs harms nobody."""
    group = Grouping(database, SystemClock(), notify=True)
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


async def test_one_bad_job_hurts_nobody_else(api: Api) -> None:
    """A1, A10: a key that is refused by the database fails alone."""
    await api.submit(handler="first", idempotency_key="taken")
    bodies: list[dict[str, Any]] = [{"handler": "a", "payload": n} for n in range(20)]
    bodies[7] = {"handler": "other", "idempotency_key": "taken"}
    responses = await asyncio.gather(*(api.http.post("/v1/jobs", json=body) for body in bodies))
    problem(responses[7], 422, "idempotency_key_reused", "/idempotency_key")
    assert [response.status_code for n, response in enumerate(responses) if n != 7] == [201] * 19
    assert await api.count() == 20


async def test_equal_keys_in_one_group_are_one_job(database: Postgres) -> None:
    """A10."""
    group = Grouping(database, SystemClock(), notify=True)
    stored = await asyncio.gather(*(group.submit(job(key="k")) for _ in range(10)))
    assert len({one.job.id for one in stored}) == 1
    assert [one.created for one in stored].count(True) == 1
    with pytest.raises(KeyReused):
        await group.submit(job(key="k", queue="other"))


async def test_a_key_that_outlives_its_job_is_a_conflict(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """A10: history is dropped after 90 days; a key may be asked to live longer."""
    await api.submit(idempotency_key="k", idempotency_ttl="365d")
    await connection.execute("DELETE FROM sexton.runs")
    await connection.execute("DELETE FROM sexton.jobs")
    bodies: list[dict[str, Any]] = [{"handler": "a"}, {"handler": "a", "idempotency_key": "k", "idempotency_ttl": "365d"}]
    other, forgotten = await asyncio.gather(*(api.http.post("/v1/jobs", json=body) for body in bodies))
    assert other.status_code == 201
    problem(forgotten, 409, "conflict", "/idempotency_key")


async def test_a_lost_reply_is_told_and_the_next_group_goes_on(database: Postgres) -> None:
    counted = Counted(database)
    group = Grouping(counted, SystemClock(), notify=True)
    counted.lost_after_commit = True
    with pytest.raises(DatabaseUnavailable):
        await group.submit(job(key="k"))
    counted.lost_after_commit = False
    assert not (await group.submit(job(key="k"))).created


async def test_too_many_waiting_are_turned_away(
    database: Postgres, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "WAITING_LIMIT", 5)
    group = Grouping(database, SystemClock(), notify=True)
    async with connection.transaction():
        await connection.execute("LOCK TABLE sexton.runs IN SHARE MODE")
        first = asyncio.create_task(group.submit(job()))
        await until_waiting(connection)
        waiting = [asyncio.create_task(group.submit(job())) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="wait already") as refused:
            await group.submit(job())
    assert (refused.value.code, refused.value.headers) == ("overloaded", {"Retry-After": "1"})
    assert len(await asyncio.gather(first, *waiting)) == 6


async def test_closing_waits_for_what_was_taken(database: Postgres, connection: asyncpg.Connection[Any]) -> None:
    group = Grouping(database, SystemClock(), notify=True)
    requests = [asyncio.create_task(group.submit(job())) for _ in range(3)]
    await asyncio.sleep(0)
    await group.close()
    assert await rows(connection) == 3
    assert len(await asyncio.gather(*requests)) == 3
