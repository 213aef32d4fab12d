"""Limits by key: the numbers that are set, who holds a slot, and how many wait.

A limit is a number of rows that runs hold: rule "slots, not counts". A change needs a transaction: it locks the limit, then
decides (rule "lock, then decide"), and wakes the promoters that may let more through now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.limit import Limit
from sexton.errors import NotAllowedIn
from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.views.overview import COUNT_LIMIT
from sexton.store.work import runs

HOLDERS_LIMIT = 1_000
LISTED_COUNT_LIMIT = 1_000  # of each count, where many limits are listed

_SQL = statements(__name__)


class Holder(msgspec.Struct, frozen=True):
    """A run that has a slot."""

    run_id: UUID
    job_id: UUID
    task: str
    tenant: str
    worker_id: UUID | None
    worker_name: str | None
    since: datetime | None


class Standing(msgspec.Struct, frozen=True):
    """A limit as it stands now. Counts stop at their limit (`capped`)."""

    key: str
    running: int | None
    count: int | None
    per_s: float | None
    burst: int | None
    ordered: bool
    made_by: str | None
    updated_at: datetime
    tokens: int | None  # starts that its rate allows at this moment
    held_count: int
    parked_count: int
    capped: bool
    next_token_s: float | None = None
    holders: list[Holder] = []


class _Counts(NamedTuple):
    held_count: int
    parked_count: int
    ready_count: int


async def get(
    connection: Connection, key: str, *, holders: int = HOLDERS_LIMIT, now: datetime | None = None
) -> Standing | None:
    """With those who hold it, longest first."""
    rows = await connection.fetch(_SQL["get"], now, key)
    if not rows:
        return None
    counts = await _counts(connection, key)
    held = [Holder(*row) for row in await connection.fetch(_SQL["holders"], key, holders)]
    return _standing(rows[0], counts.held_count, counts.parked_count, COUNT_LIMIT, held, rows[0]["next_token_s"])


async def find(
    connection: Connection, *, prefix: str = "", after: str = "", limit: int = 100, now: datetime | None = None
) -> list[Standing]:
    """By key, without their holders."""
    rows = await connection.fetch(_SQL["list"], now, after, limit, LISTED_COUNT_LIMIT, prefix)
    return [_standing(row, row["held_count"], row["parked_count"], LISTED_COUNT_LIMIT) for row in rows]


async def put(connection: Connection, limit: Limit, *, by: str | None = None, now: datetime | None = None) -> None:
    """Replaces the numbers. Who holds a slot keeps it, also beyond a lower number."""
    await connection.fetch(_SQL["put"], now, limit.key, limit.running, limit.count, limit.per_s, limit.burst, limit.ordered, by)
    await _forget_slots(connection, key=limit.key, beyond=limit.running or 0)
    await runs.announce(connection, (), due_soon=True)


async def remove(connection: Connection, key: str) -> bool:
    """False: there is none. `NotAllowedIn` while runs wait for it: what would hold them back afterwards?"""
    if not await connection.fetch(_SQL["lock"], key):
        return False
    counts = await _counts(connection, key)
    waiting = counts.parked_count + counts.ready_count
    if waiting:
        many = (
            f"{COUNT_LIMIT:,} or more runs wait"
            if waiting > COUNT_LIMIT
            else f"{waiting:,} {'run waits' if waiting == 1 else 'runs wait'}"
        )
        message = f"cannot remove the limit {key!r} while {many} for it; cancel them, or set its numbers higher instead"
        raise NotAllowedIn("remove", "waited for", message)
    await connection.fetch(_SQL["remove"], key)
    await _forget_slots(connection, key=key, beyond=0)
    return True


async def _counts(connection: Connection, key: str) -> _Counts:
    (row,) = await connection.fetch(_SQL["counts"], key, COUNT_LIMIT)
    return _Counts(*row)


async def _forget_slots(connection: Connection, *, key: str, beyond: int) -> None:
    await connection.fetch(_SQL["forget_slots"], key, beyond)


def _standing(
    row: Row, held: int, parked: int, most: int, holders: Sequence[Holder] = (), next_token_s: float | None = None
) -> Standing:
    own = tuple(row)[:9]
    return Standing(*(*own, min(held, most), min(parked, most), max(held, parked) > most, next_token_s, list(holders)))
