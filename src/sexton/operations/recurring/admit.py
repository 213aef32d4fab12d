"""Promotes the due runs of recurring jobs by their overlap policy. One promoter per partition decides at a time
(rule "lock, then decide"). Every pass checks again the runs that wait for an earlier run (rule "look again every pass"). It
never waits for a lock (rule "never wait inside a batch"): rows that another session has locked are tried again a moment
later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.run import Report
from sexton.domain.schedule.overlap import Overlap
from sexton.domain.schedule.overlap_decision import Settled, settle
from sexton.domain.schedule.recurrence import recurrence_of
from sexton.operations.bisection import in_parts
from sexton.operations.caller import Caller
from sexton.store.database import Connection, Database
from sexton.store.work import runs, schedules
from sexton.store.work.schedules import Sibling

LEFT_LIMIT = 1_000  # jobs with a locked run that one pass looks behind
AGAIN_S = 0.1  # after a pass that found a row locked by another session


class Admitted(NamedTuple):
    admitted_count: int
    queues: list[str]
    again_in_s: float | None  # there is more, or another session held a lock


async def admit(
    database: Database, caller: Caller, partitions: Collection[int], *, limit: int, now: datetime | None = None
) -> Admitted:
    if not partitions:
        return Admitted(0, [], None)

    async def write(connection: Connection, part: Sequence[int]) -> Admitted:
        return await _admit(connection, part, limit, now)

    done = await in_parts(database, sorted(partitions), write, atomic=True)
    again = [one.again_in_s for one in done.answers if one.again_in_s is not None] + [AGAIN_S] * bool(done.left)
    return Admitted(
        sum(one.admitted_count for one in done.answers),
        sorted({queue for one in done.answers for queue in one.queues}),
        min(again, default=None),
    )


async def _admit(connection: Connection, partitions: Sequence[int], limit: int, now: datetime | None) -> Admitted:
    held = await schedules.lock_partitions(connection, partitions)
    if not held:
        return Admitted(0, [], AGAIN_S)
    started, queues, left = 0, set[str](), set[UUID]()
    freed: list[UUID] = []
    is_full = True
    while True:
        alone = await schedules.promote_alone(connection, partitions=held, limit=limit, without=left, now=now)
        if is_full:
            freed = await schedules.released(connection, partitions=held, limit=limit, without=left)
            is_full = len(freed) >= limit
        crowded = [one for one in dict.fromkeys([*alone.crowded, *freed]) if one not in left]
        siblings = await schedules.competing_runs(connection, crowded, now=now) if crowded else []
        count, more = await _apply(connection, siblings, now) if siblings else (0, set())
        started, queues = started + alone.promoted_count + count, queues | {*alone.queues, *more}
        has_more = is_full or alone.due_count >= limit
        undecided = {*crowded} - {one.job_id for one in siblings}
        left |= undecided
        # Jobs with a locked run that fill a batch must not hide the jobs behind them.
        if not undecided or not has_more or len(left) > LEFT_LIMIT:
            break
    if queues:
        await runs.announce(connection, queues)
    again_in_s = 0.0 if has_more and not undecided else AGAIN_S if left or len(held) < len(partitions) else None
    return Admitted(started, sorted(queues), again_in_s)


async def _apply(connection: Connection, siblings: Sequence[Sibling], now: datetime | None) -> tuple[int, set[str]]:
    of = {one.run_id: one for one in siblings}
    verdicts = [_settled(list(group)) for _, group in groupby(siblings, key=lambda one: one.job_id)]
    skipped = [_skipped(of[run_id], reason) for verdict in verdicts for run_id, reason in verdict.skip]
    if skipped:
        await runs.finish(connection, skipped, now=now)
    cancelled = sorted(run_id for verdict in verdicts for run_id in verdict.cancel)
    if cancelled:
        await _cancel(connection, [of[run_id] for run_id in cancelled], now)
    blocked = sorted(run_id for verdict in verdicts for run_id in verdict.block)
    if blocked:
        await schedules.block(connection, blocked)
    start = sorted(run_id for verdict in verdicts for run_id in verdict.start)
    return len(start), set(await schedules.admit(connection, start)) if start else set()


async def _cancel(connection: Connection, siblings: Sequence[Sibling], now: datetime | None) -> None:
    """Asks running runs to stop. Runs that only wait for their next attempt end at once."""
    asked = set(await runs.request_cancel(connection, [one.run_id for one in siblings], now=now))
    if asked:
        await runs.announce_cancel(connection)
    unheld = [_skipped(one, "replaced by the next fire", status="cancelled") for one in siblings if one.run_id not in asked]
    if unheld:
        await runs.finish(connection, unheld, now=now)


def _settled(group: Sequence[Sibling]) -> Settled:
    def ids(chosen: Sequence[Sibling]) -> list[UUID]:
        return [one.run_id for one in chosen]

    settled = settle(
        _overlap(group[0].recurrence_json),
        live=ids([one for one in group if one.is_live]),
        queued=ids([one for one in group if one.state == "blocked" and not one.is_live]),
        due=ids([one for one in group if one.state == "waiting" and not one.is_live]),
        kept=frozenset(one.run_id for one in group if one.origin == "replay"),
        backfill=frozenset(one.run_id for one in group if one.origin == "backfill"),
        alone=frozenset(one.run_id for one in group if one.origin == "backfill" and one.overlap == 1),
    )
    return _one_alone(group, settled)


def _one_alone(group: Sequence[Sibling], settled: Settled) -> Settled:
    """Among the runs that were planned to run alone, only one lives at a time, even if the job has another policy now. A replay
    keeps the policy of the version that it replays. Otherwise the index `one_live_run` would reject the whole batch."""
    alone = {one.run_id for one in group if one.overlap == 1}
    is_taken = any(one.is_live and one.run_id in alone for one in group)
    for run_id in [one for one in settled.start if one in alone]:
        if is_taken:
            settled.start.remove(run_id)
            settled.block.append(run_id)
        is_taken = True
    return settled


def _overlap(recurrence_json: str | None) -> Overlap:
    """A policy that cannot be read is left to the planner, which rejects it. It must not delay the other runs."""
    try:
        return recurrence_of(recurrence_json).overlap
    except msgspec.DecodeError:
        return Overlap()


def _skipped(sibling: Sibling, reason: str, *, status: str = "skipped") -> Report:
    return Report(run_id=sibling.run_id, token=sibling.token, next="end", status=status, ending="cancelled", reason=reason)
