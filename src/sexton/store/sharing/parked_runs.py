"""Releases runs that wait for a limit, moves runs that waited long enough up a lane, and finds queues that may release more
runs. Every pass of a promoter does it (rule "look again every pass"); the notification from a run that frees a slot is only the
fast path."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)

FIRST = ""  # before every key


class Released(NamedTuple):
    queues: list[str]  # with ready runs
    released_count: int
    next_s: float | None  # seconds until a bucket has enough tokens; 0: there are more keys
    stopped_at: str = FIRST  # the key after which the next pass continues


class Tended(NamedTuple):
    queues: list[str]  # queues that may release more runs
    aged_count: int
    next_s: float | None


async def release(connection: Connection, *, after: str = FIRST, now: datetime | None = None) -> Released:
    """Releases parked runs, as many as their limits have room for: of 1,000 keys after the one given."""
    (row,) = await connection.fetch(_SQL["release"], now, after)
    return Released(row["queues"], row["released_count"], row["next_s"], row["stopped_at"])


async def tend(connection: Connection, *, now: datetime | None = None) -> Tended:
    (row,) = await connection.fetch(_SQL["tend"], now)
    return Tended(row["queues"], row["aged_count"], row["next_s"])


async def mend(connection: Connection) -> int:
    """Frees slots that no run holds. Returns how many; it should be 0."""
    (row,) = await connection.fetch(_SQL["mend"])
    mended: int = row["mended_count"]
    return mended
