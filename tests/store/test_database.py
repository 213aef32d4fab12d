"""The connection to PostgreSQL: transactions end completely, errors say what to do, directly and through a pooler."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import Contention, DatabaseRefused, DatabaseUnavailable, DataRefused, KeyReused
from sexton.store.database import SHARED, Postgres, is_direct
from sexton.store.fleet import workers
from sexton.store.work import jobs, runs
from tests.store.support import NOW, claim, enlist, finish, status, submit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.store.support import Conn


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(pooled_url)
    yield database
    await database.close()


async def test_a_transaction_commits_or_rolls_back_as_a_whole(database: Postgres, connection: Conn) -> None:
    """A12."""

    async def stumble() -> None:
        async with database.transaction() as inside:
            await submit(inside)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stumble()
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 0
    async with database.transaction() as inside:
        await submit(inside)
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 1


async def test_a_cancelled_transaction_is_rolled_back_and_its_connection_is_reused(
    database: Postgres, connection: Conn
) -> None:
    """C12: a service that is stopped in the middle leaves nothing half done."""
    begun = asyncio.Event()

    async def work() -> None:
        async with database.transaction() as inside:
            await submit(inside)
            begun.set()
            await inside.fetch("SELECT pg_sleep(60)")

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 0
    for _ in range(5):
        async with database.transaction() as inside:
            await inside.fetch("SELECT 1")


async def test_an_ignored_error_does_not_count_as_a_commit(database: Postgres) -> None:
    """A12: PostgreSQL would answer COMMIT with a rollback and no error."""

    async def look_away() -> None:
        async with database.transaction() as inside:
            await submit(inside, key="k")
            with suppress(Exception):
                await submit(inside, key="k", payload={"other": 1})

    with pytest.raises(Contention, match="rolled back"):
        await look_away()


@pytest.mark.parametrize(
    ("query", "arguments", "expected"),
    [
        ("SELECT $1::uuid", ["no uuid"], DataRefused),
        ("SELECT $1::int", [2**40], DataRefused),
        ("SELECT $1::text", ["\ud800"], DataRefused),
        ("SELECT $1::text", ["\x00"], DataRefused),
        ("SELECT $1::jsonb", ['"\\u0000"'], DataRefused),
        ("SELECT $1::jsonb", ["{"], DataRefused),
        ("INSERT INTO sexton.endings VALUES ($1, $1, now(), 'vanished')", [uuid4()], DataRefused),
        ("SELECT pg_terminate_backend(pg_backend_pid())", [], DatabaseUnavailable),
        ("SELECT set_config('statement_timeout', '10ms', true), pg_sleep(0)", [], None),
    ],
)
async def test_errors_of_the_driver_become_sextons_errors(
    database: Postgres, query: str, arguments: list[Any], expected: Any
) -> None:
    """Rule "bisect bad batches", D4: bad data is bisected, an outage is waited for; neither may be taken for the other."""
    if expected is None:
        async with database.connection() as inside:
            await inside.fetch(query, *arguments)
        return
    with pytest.raises(expected):
        async with database.connection() as inside:
            await inside.fetch(query, *arguments)


async def test_errors_of_the_user_of_a_transaction_are_unchanged(database: Postgres, connection: Conn) -> None:
    """C6: a handler's FileNotFoundError inside ctx.transaction() is not an outage of the database."""

    async def fails_of_its_own() -> None:
        async with database.transaction() as session:
            await session.execute("CREATE TABLE public.half_done ()")
            raise FileNotFoundError("of the handler's own")

    with pytest.raises(FileNotFoundError):
        await fails_of_its_own()
    assert await connection.fetchval("SELECT to_regclass('public.half_done')") is None


async def test_a_deadlock_is_contention(database: Postgres) -> None:
    """Rule "lock in id order": nothing was changed, and trying again is safe."""
    async with database.transaction() as setup:
        ids = [await submit(setup), await submit(setup)]
    meet = asyncio.Barrier(2)

    async def lock(order: list[Any]) -> str:
        try:
            async with database.transaction() as inside:
                await inside.fetch("SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE", order[0])
                await meet.wait()
                await inside.fetch("SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE", order[1])
        except Contention:
            return "contention"
        return "fine"

    assert sorted(await asyncio.gather(lock(ids), lock(ids[::-1]))) == ["contention", "fine"]


async def test_an_unreachable_server_is_unavailable() -> None:
    """D4."""
    with pytest.raises(DatabaseUnavailable):
        await Postgres.open("postgresql://127.0.0.1:1/nothing")


async def test_after_a_lost_connection_no_other_open_one_is_used_again(database: Postgres) -> None:
    """D4: they may all lead nowhere, and each would cost the time until its statement times out."""

    async def pid(inside: Any) -> int:
        (row,) = await inside.fetch("SELECT pg_backend_pid() AS pid")
        return int(row["pid"])

    async with database.connection() as one, database.connection() as other:
        before = {await pid(one), await pid(other)}
    with pytest.raises(DatabaseUnavailable):
        async with database.connection() as one:
            await one.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
    async with database.connection() as one, database.connection() as other:
        assert before.isdisjoint({await pid(one), await pid(other)})


