"""The oldest PostgreSQL that Sexton runs on."""

from __future__ import annotations

from sexton.errors import UnsupportedServer
from sexton.store.database import Database

OLDEST = 150_000  # server_version_num: major version times 10,000


async def require_supported(database: Database) -> None:
    async with database.connection() as connection:
        (row,) = await connection.fetch("SELECT current_setting('server_version_num')::int AS number")
    check(row["number"])


def check(number: int) -> None:
    if number < OLDEST:
        raise UnsupportedServer(
            f"this is PostgreSQL {number // 10_000}, but Sexton needs {OLDEST // 10_000} or newer; upgrade the server"
        )
