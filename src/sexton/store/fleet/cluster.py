"""Rule "a clone does not fire": a database stores the identity of its server. A clone or a restore runs on another server, and
nothing fires from it until an operator adopts it, so that staging never runs production's jobs."""

from __future__ import annotations

from sexton.errors import DatabaseRefused, DatabaseUnavailable, ForeignDatabase
from sexton.store.database import Connection, Database
from sexton.store.postgres.driver_errors import GRANT, READ_ONLY, RESTORE
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


async def require_writable(database: Database) -> None:
    """Rejects a database where a submission would be refused: it is read-only, or a right or a table is missing. Writes
    nothing."""
    async with database.connection() as connection:
        (lacks,) = await connection.fetch(_SQL["lacks"])
    if lacks["is_read_only"]:
        raise DatabaseUnavailable(READ_ONLY)
    if lacks["missing"] is not None:
        raise DatabaseRefused(f"the table sexton.{lacks['missing']} does not exist", RESTORE)
    if lacks["permission"] is not None:
        raise DatabaseRefused(f"the role has no right to {lacks['permission']}", GRANT)


async def adopt(connection: Connection) -> None:
    await connection.fetch(_SQL["adopt"], *await _here(connection))


async def _here(connection: Connection) -> tuple[int, int]:
    (row,) = await connection.fetch(_SQL["identity"])
    return row["system_identifier"], row["database_oid"]
