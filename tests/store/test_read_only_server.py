"""A server that only reads (a standby, or a node that is just being promoted) is not ours yet: it is waited for as if it were
not there. Load balancers send connections to such a server for a moment in every failover."""

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
    """New sessions find a server that refuses to write, as a standby does."""
    alter = "SELECT format('ALTER DATABASE %I SET default_transaction_read_only = ' || $1, current_database())"
    await connection.execute(await connection.fetchval(alter, "on"))
    try:
        yield
    finally:
        await connection.execute(await connection.fetchval(alter, "off"))


async def test_a_pool_takes_no_connection_that_only_reads(database_url: str, connection: Conn) -> None:
    """D4: in a pool it would stay, and fail whoever gets it."""
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


async def test_a_session_that_stops_writing_is_an_outage_and_not_a_fault_of_ours(database: Postgres) -> None:
    """D4: services wait and say so once; a caller sees an error of ours."""
    async with database.connection() as inside:
        await inside.execute("SET default_transaction_read_only = on")
        with pytest.raises(DatabaseUnavailable, match="read-only"):
            await submit(inside)


async def test_a_listener_and_partition_locks_are_not_at_home_on_a_server_that_only_reads(
    database_url: str, connection: Conn
) -> None:
    """D4, rule "session state only on direct connections": a standby hears no notification, and its locks exclude nobody."""
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
