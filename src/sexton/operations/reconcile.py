"""Gives back runs that the database assigns to a worker and that the worker does not have (rule "reconcile lost replies")."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sexton.domain.outcome import Lost, Released
from sexton.domain.run import Lease, Report, report
from sexton.ids import Rng
from sexton.store.database import Connection
from sexton.store.fleet.workers import Held
from sexton.store.work import runs

from .caller import Caller

REPLY_LOST = "the reply of its claim was lost"


async def give_back(
    connection: Connection,
    caller: Caller,
    worker_id: UUID,
    held: Sequence[Held],
    *,
    reason: str,
    rng: Rng,
    now: datetime | None = None,
) -> int:
    """Returns how many were given back. The others had just ended, or another transaction has locked them: the next comparison
    finds those again (rule "a waiting caller leaves the group")."""
    given_back, _ = await runs.finish_each(connection, [_report(worker_id, one, reason, rng) for one in held], now=now)
    return len(given_back)


def _report(worker_id: UUID, held: Held, reason: str, rng: Rng) -> Report:
    lease = Lease(
        run_id=held.run_id,
        job_id=held.job_id,
        worker_id=worker_id,
        token=held.token,
        attempt=1,
        lost_count=0,
        at_most_once=held.at_most_once,
        seq=0,
        origin="now",
        deadline_left_s=None,
        policy_json=None,
    )
    # The claim of an at-most-once run is its start, even if the reply never reached the worker.
    return report(lease, Lost(reason) if held.at_most_once else Released(reason), rng)
