"""What recurring jobs promise, and what the history recorded."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.schedule import fires
from sexton.domain.schedule.recurrence import seed_of
from sexton.domain.schedule.rule import Schedule
from sexton.store.database import Connection

Fire = tuple[UUID, datetime]


class FireRow(NamedTuple):
    """One row in the ledger of a recurring job: a fire that was started, a fire that was not, or a gap of several such."""

    job_id: UUID
    fire_at: datetime
    run_id: UUID
    status: str
    started_at: datetime | None = None
    gap: tuple[datetime, datetime] | None = None


async def recorded(connection: Connection, job_ids: Collection[UUID]) -> list[FireRow]:
    rows = await connection.fetch(
        """SELECT job_id, fire_at, run_id, status, started_at, result::text AS told FROM sexton.executions
           WHERE job_id = ANY ($1) AND origin = 'schedule' ORDER BY id""",
        list(job_ids),
    )
    return [
        FireRow(row["job_id"], row["fire_at"], row["run_id"], row["status"], row["started_at"], _gap(row["told"]))
        for row in rows
    ]


def _gap(told: str | None) -> tuple[datetime, datetime] | None:
    answer: Any = msgspec.json.decode(told) if told else None
    if isinstance(answer, dict) and "first" in answer:
        return datetime.fromisoformat(answer["first"]), datetime.fromisoformat(answer["last"])
    return None


async def promised(connection: Connection, job_ids: Collection[UUID]) -> set[Fire]:
    jobs = await connection.fetch(
        "SELECT id, tenant, name, schedule::text AS rule, submitted_at FROM sexton.jobs WHERE id = ANY ($1)", list(job_ids)
    )
    return {
        (job["id"], fire_at)
        for job in jobs
        for fire_at in fires(
            msgspec.json.decode(job["rule"], type=Schedule),
            after=job["submitted_at"],
            seed=seed_of(job["tenant"], job["name"], job["id"]),
        )
    }
