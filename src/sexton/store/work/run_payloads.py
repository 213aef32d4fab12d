"""Payloads of runs that were fired by hand with another payload than their job's. They stay as long as the history of the
run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements
from sexton.store.uuid7 import is_recurring

_SQL = statements(__name__)


async def of_runs(connection: Connection, run_ids: Collection[UUID]) -> dict[UUID, str]:
    """Those that have their own payload, as JSON."""
    if not run_ids:
        return {}
    return {row["run_id"]: row["payload"] for row in await connection.fetch(_SQL["of_runs"], list(run_ids))}


def may_have_one(job_id: UUID, origin: str) -> bool:
    """Only a recurring job can run with another payload, and only by hand. A replay keeps it."""
    return is_recurring(job_id) and origin in ("now", "replay")


async def forget(connection: Connection, *, keep_s: float, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget"], now, keep_s)
