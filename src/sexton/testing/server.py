"""A temporary PostgreSQL from the wheel, migrated and ready; fast, not durable."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres

_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a database that is deleted afterwards. Starting takes about a second: use it once per test session."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-testing-"))
    try:
        with EmbeddedPostgres.start(folder, settings=_QUICK) as server:
            asyncio.run(_migrate(server.url()))
            yield server.url()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _migrate(url: str) -> None:
    database = await Postgres.open(url, size=1)
    await migrations.migrate(database)
    await database.close()
