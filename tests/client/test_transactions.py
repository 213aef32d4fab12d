"""Submission inside the caller's own transaction, with every supported driver (A12): it commits and rolls back with the
rest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from sexton import App, Context, InvalidSubmission, KeyBusy, KeyReused, Submitted, Task
from sexton.store.fleet import workers
from sexton.store.work import runs

BIG = [1e300] * 20_000  # 120 kB here; PostgreSQL stores each as a number of 301 digits

Call = Callable[[Any], Awaitable[Submitted] | Submitted]
InTransaction = Callable[[str, Call, bool], Awaitable[None]]


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with App(database_url) as app:
        yield app


@pytest.fixture
def send(app: App) -> Task[..., None]:
    @app.task
    def send(ctx: Context, user_id: int) -> None: ...

    return send


async def with_asyncpg(url: str, call: Call, commit: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await awaited(call(connection))
        except BaseException:
            await transaction.rollback()
            raise
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()


async def with_asyncpg_pool(url: str, call: Call, commit: bool) -> None:
    async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool, pool.acquire() as connection:
        await connection.execute("BEGIN")
        await awaited(call(connection))
        await connection.execute("COMMIT" if commit else "ROLLBACK")


async def with_psycopg(url: str, call: Call, commit: bool) -> None:
    with psycopg.connect(url) as connection:
        done(call(connection))
        if not commit:
            connection.rollback()


async def with_psycopg_async(url: str, call: Call, commit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await awaited(call(connection))
        if not commit:
            await connection.rollback()


async def with_sqlalchemy_connection(url: str, call: Call, commit: bool) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    try:
        with engine.connect() as connection:
            done(call(connection))
            (connection.commit if commit else connection.rollback)()
    finally:
        engine.dispose()


async def with_sqlalchemy_session(url: str, call: Call, commit: bool) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    try:
        with Session(engine) as session:
            done(call(session))
            (session.commit if commit else session.rollback)()
    finally:
        engine.dispose()


async def with_sqlalchemy_async(url: str, call: Call, commit: bool) -> None:
    engine = _async_engine(url)
    try:
        async with engine.connect() as connection:
            await awaited(call(connection))
            await (connection.commit() if commit else connection.rollback())
    finally:
        await engine.dispose()


async def with_sqlalchemy_async_session(url: str, call: Call, commit: bool) -> None:
    engine = _async_engine(url)
    from sqlalchemy.ext.asyncio import AsyncSession

    try:
        async with AsyncSession(engine) as session:
            await awaited(call(session))
            await (session.commit() if commit else session.rollback())
    finally:
        await engine.dispose()


def _async_engine(url: str) -> Any:
    pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet: pip install 'sqlalchemy[asyncio]'")
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url))


ASYNC: list[InTransaction] = [
    with_asyncpg,
    with_asyncpg_pool,
    with_psycopg_async,
    with_sqlalchemy_async,
    with_sqlalchemy_async_session,
]
SYNC: list[InTransaction] = [with_psycopg, with_sqlalchemy_connection, with_sqlalchemy_session]


@pytest.mark.parametrize("user", [*ASYNC, *SYNC])
async def test_a_committed_job_exists_and_is_claimable(
    database_url: str, connection: asyncpg.Connection[Any], send: Task[..., None], user: InTransaction
) -> None:
    """A12, A1."""
    seen: list[Submitted] = []

    def submit(own: Any) -> Any:
        if user in ASYNC:
            return keep(send.submit(user_id=42, connection=own), seen)
        seen.append(send.submit_sync(user_id=42, connection=own))
        return seen[0]

    await user(database_url, submit, True)
    (submitted,) = seen
    assert submitted.created
    assert isinstance(submitted.id, UUID)
    assert await claimable(connection) == [submitted.id]


@pytest.mark.parametrize("user", [*ASYNC, *SYNC])
async def test_a_rolled_back_job_does_not_exist(
    database_url: str, connection: asyncpg.Connection[Any], send: Task[..., None], user: InTransaction
) -> None:
    """A12."""
    submit = send.submit if user in ASYNC else send.submit_sync
    await user(database_url, lambda own: submit(user_id=42, connection=own), False)
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 0
    assert await claimable(connection) == []


@pytest.mark.parametrize("user", [*ASYNC, *SYNC])
async def test_errors_of_the_database_are_sextons_errors_through_every_driver(
    database_url: str, app: App, user: InTransaction
) -> None:
    """A10, F2, F4."""
    submit: Any = app.submit if user in ASYNC else app.submit_sync
    await app.submit("elsewhere", {"n": 1}, key="k")
    with pytest.raises(KeyReused, match='key "k" was used for a different submission') as reused:
        await user(database_url, lambda own: submit("elsewhere", {"n": 2}, key="k", connection=own), True)
    assert reused.value.__cause__ is not None
    with pytest.raises(InvalidSubmission, match="262,144 bytes") as too_large:
        await user(database_url, lambda own: submit("elsewhere", {"n": BIG}, connection=own), True)
    assert too_large.value.field == "/payload"


async def test_an_uncommitted_key_is_busy(
    database_url: str, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A10: the first submission has not committed yet."""
    async with connection.transaction():
        await send.submit(user_id=1, key="k", connection=connection)
        with psycopg.connect(database_url, options="-c lock_timeout=20ms") as rival, pytest.raises(KeyBusy) as busy:
            send.submit_sync(user_id=1, key="k", connection=rival)
    assert isinstance(busy.value.__cause__, psycopg.errors.LockNotAvailable)


