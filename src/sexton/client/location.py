"""Where the database is: the URL that was given, or the embedded PostgreSQL in the user's data folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sexton.errors import DatabaseUnavailable, DataRefused, InvalidSetting
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.postgres.server_version import require_supported


async def open_database(url: str | None, settings: Settings) -> Postgres:
    """A pool on a database whose schema is the one this version knows.

    The embedded one is ours, so it is brought up to date; a database that somebody else looks after is only checked.
    """
    name = "the database's URL"
    if url is None and settings.database_url is not None:
        url, name = settings.database_url.get_secret_value(), "SEXTON_DATABASE_URL"
    is_ours = url is None
    if url is None:
        url = (await embedded(settings)).url()
    with address(name):
        database = await Postgres.open(url, size=settings.pool_size)
    try:
        await require_supported(database)
        await (migrations.migrate(database) if is_ours else migrations.require_current(database))
    except BaseException:
        await database.close()
        raise
    return database


async def embedded(settings: Settings) -> EmbeddedPostgres:
    """Started or found; it is there for as long as this process lives."""
    return await asyncio.to_thread(EmbeddedPostgres.start, data_dir(settings), shared=True)


@contextmanager
def address(name: str) -> Iterator[None]:
    """The driver's own words about an address may hold a part of its password."""
    try:
        yield
    except (ValueError, DataRefused):
        raise InvalidSetting(
            f"{name} is not an address of PostgreSQL, such as postgresql://user:password@host:5432/dbname; "
            "without a driver's name such as +asyncpg; special characters in the password are written as %2F, %40 and so on"
        ) from None
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(f"cannot connect by {name}: {error}") from error


def data_dir(settings: Settings) -> Path:
    """The embedded database's own folder; by default the one that the XDG rules give to a user's application."""
    if settings.data_dir is not None:
        return settings.data_dir
    shared = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".local" / "share") / "sexton"
