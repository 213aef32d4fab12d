"""A read-only server (a standby, or a node that is being promoted) counts as unavailable, and services wait for it. Load
balancers send connections to such a server for a moment in every failover."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from sexton.errors import DatabaseUnavailable
from sexton.store.database import Postgres
from sexton.store.postgres.advisory_locks import PartitionLocks
from sexton.store.postgres.wakeups import READY, Listener
from tests.store.support import submit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.store.support import Conn


@asynccontextmanager
async def reading_only(connection: Conn) -> AsyncIterator[None]:
    """New sessions find a server that rejects writes, as a standby does."""
    alter = "SELECT format('ALTER DATABASE %I SET default_transaction_read_only = ' || $1, current_database())"
    await connection.execute(await connection.fetchval(alter, "on"))
    try:
        yield
    finally:
        await connection.execute(await connection.fetchval(alter, "off"))


async def test_a_pool_accepts_no_read_only_connection(database_url: str, connection: Conn) -> None:
    """D4: it would stay in the pool, and fail its next user."""
    database = await Postgres.open(database_url)
    try:
        async with reading_only(connection):
            with pytest.raises(DatabaseUnavailable):
                async with database.connection() as inside:
                    await submit(inside)
        async with database.connection() as inside:
            await submit(inside)
    finally:
        await database.close()
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 1


async def test_a_session_that_becomes_read_only_is_an_outage(database: Postgres) -> None:
    """D4: services wait and log it once; a caller gets an error of Sexton."""
    async with database.connection() as inside:
        await inside.execute("SET default_transaction_read_only = on")
        with pytest.raises(DatabaseUnavailable, match="read-only"):
            await submit(inside)


async def test_a_listener_and_partition_locks_reject_a_read_only_server(database_url: str, connection: Conn) -> None:
    """D4, rule "session state only on direct connections": a standby gets no notifications, and its locks exclude no other
    session."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = Listener(database_url, [READY], lambda channel, _: heard.put_nowait(channel), retry_s=0.01)
    locks = PartitionLocks(database_url)
    async with reading_only(connection):
        task = asyncio.create_task(listener.run())
        with pytest.raises(DatabaseUnavailable):
            await locks.hold(frozenset({1}))
        await asyncio.sleep(0.05)
        assert not listener.connected
    assert await asyncio.wait_for(heard.get(), 10) == READY
    assert listener.connected
    assert await locks.hold(frozenset({1})) == {1}
    await locks.close()
    task.cancel()
    await asyncio.wait([task])
