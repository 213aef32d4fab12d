"""The API in front of a real database: in process over ASGI, and behind a socket for tests that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from sexton.store.database import Postgres
from tests import transitions
from tests.api.support import Api, opened


@pytest.fixture
async def api(database: Postgres, connection: asyncpg.Connection[Any]) -> AsyncIterator[Api]:
    """Its database rejects every illegal change of a run, and is checked at the end."""
    async with opened(database) as api:
        yield api
    assert await transitions.violations(connection) == {}