async def test_other_errors_of_the_callers_connection_are_unchanged(
    connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A12."""
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.execute("SELECT 1/0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await send.submit(user_id=1, connection=connection)
    await transaction.rollback()


async def test_a_batch_commits_with_the_callers_transaction(
    database_url: str, connection: asyncpg.Connection[Any], app: App, send: Task[..., None]
) -> None:
    """A11, A12, F4."""
    requests = [send.request(n) for n in range(10_001)]
    with psycopg.connect(database_url) as own:
        assert len(app.submit_many_sync(requests[:10_000], connection=own)) == 10_000
        with pytest.raises(InvalidSubmission, match="10,001 jobs in one call; the limit on your own connection is 10,000"):
            app.submit_many_sync(requests, connection=own)
        own.rollback()
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 0


async def test_every_commit_of_the_caller_notifies_workers(
    database_url: str, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A12, B10: the throttle of the SDK's own pool does not apply."""
    heard: list[str] = []
    await connection.add_listener("sexton_ready", lambda *notified: heard.append(notified[-1]))
    for _ in range(3):
        with psycopg.connect(database_url) as own:
            send.submit_sync(user_id=1, connection=own)
    await connection.execute("SELECT 1")
    assert heard == ["default"] * 3


DJANGO = """
import sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

url = conninfo_to_dict(sys.argv[1])
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": url["dbname"], "USER": url["user"], "HOST": url.get("host", ""),
    "PORT": url.get("port", ""), "PASSWORD": url.get("password", "")}})
django.setup()

from django.db import connection, connections, transaction
from sexton import App, Context, InvalidSubmission, KeyReused

app = App()

@app.task
def send(ctx: Context, user_id: int) -> None: ...

with transaction.atomic():
    kept = send.submit_sync(user_id=1, key="k", connection=connection)
try:
    with transaction.atomic():
        send.submit_sync(user_id=2, connection=connections["default"])
        raise InterruptedError
except InterruptedError:
    pass
for error, options in ((KeyReused, {"user_id": 3, "key": "k"}), (InvalidSubmission, {"user_id": [1e300] * 20_000})):
    try:
        with transaction.atomic():
            send.submit_sync(**options, connection=connection)
    except error as refused:
        assert refused.__cause__ is not None
    else:
        raise AssertionError(f"no {error}")
print(kept.id)
"""


async def test_django_commits_and_rolls_back(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """A12, A10."""
    command = [sys.executable, "-c", DJANGO, database_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert await claimable(connection) == [UUID(done.stdout.strip())]


async def claimable(connection: asyncpg.Connection[Any]) -> list[UUID]:
    worker_id = uuid4()
    await workers.enlist(connection, worker_id, name="w", queues=["default"], tasks=["send"], concurrency=10)
    claimed = await runs.claim(connection, worker_id=worker_id, queues=["default"], tasks=["send"], limit=10, grace_s=10.0)
    return [run.lease.job_id for run in claimed]


async def keep(work: Awaitable[Submitted], seen: list[Submitted]) -> Submitted:
    seen.append(await work)
    return seen[-1]


async def awaited(answer: Awaitable[Submitted] | Submitted) -> None:
    assert not isinstance(answer, Submitted)
    await answer


def done(answer: Awaitable[Submitted] | Submitted) -> None:
    assert isinstance(answer, Submitted)