async def test_a_connection_that_breaks_while_it_is_closed_is_closed(database: Postgres) -> None:
    """D4: otherwise a task of the pool logs a traceback for each connection that the server has ended."""
    async with database.connection() as session:
        raw = session.raw._con
        raw._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)  # the message that ends the session cannot be sent
        await raw.close()
        assert raw.is_closed()


async def test_a_refused_statement_leaves_the_connections_open(database: Postgres) -> None:
    async with database.connection() as one:
        (before,) = await one.fetch("SELECT pg_backend_pid() AS pid")
    with pytest.raises(DatabaseRefused):
        async with database.connection() as one:
            await one.fetch("SELECT * FROM sexton.no_such_table")
    async with database.connection() as one:
        assert await one.fetch("SELECT pg_backend_pid() AS pid") == [before]


@pytest.mark.parametrize(
    "refused",
    [
        "DO $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$",
        "SET statement_timeout = 1; SELECT pg_sleep(60)",
    ],
    ids=["the disk is full", "it took too long"],
)
async def test_a_statement_that_cannot_be_executed_now_ends_no_session(database: Postgres, refused: str) -> None:
    """A heartbeat would lose the session that it announced, and every caller the other connections of the pool."""
    query = "SELECT pg_backend_pid() AS pid"
    async with database.connection() as one, database.connection() as other:
        before = [await one.fetch(query), await other.fetch(query)]
    with pytest.raises(DatabaseUnavailable):
        async with database.connection() as one:
            await one.execute(refused)
    async with database.connection() as one, database.connection() as other:
        await one.execute("RESET statement_timeout")
        await other.execute("RESET statement_timeout")
        after = [await one.fetch(query), await other.fetch(query)]
    assert sorted(after) == sorted(before)


async def test_a_direct_connection_and_a_pooler_are_distinguished_by_proof(database_url: str, pooled_url: str) -> None:
    """B10, rule "session state only on direct connections"."""
    assert await is_direct(database_url)
    assert not await is_direct(pooled_url)


async def test_settings_that_plans_and_locks_depend_on_are_set(database: Postgres) -> None:
    """Rule "lock in id order": lock and statement timeouts everywhere; generic plans without sequential scans."""
    async with database.connection() as inside:
        (row,) = await inside.fetch(
            """SELECT current_setting('lock_timeout') AS a, current_setting('statement_timeout') AS b,
                      current_setting('plan_cache_mode') AS c, current_setting('enable_seqscan') AS d,
                      current_setting('jit') AS e"""
        )
    assert tuple(row) == ("5s", "30s", "force_generic_plan", "off", "off")


async def test_a_pooled_transaction_has_its_timeouts(pooled: Postgres) -> None:
    """Rules "lock in id order" and "session state only on direct connections": set inside every transaction, because the
    session is shared."""
    async with pooled.connection() as inside:
        (row,) = await inside.fetch("SELECT current_setting('lock_timeout') AS a, current_setting('statement_timeout') AS b")
    assert tuple(row) == ("5s", "30s")


async def test_a_shared_pool_has_short_timeouts_and_its_own_pool_has_not(database_url: str, pooled_url: str) -> None:
    """Rule "a waiting caller leaves the group"."""
    names = ("lock_timeout", "sexton.submit_lock_timeout", "sexton.schedule_lock_timeout")
    query = "SELECT " + ", ".join(f"coalesce(current_setting('{name}', true), '') AS a{at}" for at, name in enumerate(names))
    for url in (database_url, pooled_url):
        shared = await Postgres.open(url, timeouts=SHARED)
        beside = await shared.beside(size=1)
        rows = []
        for opened in (shared.connection(), shared.transaction(patient=True), beside.connection()):
            async with opened as connection:
                rows.append(tuple((await connection.fetch(query))[0]))
        assert rows == [("250ms", "20ms", "20ms"), ("250ms", "", "20ms"), ("5s", "", "")]
        for pool in (shared, beside):
            await pool.close()


async def test_a_job_runs_through_a_pooler_from_submission_to_end(pooled: Postgres) -> None:
    """B10, rule "session state only on direct connections": more clients than server connections, each statement on any of
    them."""

    async def life(number: int) -> None:
        task = f"t{number}"
        async with pooled.connection() as inside:
            worker_id = await enlist(inside, tasks=[task])
        async with pooled.connection() as inside:
            job_id = await submit(inside, task=task, key=f"k{number}", unique=True)
        async with pooled.connection() as inside:
            (claimed,) = await claim(inside, worker_id, tasks=[task])
        async with pooled.connection() as inside:
            await workers.beat(inside, worker_id, running_count=1, draining=False, refused_count=0, now=NOW)
        async with pooled.connection() as inside:
            assert await finish(inside, claimed.lease, Succeeded(), key=f"k{number}") is not None
        async with pooled.transaction() as inside:
            assert await status(inside, job_id) == "completed"
            await runs.promote(inside, Scan(ALL, 10), now=NOW)

    await asyncio.gather(*(life(number) for number in range(8)))


async def test_a_failed_statement_through_a_pooler_leaves_no_transaction_open(pooled: Postgres) -> None:
    """Rule "session state only on direct connections"."""
    for _ in range(5):
        with pytest.raises(KeyReused):
            async with pooled.transaction() as inside:
                await jobs.submit(inside, [submission("a", {"n": n}, key="k") for n in (1, 2)], now=NOW)
    async with pooled.connection() as inside:
        assert await inside.fetch("SELECT 1 AS one")
