"""A rig for the tests of services: their database refuses every illegal change of a run, and is checked at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from sexton.store.database import Postgres
from tests import transitions
from tests.services.rig import NOW, Rig


@pytest.fixture
async def rig(database: Postgres, connection: asyncpg.Connection[Any]) -> AsyncIterator[Rig]:
    await transitions.install(connection)
    await connection.execute("SELECT sexton.make_partitions($1, $1)", NOW)
    yield Rig(database)
    assert await transitions.violations(connection) == {}
