"""Where the database is: the given URL, or the embedded PostgreSQL in the user's data folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sexton.errors import DatabaseUnavailable, DataRefused, InvalidSetting
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import SHARED_BY_SUBMITTERS, Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.postgres.server_version import require_supported


async def open_database(url: str | None, settings: Settings) -> Postgres:
    """A pool on a database with the schema of this version.

    The embedded database is migrated automatically. A database that an operator manages is only checked.
    """
    name = "the database's URL"
    if url is None and settings.database_url is not None:
        url, name = settings.database_url.get_secret_value(), "SEXTON_DATABASE_URL"
    is_ours = url is None
    if url is None:
        url = (await embedded(settings)).url()
    with address(name):
        database = await Postgres.open(url, size=settings.pool_size, timeouts=SHARED_BY_SUBMITTERS)
    try:
        await require_supported(database)
        await (migrations.migrate(database) if is_ours else migrations.require_current(database))
    except BaseException:
        await database.close()
        raise
    return database


async def embedded(settings: Settings) -> EmbeddedPostgres:
    """Starts the server or finds it running. It stays up as long as this process lives."""
    return await asyncio.to_thread(EmbeddedPostgres.start, data_dir(settings), shared=True)


@contextmanager
def address(name: str) -> Iterator[None]:
    """The driver's error message may contain a part of the password, so it is replaced."""
    try:
        yield
    except (ValueError, DataRefused):
        raise InvalidSetting(
            f"{name} is not a PostgreSQL URL; write postgresql://user:password@host:5432/dbname, "
            "without a driver such as +asyncpg, and percent-encode special characters in the password (%2F, %40)"
        ) from None
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(f"cannot connect with {name}: {error}") from error


def data_dir(settings: Settings) -> Path:
    """The folder of the embedded database; by default the user's data folder by the XDG rules."""
    if settings.data_dir is not None:
        return settings.data_dir
    shared = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".local" / "share") / "sexton"
