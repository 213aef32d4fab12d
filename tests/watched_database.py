"""Fixtures of a database with the transition trigger, whose invariants are checked at the end of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests import transitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def template_of_test(rig_template: str) -> str:
    """With the trigger, and with partitions around the tests' own `NOW`."""
    return rig_template


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
    """A second connection, for a session that interferes."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()
