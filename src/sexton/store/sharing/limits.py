"""Limits by key: the numbers that are set, the runs that hold a slot, and how many wait. Rule "slots, not counts"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.limit import Limit
from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.views.overview import COUNT_LIMIT

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


class LimitUse(Limit, frozen=True, kw_only=True, omit_defaults=False):
    """A limit and its current use. Counts stop at their limit (`capped`)."""

    made_by: str | None
    updated_at: datetime
    tokens: int | None  # starts that its rate allows now
    held_count: int
    parked_count: int
    capped: bool
    next_token_s: float | None = None
    holders: Sequence[Holder] = ()


class Counts(NamedTuple):
    held_count: int
    parked_count: int
    ready_count: int


async def get(
    connection: Connection, key: str, *, holders: int = HOLDERS_LIMIT, now: datetime | None = None
) -> LimitUse | None:
    """With its holders, longest first."""
    rows = await connection.fetch(_SQL["get"], now, key)
    if not rows:
        return None
    found = await counts(connection, key)
    held = [Holder(*row) for row in await connection.fetch(_SQL["holders"], key, holders)]
    return _standing(rows[0], found.held_count, found.parked_count, COUNT_LIMIT, held, rows[0]["next_token_s"])


async def find(
    connection: Connection, *, prefix: str = "", after: str = "", limit: int = 100, now: datetime | None = None
) -> list[LimitUse]:
    """By key, without their holders."""
    rows = await connection.fetch(_SQL["list"], now, after, limit, LISTED_COUNT_LIMIT, prefix)
    return [_standing(row, row["held_count"], row["parked_count"], LISTED_COUNT_LIMIT) for row in rows]


async def put(connection: Connection, limit: Limit, *, by: str | None, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["put"], now, limit.key, limit.running, limit.count, limit.per_s, limit.burst, limit.ordered, by)


async def lock(connection: Connection, key: str) -> bool:
    """False: it does not exist."""
    return bool(await connection.fetch(_SQL["lock"], key))


async def remove(connection: Connection, key: str) -> None:
    await connection.fetch(_SQL["remove"], key)


async def counts(connection: Connection, key: str) -> Counts:
    (row,) = await connection.fetch(_SQL["counts"], key, COUNT_LIMIT)
    return Counts(*row)


async def forget_slots(connection: Connection, *, key: str, beyond: int) -> None:
    await connection.fetch(_SQL["forget_slots"], key, beyond)


def _standing(
    row: Row, held: int, parked: int, most: int, holders: Sequence[Holder] = (), next_token_s: float | None = None
) -> LimitUse:
    numbers, (made_by, updated_at, tokens) = tuple(row)[:6], tuple(row)[6:9]
    return LimitUse(
        *numbers,
        made_by=made_by,
        updated_at=updated_at,
        tokens=tokens,
        held_count=min(held, most),
        parked_count=min(parked, most),
        capped=max(held, parked) > most,
        next_token_s=next_token_s,
        holders=list(holders),
    )
