"""Fixtures of a database under the watch of the transition trigger, checked for invariants at the end of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from tests import transitions
from tests.store.support import NOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(template: str, server_url: Callable[[str], str]) -> AsyncIterator[str]:
    """As the template of all tests, with the watch installed and with partitions around the tests' own `NOW`."""
    name = f"{template}_watched"
    admin = await asyncpg.connect(server_url("postgres"))
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    connection = await asyncpg.connect(server_url(name))
    await transitions.install(connection)
    await connection.execute("SELECT sexton.make_partitions($1, $1)", NOW)
    await connection.close()
    yield name
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def database_url(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    yield database_url
    if request.node.get_closest_marker("made_up_rows") is None:
        connection = await asyncpg.connect(database_url)
        broken = await transitions.violations(connection)
        await connection.close()
        assert broken == {}


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A second connection, for whoever gets in the way."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()
