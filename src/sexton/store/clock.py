"""The database's clock, for a caller that needs the time before it decides. A statement reads the clock itself."""

from __future__ import annotations

from datetime import datetime

from .database import Connection
from .sql import statements

_SQL = statements(__name__)


async def now(connection: Connection, *, now: datetime | None = None) -> datetime:
    """The time of the database, or `now` where a test sets the time."""
    (row,) = await connection.fetch(_SQL["now"], now)
    at: datetime = row["now"]
    return at
