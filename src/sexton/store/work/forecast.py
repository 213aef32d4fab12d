"""How far a recurring job is planned, for a forecast of its fires."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Outlook(NamedTuple):
    """How far a schedule is planned."""

    cursor_at: datetime | None
    fire_count: int  # fires of this rule so far, the planned ones included
    over_at: datetime | None
    planned: Sequence[datetime]  # nominal times of planned fires that have not started


async def outlook(connection: Connection, job_id: UUID) -> Outlook | None:
    rows = await connection.fetch(_SQL["outlook"], job_id)
    return Outlook(*rows[0]) if rows else None
