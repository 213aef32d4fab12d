"""Rule "a clone does not fire": a database stores the identity of its server. A clone or a restore runs on another server, and
nothing fires from it until an operator adopts it, so that staging never runs production's jobs."""

from __future__ import annotations

from sexton.errors import ForeignDatabase
from sexton.store.database import Connection, Database
from sexton.store.sql import statements

_SQL = statements(__name__)


async def require_home(database: Database) -> None:
    """Rejects a database that was copied from another server. A new database is accepted."""
    async with database.transaction() as connection:
        here = await _here(connection)
        known = await connection.fetch(_SQL["known_identity"])
        if not known:
            await adopt(connection)
        elif tuple(known[0])[1:] != here:
            raise ForeignDatabase(
                "this database was copied or restored from another server, so its jobs would fire twice; "
                "if it replaces the original, start once with --adopt, otherwise empty its schema"
            )


async def adopt(connection: Connection) -> None:
    await connection.fetch(_SQL["adopt"], *await _here(connection))


async def _here(connection: Connection) -> tuple[int, int]:
    (row,) = await connection.fetch(_SQL["identity"])
    return row["system_identifier"], row["database_oid"]
