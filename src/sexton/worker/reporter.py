"""Writes outcomes back in batches. Each report carries its lease; one that no longer holds changes nothing and is dropped.

While one batch is on its way the next one gathers, so an idle worker reports at once and a busy one in bulk.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby, islice
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.outcome import ErrorInfo, Failed
from sexton.domain.run import Report, report
from sexton.errors import DataRefused
from sexton.handlers.live_output import LiveOutput
from sexton.ids import Rng
from sexton.service import Wake
from sexton.store.database import Database
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Emit, Ended, HandedOver, LeaseLost

from .execution import Execution, Phase
from .holdings import Holdings

BATCH = 1000
REST_S = 60.0


class Reporter:
    name = "reporter"

    def __init__(self, database: Database, holdings: Holdings, *, clock: Clock, emit: Emit, dice: Rng) -> None:
        self._database, self._holdings, self._clock, self._emit, self._dice = database, holdings, clock, emit, dice
        self._pending: deque[tuple[Execution, Report]] = deque()
        self._again: list[tuple[Execution, Report]] = []
        self._leaving: deque[tuple[Execution, LiveOutput | None]] = deque()
        self.wake = Wake()

    def add(self, execution: Execution, outcome: Report) -> None:
        self._pending.append((execution, outcome))
        self.wake()

    def hand_over(self, execution: Execution, live: LiveOutput | None) -> None:
        """Its work goes on elsewhere, and whoever does it has the lease."""
        self._leaving.append((execution, live))
        self.wake()

    @property
    def pending_count(self) -> int:
        return len(self._pending) + len(self._leaving)

    async def run_once(self) -> float:
        batch = list(islice(self._pending, BATCH))
        if batch:
            self._again.clear()
            # Some may be settled already, if this is a second try after a failure half-way.
            await self._send([item for item in batch if item[0].phase is not Phase.GONE])
            # Only now: a batch whose reply was lost is sent again, and found recorded.
            for _ in batch:
                self._pending.popleft()
            self._pending.extend(self._again)
        if self._leaving:
            await self._hand_over(list(islice(self._leaving, BATCH)))
        return 0.0 if self._pending or self._leaving else REST_S

    async def _send(self, batch: list[tuple[Execution, Report]]) -> None:
        if not batch:
            return
        try:
            finished = await self._finish([outcome for _, outcome in batch])
        except DataRefused as refusal:
            await self._bisect(batch, refusal)
            return
        if len(finished) == len(batch):
            for execution, outcome in batch:
                self._accepted(execution, outcome)
            return
        accepted = {row.run_id for row in finished}
        # Swept while its report waited and claimed again by us, a run is here under two tokens: history knows which counts.
        accepted -= {run_id for run_id, times in Counter(outcome.run_id for _, outcome in batch).items() if times > 1}
        for execution, outcome in batch:
            if outcome.run_id in accepted:
                self._accepted(execution, outcome)
            else:
                await self._unaccepted(execution, outcome)

    async def _finish(self, reports: list[Report]) -> list[runs.Finished]:
        # On a connection of its own, because the driver's errors become ours where it is given back.
        async with self._database.connection() as connection:
            return await runs.finish(connection, reports, now=self._clock.database_now())

    async def _bisect(self, batch: list[tuple[Execution, Report]], refusal: DataRefused) -> None:
        """Rule "bisect bad batches": one report that the database cannot keep does not hold back the others. It becomes a
        permanent failure that says so."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
            return
        execution, outcome = batch[0]
        refused = Failed(
            ErrorInfo("sexton.errors.DataRefused", f"PostgreSQL refused what the handler returned: {refusal}"), permanent=True
        )
        plain = report(execution.claimed.lease, refused, self._dice, started_s=outcome.started_s, took_s=outcome.took_s)
        if await self._finish([plain]):
            self._accepted(execution, plain)
        else:
            await self._unaccepted(execution, plain)

    async def _hand_over(self, batch: list[tuple[Execution, LiveOutput | None]]) -> None:
        """A run that is not ours any more has ended already, by a callback that was quicker, or was taken from us: no result of
        ours is dropped, so there is nothing to tell. After a lost reply it is the same."""
        left: set[UUID] = set()
        for worker_id, each in groupby(batch, key=lambda item: _held_by(item[0])):  # one id, or two lives
            leaving = list(each)
            words = [_words(execution, live) for execution, live in leaving if live is not None]
            fences = [(execution.claimed.lease.run_id, execution.claimed.lease.token) for execution, _ in leaving]
            now = self._clock.database_now()
            async with self._database.connection() as connection:
                if words:
                    await runs.tell(connection, worker_id, words, now=now)
                left |= await callbacks.hand_over(connection, worker_id, fences, now=now)
        for execution, _ in batch:
            self._leaving.popleft()
            self._forget(execution)
            lease = execution.claimed.lease
            if lease.run_id in left:
                self._emit(HandedOver(_held_by(execution), lease.job_id, lease.run_id, lease.token, execution.claimed.task))

    async def _unaccepted(self, execution: Execution, outcome: Report) -> None:
        async with self._database.connection() as connection:
            fate = await runs.fate(connection, execution.claimed, outcome.status)
        if fate.recorded is not None:  # by the last try whose reply was lost, or by ctx.transaction()
            self._accepted(execution, outcome, fate.recorded)
        elif fate.held:  # a cancel came between; the next statement sees it
            self._again.append((execution, outcome))
        else:
            self.drop(execution)

    def drop(self, execution: Execution) -> None:
        """The lease has gone: the result is dropped, counted and told."""
        self._holdings.refused_count += 1
        self._forget(execution)
        lease = execution.claimed.lease
        self._emit(LeaseLost(_held_by(execution), lease.job_id, lease.run_id, lease.token))

    def _accepted(self, execution: Execution, outcome: Report, recorded: runs.Recorded | None = None) -> None:
        """Told as history has it, where that is known to differ from the report."""
        self._forget(execution)
        claimed = execution.claimed
        status, reason, ending = recorded or (outcome.status, outcome.reason, outcome.ending)
        self._emit(
            Ended(
                claimed.lease.worker_id,
                claimed.lease.job_id,
                claimed.lease.run_id,
                claimed.lease.token,
                claimed.task,
                status,
                ending,
                claimed.lease.attempt,
                (claimed.claimed_at - claimed.due_at).total_seconds() + (outcome.started_s or 0.0),
                outcome.took_s or 0.0,
                reason,
            )
        )

    def _forget(self, execution: Execution) -> None:
        execution.phase = Phase.GONE
        self._holdings.remove(execution)


def _words(execution: Execution, live: LiveOutput) -> dict[str, object]:
    lease = execution.claimed.lease
    return {"run_id": lease.run_id, "token": lease.token, "progress": live.progress_json, "output": live.output}


def _held_by(execution: Execution) -> UUID:
    worker_id = execution.claimed.lease.worker_id
    assert worker_id is not None, "an execution is always under a lease"  # noqa: S101
    return worker_id
