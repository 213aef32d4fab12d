"""Promotes the due runs of recurring jobs by their overlap policy. One promoter per partition decides at a time (rule 4: lock,
then look), and what waits for a sibling is looked at again in every pass (rule 5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.run import Report
from sexton.domain.schedule.crowd import Settled, settle
from sexton.domain.schedule.recurrence import recurrence_of
from sexton.store import runs, schedules
from sexton.store.database import Connection, Database
from sexton.store.schedules import Sibling

CROWD_LIMIT = 500  # jobs decided about in one pass


async def admit(database: Database, partitions: Collection[int], *, limit: int, clock: Clock) -> tuple[int, list[str]]:
    """How many were promoted, and on which queues."""
    if not partitions:
        return 0, []
    now = clock.database_now()
    async with database.transaction() as connection:
        await schedules.lock_partitions(connection, partitions)
        alone = await schedules.promote_alone(connection, partitions=partitions, limit=limit, now=now)
        freed = await schedules.released(connection, partitions=partitions, limit=CROWD_LIMIT)
        crowded = [*dict.fromkeys([*alone.crowded, *freed])][:CROWD_LIMIT]
        started, queues = 0, set(alone.queues)
        if crowded:
            siblings = await schedules.crowd(connection, crowded, now=now)
            started, more = await _apply(connection, siblings, clock)
            queues |= more
        if queues:
            await runs.announce(connection, queues)
    return alone.promoted_count + started, sorted(queues)


async def _apply(connection: Connection, siblings: Sequence[Sibling], clock: Clock) -> tuple[int, set[str]]:
    of = {one.run_id: one for one in siblings}
    verdicts = [_settled(list(group)) for _, group in groupby(siblings, key=lambda one: one.job_id)]
    now = clock.database_now()
    skipped = [_skipped(of[run_id], reason) for verdict in verdicts for run_id, reason in verdict.skip]
    if skipped:
        await runs.finish(connection, skipped, now=now)
    cancelled = sorted(run_id for verdict in verdicts for run_id in verdict.cancel)
    if cancelled:
        await _cancel(connection, [of[run_id] for run_id in cancelled], clock)
    blocked = sorted(run_id for verdict in verdicts for run_id in verdict.block)
    if blocked:
        await schedules.block(connection, blocked)
    start = sorted(run_id for verdict in verdicts for run_id in verdict.start)
    return len(start), set(await schedules.admit(connection, start)) if start else set()


async def _cancel(connection: Connection, siblings: Sequence[Sibling], clock: Clock) -> None:
    """What runs is asked to stop; what only waits for its next attempt is over at once."""
    now = clock.database_now()
    asked = set(await runs.request_cancel(connection, [one.run_id for one in siblings], now=now))
    if asked:
        await runs.announce_cancel(connection)
    unheld = [_skipped(one, "replaced by the next fire", status="cancelled") for one in siblings if one.run_id not in asked]
    if unheld:
        await runs.finish(connection, unheld, now=now)


def _settled(group: Sequence[Sibling]) -> Settled:
    def ids(chosen: Sequence[Sibling]) -> list[UUID]:
        return [one.run_id for one in chosen]

    return settle(
        recurrence_of(group[0].recurrence_json).overlap,
        live=ids([one for one in group if one.is_live]),
        queued=ids([one for one in group if one.state == "blocked" and not one.is_live]),
        due=ids([one for one in group if one.state == "waiting" and not one.is_live]),
    )


def _skipped(sibling: Sibling, reason: str, *, status: str = "skipped") -> Report:
    return Report(run_id=sibling.run_id, token=sibling.token, next="end", status=status, ending="cancelled", reason=reason)
