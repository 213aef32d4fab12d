"""What a recurring job will fire, for whoever asks before it happens. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from sexton.domain.schedule import Schedule, fires, jitter_of
from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Outlook(NamedTuple):
    """How far a schedule is planned."""

    cursor_at: datetime | None
    fire_count: int  # fires of this rule so far, the planned ones included
    over_at: datetime | None
    planned: Sequence[datetime]  # nominal times of those that nobody has begun


async def outlook(connection: Connection, job_id: UUID) -> Outlook | None:
    rows = await connection.fetch(_SQL["outlook"], job_id)
    return Outlook(*rows[0]) if rows else None


def due(schedule: Schedule, seed: str, *, after: datetime, seen: Outlook | None = None) -> Iterator[datetime]:
    """When its runs are due strictly after an instant, jitter included. `max_fires` counts from what was seen of the job, or
    from the beginning."""
    offset = jitter_of(schedule, seed)
    if schedule.max_fires is None or seen is None or seen.cursor_at is None:
        nominal = fires(schedule, after=after - offset, seed=seed)
    else:
        nominal = chain(seen.planned, fires(schedule, after=seen.cursor_at, seed=seed, fired_count=seen.fire_count))
    return (at for fire in nominal if (at := fire + offset) > after)
