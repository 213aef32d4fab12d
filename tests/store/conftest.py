"""Every store test runs under the watch of the transition trigger, and its database is checked for invariants at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests import transitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "made_up_rows: writes rows by hand; the invariants between tables do not hold")


@pytest.fixture
def template_of_test(rig_template: str) -> str:
    """With the watch installed and with partitions around the tests' own `NOW`."""
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
    """A second connection, for whoever gets in the way."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()
