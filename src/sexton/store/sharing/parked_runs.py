"""What waits for a limit is let through, what waited long enough rises a lane, and queues with a pace go on. Every pass of a
promoter looks (rule "look again every pass"); the run that ended and made room is only the fast path."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)

FIRST = ""  # before every key


class Released(NamedTuple):
    queues: list[str]  # with something ready
    released_count: int
    next_s: float | None  # until a bucket has filled enough to look again; 0: there are more keys
    stopped_at: str = FIRST  # the key after which the next look goes on


class Tended(NamedTuple):
    queues: list[str]  # that may go on
    aged_count: int
    next_s: float | None


async def release(connection: Connection, *, after: str = FIRST, now: datetime | None = None) -> Released:
    """Parked runs, as many as their limits have room for: of 1,000 keys, those that come after the one given."""
    (row,) = await connection.fetch(_SQL["release"], now, after)
    return Released(row["queues"], row["released_count"], row["next_s"], row["stopped_at"])


async def tend(connection: Connection, *, now: datetime | None = None) -> Tended:
    (row,) = await connection.fetch(_SQL["tend"], now)
    return Tended(row["queues"], row["aged_count"], row["next_s"])


async def mend(connection: Connection) -> int:
    """Frees slots that no run holds; answers with how many there were, which should be none."""
    (row,) = await connection.fetch(_SQL["mend"])
    mended: int = row["mended_count"]
    return mended
