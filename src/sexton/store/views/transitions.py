"""Recent transitions, for a live view that is polled. It is not a ledger.

There is no high-water mark, because a transaction may commit an older row later: rule "one clock reading per statement". Each
poll goes back `OVERLAP_S` before the mark, so it returns some transitions again, and the caller drops the keys that it already
has. A transition that commits later than that is in the history, but not here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.uuid7 import RECURRING, floor, instant, is_recurring

OVERLAP_S = 5.0
_GOES_ON = ("failed", "timed_out", "lost", "snoozed", "released")  # unless it was buried

_SQL = statements(__name__)


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """`key` is unique: the same transition read twice has the same key. `at` is when the database recorded it."""

    key: str
    type: Literal["submitted", "started", "ended", "retrying", "dead_lettered"]
    at: datetime
    job_id: UUID
    run_id: UUID | None = None
    task: str
    queue: str
    tenant: str
    status: str | None = None  # of the ended execution
    ending: str | None = None  # of the job, if that was its end
    attempt: int | None = None
    worker_id: UUID | None = None
    reason: str | None = None

    @property
    def order(self) -> int:
        """The order within one instant: submitted, started, ended."""
        return {"submitted": 0, "started": 1}.get(self.type, 2)


async def since(connection: Connection, mark: datetime, *, limit: int = 1_000) -> list[Transition]:
    """In order of `at`, from `OVERLAP_S` before the mark. If there are more than `limit` of a kind, the newest: on a busy
    cluster the caller gets a sample. The next mark is the `at` of the last one, or the same mark if there is none.

    To resume, give the `at` of the last transition that was received."""
    oldest = mark - timedelta(seconds=OVERLAP_S)
    first = floor(oldest)
    rows = await connection.fetch(_SQL["submitted"], first, limit, UUID(int=first.int | RECURRING.int))
    found = [_submitted(row) for row in rows]
    found += [_started(row) for row in await connection.fetch(_SQL["started"], oldest, limit)]
    for row in await connection.fetch(_SQL["ended"], floor(oldest), limit):
        if row["started_at"] is not None and row["started_at"] >= oldest:
            found.append(_started(row, at=row["started_at"]))
        found.append(_ended(row))
    return sorted({transition.key: transition for transition in found}.values(), key=lambda one: (one.at, one.order))


def _submitted(row: Row) -> Transition:
    job_id: UUID = row["id"]
    return Transition(
        key=f"submitted:{job_id}",
        type="submitted",
        at=instant(UUID(int=job_id.int & ~RECURRING.int)),
        job_id=job_id,
        task=row["task"],
        queue=row["queue"],
        tenant=row["tenant"],
    )


def _started(row: Row, at: datetime | None = None) -> Transition:
    return Transition(
        key=f"started:{row['run_id']}:{row['token']}",
        type="started",
        at=at or row["claimed_at"],
        **_of_a_try(row),
    )


def _ended(row: Row) -> Transition:
    return Transition(
        key=f"ended:{row['id']}",
        type=_how(row),
        at=instant(row["id"]),
        status=row["status"],
        ending=row["ending"],
        reason=row["reason"],
        **_of_a_try(row),
    )


def _how(row: Row) -> Literal["ended", "retrying", "dead_lettered"]:
    """Each run of a recurring job has its own end, which its status shows."""
    if row["ending"] == "failed" or row["is_buried"]:
        return "dead_lettered"
    if is_recurring(row["job_id"]):
        return "retrying" if row["status"] in _GOES_ON else "ended"
    return "ended" if row["ending"] else "retrying"


def _of_a_try(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("job_id", "run_id", "task", "queue", "tenant", "attempt", "worker_id")}
