"""A database is bound to its server: services refuse a clone until it is adopted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.errors import ForeignDatabase
from sexton.store.database import Postgres
from sexton.store.fleet import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.store.support import Conn


@pytest.fixture
async def clone(server_url: Callable[[str], str], database_url: str) -> AsyncIterator[Postgres]:
    """A copy of the test's own, adopted database."""
    original = database_url.split("?", maxsplit=1)[0].rsplit("/", 1)[1]
    admin = await asyncpg.connect(server_url("postgres"))
    await admin.execute(f"CREATE DATABASE {original}_clone TEMPLATE {original}")
    database = await Postgres.open(server_url(f"{original}_clone"))
    yield database
    await database.close()
    await admin.execute(f"DROP DATABASE {original}_clone WITH (FORCE)")
    await admin.close()


async def test_a_database_on_its_own_server_is_accepted(database: Postgres) -> None:
    """D9."""
    await cluster.require_home(database)
    await cluster.require_home(database)


async def test_a_new_database_is_bound_without_adoption(database: Postgres, connection: Conn) -> None:
    """D9: it contains nothing that could fire twice."""
    await connection.execute("DELETE FROM sexton.cluster")
    await asyncio.gather(*(cluster.require_home(database) for _ in range(3)))
    assert await connection.fetchval("SELECT count(*) FROM sexton.cluster") == 1


async def test_a_clone_is_rejected_until_it_is_adopted(clone: Postgres) -> None:
    """D9: the message says what to do."""
    with pytest.raises(ForeignDatabase, match="--adopt"):
        await cluster.require_home(clone)
    async with clone.transaction() as connection:
        (before,) = await connection.fetch("SELECT id FROM sexton.cluster")
        await cluster.adopt(connection)
        (after_it,) = await connection.fetch("SELECT id FROM sexton.cluster")
    assert before["id"] != after_it["id"], "an adopted clone is a cluster of its own"
    await cluster.require_home(clone)


@pytest.mark.parametrize(
    "column", ["system_identifier = system_identifier + 1", "database_oid = (database_oid::bigint + 1)::oid"]
)
async def test_another_server_or_another_database_is_foreign(database: Postgres, connection: Conn, column: str) -> None:
    """D9: a dump restored elsewhere, or beside the original."""
    await connection.execute(f"UPDATE sexton.cluster SET {column}")
    with pytest.raises(ForeignDatabase):
        await cluster.require_home(database)
