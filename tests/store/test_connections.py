"""One statement on a connection of the caller, with each supported driver (A12)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sexton.store.postgres import caller_connection

# Arguments out of order and one of them twice, a literal percent sign, and JSON.
QUERY = "SELECT $2::text || '%' AS a, $1::int AS b, $3::jsonb->>'k' AS c, $2::text AS d, $4::timestamptz IS NULL AS e"
ARGUMENTS = (7, "x", '{"k": "v"}', None)
ANSWER = [("x%", 7, "v", "x", True)]


@pytest.fixture
async def psycopg_async(database_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        yield connection


async def test_asyncpg_and_its_pool_run_it(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """A12."""
    assert await caller_connection.run(connection, QUERY, *ARGUMENTS) == ANSWER
    async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as pool, pool.acquire() as proxy:
        assert await caller_connection.run(proxy, QUERY, *ARGUMENTS) == ANSWER


async def test_the_callers_json_codec_changes_nothing(connection: asyncpg.Connection[Any]) -> None:
    """A12: many programs configure asyncpg to encode JSON; the payload is encoded already."""
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    assert await caller_connection.run(connection, QUERY, *ARGUMENTS) == ANSWER


def test_psycopg_runs_it_with_any_row_factory_and_cursor(database_url: str) -> None:
    """A12."""
    with psycopg.connect(database_url) as plain:
        assert caller_connection.run_sync(plain, QUERY, *ARGUMENTS) == ANSWER
    with psycopg.connect(database_url, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as peculiar:
        assert caller_connection.run_sync(peculiar, QUERY, *ARGUMENTS) == ANSWER


async def test_async_psycopg_runs_it(psycopg_async: psycopg.AsyncConnection[Any]) -> None:
    """A12."""
    assert await caller_connection.run(psycopg_async, QUERY, *ARGUMENTS) == ANSWER


def test_sqlalchemy_runs_it_on_connections_and_sessions(database_url: str) -> None:
    """A12."""
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url))
    with engine.connect() as connection:
        assert caller_connection.run_sync(connection, QUERY, *ARGUMENTS) == ANSWER
    with Session(engine) as session:
        assert caller_connection.run_sync(session, QUERY, *ARGUMENTS) == ANSWER
    scoped = scoped_session(sessionmaker(engine))
    assert caller_connection.run_sync(scoped, QUERY, *ARGUMENTS) == ANSWER
    scoped.remove()
    engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_async_sqlalchemy_runs_it_over_either_driver(database_url: str, driver: str) -> None:
    """A12."""
    pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet: pip install 'sqlalchemy[asyncio]'")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    connect: Any = asyncpg.connect if driver == "asyncpg" else psycopg.AsyncConnection.connect
    engine = create_async_engine(f"postgresql+{driver}://", async_creator=lambda: connect(database_url))
    async with engine.connect() as connection:
        assert await caller_connection.run(connection, QUERY, *ARGUMENTS) == ANSWER
    async with AsyncSession(engine) as session:
        assert await caller_connection.run(session, QUERY, *ARGUMENTS) == ANSWER
    await engine.dispose()


async def test_it_neither_commits_nor_rolls_back(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """A12."""
    await connection.execute("CREATE TABLE mine (n int)")
    with psycopg.connect(database_url) as own:
        caller_connection.run_sync(own, "INSERT INTO mine VALUES ($1::int) RETURNING n", 1)
        assert own.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert await connection.fetchval("SELECT count(*) FROM mine") == 0
        own.rollback()
    assert await connection.fetchval("SELECT count(*) FROM mine") == 0


async def test_a_connection_of_the_wrong_kind_names_the_other_method(
    database_url: str, connection: asyncpg.Connection[Any], psycopg_async: psycopg.AsyncConnection[Any]
) -> None:
    """A12, F2."""
    with pytest.raises(TypeError, match=r"asyncpg.*submit instead of submit_sync"):
        caller_connection.run_sync(connection, QUERY, *ARGUMENTS)
    with pytest.raises(TypeError, match=r"psycopg\.AsyncConnection is an async connection"):
        caller_connection.run_sync(psycopg_async, QUERY, *ARGUMENTS)
    with psycopg.connect(database_url) as blocking, pytest.raises(TypeError, match="submit_sync instead of submit"):
        await caller_connection.run(blocking, QUERY, *ARGUMENTS)


@pytest.mark.parametrize("stranger", ["postgresql://", object()])
async def test_an_object_that_is_not_a_connection_is_rejected_with_the_supported_ones(stranger: object) -> None:
    """A12, F2."""
    with pytest.raises(TypeError, match=r"give an asyncpg connection.*django\.db\.connection, not builtins\."):
        await caller_connection.run(stranger, QUERY)
    with pytest.raises(TypeError, match="give an asyncpg connection"):
        caller_connection.run_sync(stranger, QUERY)


async def test_a_pool_is_not_a_connection(database_url: str) -> None:
    """A12: a statement on a pool would be outside the caller's transaction."""
    async with asyncpg.create_pool(database_url, min_size=0) as pool:
        with pytest.raises(TypeError, match=r"not asyncpg\.pool\.Pool"):
            await caller_connection.run(pool, QUERY)


def test_another_database_system_is_rejected() -> None:
    """A12, F2."""
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(TypeError, match="is a connection to sqlite"):
        caller_connection.run_sync(connection, QUERY)
    engine.dispose()
