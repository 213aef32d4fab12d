"""Where the database is: the URL that was given, or the embedded PostgreSQL in the user's data folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sexton.settings import Settings
from sexton.store import migrate
from sexton.store.database import Postgres
from sexton.store.embedded import EmbeddedPostgres


async def open_database(url: str | None, settings: Settings) -> Postgres:
    """A pool on a database whose schema is the one this version knows.

    The embedded one is ours, so it is brought up to date; a database that somebody else looks after is only checked.
    """
    if url is None and settings.database_url is not None:
        url = settings.database_url.get_secret_value()
    is_ours = url is None
    if url is None:
        url = (await asyncio.to_thread(EmbeddedPostgres.start, data_dir(settings))).url()
    database = await Postgres.open(url, size=settings.pool_size)
    try:
        await (migrate.migrate(database) if is_ours else migrate.require_current(database))
    except BaseException:
        await database.close()
        raise
    return database


def data_dir(settings: Settings) -> Path:
    """The embedded database's own folder; by default the one that the XDG rules give to a user's application."""
    if settings.data_dir is not None:
        return settings.data_dir
    shared = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".local" / "share") / "sexton"
