"""Backfill steps: rows changed in batches, each a short transaction that also moves the cursor in the ledger.

So a process that dies loses at most the batch it was in, and the next one continues after the last that was committed. A batch
that does not get its locks or its time is tried again with half as many rows.

The step is one statement with two arguments, the cursor so far (text, null at first) and the most rows to do. It answers one
row: the new cursor (text, null once there is nothing left) and how many rows it did.
"""

from __future__ import annotations

import asyncio

import msgspec

from sexton.errors import Contention
from sexton.store.database import Session

from .patience import HeldTooLong, Patience
from .reports import Progressed
from .steps import Step

_CURSOR = "SELECT cursor, done_count, state FROM sexton.schema_steps WHERE name = $1 FOR UPDATE"
_MOVE = """\
UPDATE sexton.schema_steps SET cursor = $2, done_count = done_count + $3,
  state = CASE WHEN $2::text IS NULL THEN 'done' ELSE state END, done_at = CASE WHEN $2::text IS NULL THEN clock_timestamp() END
WHERE name = $1 RETURNING done_count"""


class _Batch(msgspec.Struct, frozen=True):
    done_count: int  # of the whole step
    is_last: bool


async def fill(step: Step, patience: Patience) -> None:
    total = await _total(step, patience)
    size = step.batch

    async def batch() -> _Batch:
        nonlocal size
        try:
            async with patience.transaction() as session:
                return await _one(step, session, size)
        except (Contention, HeldTooLong):
            size = max(1, size // 2)
            raise

    while True:
        done = await patience.insist(step.name, batch)
        patience.tell(Progressed(step.name, done.done_count, total, "rows"))
        if done.is_last:
            return
        await asyncio.sleep(patience.pace.batch_rest_s)


async def _one(step: Step, session: Session, size: int) -> _Batch:
    """Rule "lock, then decide": the row of the ledger first, so that no two processes do the same batch."""
    rows = await session.fetch(_CURSOR, step.name)
    if rows[0]["state"] == "done":
        return _Batch(rows[0]["done_count"], is_last=True)
    ((cursor, count),) = await session.fetch(step.sql, rows[0]["cursor"], size)
    ((done_count,),) = await session.fetch(_MOVE, step.name, cursor, count)
    return _Batch(done_count, is_last=cursor is None)


async def _total(step: Step, patience: Patience) -> int | None:
    if not step.total:
        return None
    async with patience.database.transaction() as session:
        ((total,),) = await session.fetch(step.total)
    return int(total)
