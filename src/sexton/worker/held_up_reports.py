"""Reports of runs that another transaction has locked (rule "a waiting caller leaves the group"). Each is tried again with
backoff, and a warning names the session that holds them, and some of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.backoff import doubled_s
from sexton.domain.run import Report
from sexton.store.database import Database
from sexton.store.views import locked_tables
from sexton.store.work import runs
from sexton.telemetry.events import Emit, ReportHeldUp

from .execution import Execution

RETRY_S_MIN = 0.1
RETRY_S_MAX = 5.0
AT_ONCE = 50  # reports tried in one pass; a locked one costs 5 ms
WARN_S = 1.0  # shorter locks are normal
REMIND_S = 30.0
NAMED_LIMIT = 5  # runs of one session that are named at once
UNKNOWN = "another transaction"


@dataclass(slots=True)
class _HeldUp:
    execution: Execution
    report: Report
    since: float
    due_at: float
    warn_at: float
    retry_count: int = 0


class HeldUpReports:
    def __init__(self, database: Database, *, clock: Clock, emit: Emit) -> None:
        self._database, self._clock, self._emit = database, clock, emit
        self._waiting: dict[tuple[UUID, int], _HeldUp] = {}
        self._logged_at: dict[str, float] = {}  # by the session that holds the locks

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, execution: Execution) -> bool:
        return execution.claimed.lease.fence in self._waiting

    def add(self, execution: Execution, report: Report) -> None:
        """After a try that met the lock, the first or a later one."""
        now, fence = self._clock.monotonic(), execution.claimed.lease.fence
        known = self._waiting.pop(fence, None)
        if known is None:
            self._waiting[fence] = _HeldUp(execution, report, now, now + RETRY_S_MIN, now + WARN_S)
            return
        known.report = report
        known.retry_count += 1
        known.due_at = now + doubled_s(RETRY_S_MIN, RETRY_S_MAX, known.retry_count)
        self._waiting[fence] = known

    def discard(self, execution: Execution) -> None:
        self._waiting.pop(execution.claimed.lease.fence, None)

    def due(self) -> list[tuple[Execution, Report]]:
        now = self._clock.monotonic()
        waiting = (one for one in self._waiting.values() if one.due_at <= now)
        return [(one.execution, one.report) for one in islice(waiting, AT_ONCE)]

    def rest_s(self, most_s: float) -> float:
        now = self._clock.monotonic()
        return max(0.0, min([most_s, *(one.due_at - now for one in self._waiting.values())]))

    async def warn(self) -> None:
        """Once in `REMIND_S` for each session that holds locks, however many runs it holds: some of them are named."""
        now = self._clock.monotonic()
        late = [one for one in self._waiting.values() if one.warn_at <= now]
        if not late:
            return
        held: dict[str, list[_HeldUp]] = {}
        holders = await self._holders([one.execution.claimed.lease.run_id for one in late])
        for one in late:
            held.setdefault(holders.get(one.execution.claimed.lease.run_id, _said(UNKNOWN)), []).append(one)
        self._logged_at = {holder: at for holder, at in self._logged_at.items() if now - at < REMIND_S}
        for holder, by_holder in held.items():
            logged_at = self._logged_at.setdefault(holder, now)
            for one in by_holder:
                one.warn_at = logged_at + REMIND_S
            if logged_at == now:
                self._tell(holder, by_holder, now)

    async def _holders(self, run_ids: Sequence[UUID]) -> dict[UUID, str]:
        """What is said about each run. A session that has locked a table may hold up all that no other session holds."""
        async with self._database.connection() as connection:
            tables = await locked_tables.look(connection)
            can_read = not any(one.stops_reading for one in tables)
            holders = await runs.lock_holders(connection, run_ids) if can_read else {}
        said = {run_id: _said_ours(holder) if holder.is_ours else _said(str(holder)) for run_id, holder in holders.items()}
        if not tables:
            return said
        by_table = f"{tables[0].said_briefly}: end that transaction"
        return {run_id: by_table if run_id not in holders or holders[run_id].is_ours else said[run_id] for run_id in run_ids}

    def _tell(self, holder: str, held: list[_HeldUp], now: float) -> None:
        named = held[:NAMED_LIMIT]
        for one in named:
            lease = one.execution.claimed.lease
            self._emit(
                ReportHeldUp(
                    one.execution.worker_id,
                    lease.job_id,
                    lease.run_id,
                    one.execution.claimed.task,
                    now - one.since,
                    holder,
                    more_count=len(held) - len(named) if one is named[-1] else 0,
                )
            )


def _said(holder: str) -> str:
    return f"{holder}; it has locked this run or what the run holds: end that transaction"


def _said_ours(holder: runs.LockHolder) -> str:
    return f"{holder}, a session of Sexton itself: do not end it; sexton doctor names the one that it waits for"
