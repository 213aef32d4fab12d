"""Numbered SQL migrations, applied once each, in order, by whichever node gets there first.

Safe from many nodes at once (a transaction-level advisory lock, which holds behind a pooler too), checked by checksum,
printable instead of runnable, and the guard that keeps a service from starting on a schema it does not know.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import NamedTuple

from sexton.errors import SchemaMismatch

from .database import Connection, Postgres, Row

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_PATIENCE_S = 3600.0  # for another node's migration as for our own
_LOCK = "SELECT pg_advisory_xact_lock(7307, 0)"
_LEDGER = """
CREATE SCHEMA IF NOT EXISTS sexton;
CREATE TABLE IF NOT EXISTS sexton.migrations (
  number int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""


class Migration(NamedTuple):
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def title(self) -> str:
        return f"{self.number:04d}_{self.name}"


def known() -> list[Migration]:
    """The migrations this version ships, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    matches = ((_FILE.fullmatch(entry.name), entry) for entry in folder.iterdir())
    return sorted(
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")) for match, entry in matches if match is not None
    )


async def migrate(database: Postgres) -> list[str]:
    """Brings the schema up to date and answers with the titles of what it applied."""
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
        await connection.execute(_LOCK, timeout_s=_PATIENCE_S)
        await connection.execute(_LEDGER)
        pending = _pending(await _applied(connection))
        for migration in pending:
            await connection.execute(migration.sql, timeout_s=_PATIENCE_S)
            await connection.fetch(
                "INSERT INTO sexton.migrations (number, name, checksum) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
        return [migration.title for migration in pending]


async def script(database: Postgres) -> str:
    """What `migrate` would run, as one SQL text to read or to hand to a database administrator."""
    async with database.transaction() as connection:
        pending = _pending(await _applied(connection) if await _has_ledger(connection) else [])
    parts = ["BEGIN;", _LOCK + ";", _LEDGER.strip() + ";"]
    for migration in pending:
        parts.append(f"-- {migration.title}\n{migration.sql.strip()}")
        values = f"({migration.number}, '{migration.name}', '{migration.checksum}')"
        parts.append(f"INSERT INTO sexton.migrations (number, name, checksum) VALUES {values};")  # noqa: S608  (all ours)
    return "\n\n".join([*parts, "COMMIT;"]) if pending else ""


async def require_current(database: Postgres) -> None:
    """Refuses a schema this version does not know, and says what to do."""
    async with database.transaction() as connection:
        if not await _has_ledger(connection):
            raise SchemaMismatch("this database has no Sexton schema yet; run: sexton migrate")
        pending = _pending(await _applied(connection))
    if pending:
        raise SchemaMismatch(f"the schema lacks {', '.join(m.title for m in pending)}; run: sexton migrate")


def _pending(applied: list[Row]) -> list[Migration]:
    shipped = {migration.number: migration for migration in known()}
    for row in applied:
        migration = shipped.get(row["number"])
        if migration is None:
            raise SchemaMismatch(
                f"the schema has migration {row['number']:04d}_{row['name']}, which this version of Sexton does not know; "
                "upgrade Sexton on this machine to the version that migrated the database"
            )
        if migration.checksum != row["checksum"]:
            raise SchemaMismatch(
                f"migration {migration.title} was applied in another form than this version ships; "
                "restore the released file, or report how it came to differ"
            )
    done = {row["number"] for row in applied}
    return [migration for migration in shipped.values() if migration.number not in done]


async def _has_ledger(connection: Connection) -> bool:
    (row,) = await connection.fetch("SELECT to_regclass('sexton.migrations') IS NOT NULL AS there")
    return bool(row["there"])


async def _applied(connection: Connection) -> list[Row]:
    return await connection.fetch("SELECT number, name, checksum FROM sexton.migrations ORDER BY number")
