"""Writes outcomes in batches. Each report contains its lease; a report with a lost lease changes nothing and is dropped.

While one batch is being written, the next one collects, so an idle worker reports at once and a busy one in bulk. A report
that has to wait for another transaction waits alone, and the others go on.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby, islice
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.outcome import ErrorInfo, Failed
from sexton.domain.run import Report, report
from sexton.errors import Contention, DataRefused
from sexton.handlers.live_output import LiveOutput
from sexton.ids import Rng
from sexton.service import Wake
from sexton.store.database import Database
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Emit, Ended, HandedOver, LeaseLost

from .execution import Execution, Phase
from .held_runs import HeldRuns
from .held_up_reports import HeldUpReports
from .progress_writer import store_output

BATCH = 1000
ALONE_BATCH = 100  # reports written one by one in a transaction
REST_S = 60.0
LOCKED_S = 1.0  # until the next try to hand over a run that another transaction has locked


class Reporter:
    name = "reporter"

    def __init__(self, database: Database, held_runs: HeldRuns, *, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._database, self._held_runs, self._clock, self._emit, self._rng = database, held_runs, clock, emit, rng
        self._held_up = HeldUpReports(database, clock=clock, emit=emit)
        self._pending: deque[tuple[Execution, Report]] = deque()
        self._again: list[tuple[Execution, Report]] = []
        self._leaving: deque[tuple[Execution, LiveOutput | None]] = deque()
        self._locked_leaving: deque[tuple[float, Execution, LiveOutput | None]] = deque()  # with the time of the next try
        self.wake = Wake()

    def add(self, execution: Execution, outcome: Report) -> None:
        self._pending.append((execution, outcome))
        self.wake()

    def hand_over(self, execution: Execution, live: LiveOutput | None) -> None:
        """Its work continues elsewhere, and the target that does it gets the lease."""
        self._leaving.append((execution, live))
        self.wake()

    @property
    def pending_count(self) -> int:
        return len(self._pending) + len(self._leaving) + len(self._locked_leaving) + len(self._held_up)

    async def run_once(self) -> float:
        batch = list(islice(self._pending, BATCH))
        if batch:
            self._again.clear()
            # Some may already be done, if this is a second try after a partial failure.
            await self._send([item for item in batch if item[0].phase is not Phase.GONE and item[0] not in self._held_up])
            # Only now: a batch whose reply was lost is sent again, and its reports are found recorded.
            for _ in batch:
                self._pending.popleft()
            self._pending.extend(self._again)
        while self._locked_leaving and self._locked_leaving[0][0] <= self._clock.monotonic():
            self._leaving.append(self._locked_leaving.popleft()[1:])
        if self._leaving:
            await self._hand_over(list(islice(self._leaving, BATCH)))
        if self._held_up:
            await self._one_by_one(self._held_up.due())
            await self._held_up.warn()
        if self._pending or self._leaving:
            return 0.0
        return self._held_up.rest_s(LOCKED_S if self._locked_leaving else REST_S)

    async def _send(self, batch: list[tuple[Execution, Report]]) -> None:
        if not batch:
            return
        try:
            finished = await self._finish([outcome for _, outcome in batch])
        except DataRefused as refusal:
            await self._bisect(batch, refusal)
        except Contention:
            await self._one_by_one(batch)
        else:
            await self._settle(batch, finished)

    async def _one_by_one(self, batch: list[tuple[Execution, Report]]) -> None:
        """Rule "a waiting caller leaves the group": each by itself, in few round trips that wait for none of them."""
        for start in range(0, len(batch), ALONE_BATCH):
            part = batch[start : start + ALONE_BATCH]
            try:
                async with self._database.connection() as connection:
                    reports, now = [outcome for _, outcome in part], self._clock.database_now()
                    finished, locked = await runs.finish_each(connection, reports, now=now)
            except DataRefused as refusal:
                await self._bisect(part, refusal)
                continue
            for execution, outcome in part:
                if outcome.run_id in locked:
                    self._held_up.add(execution, outcome)
            await self._settle([item for item in part if item[1].run_id not in locked], finished)

    async def _settle(self, batch: list[tuple[Execution, Report]], finished: list[runs.Finished]) -> None:
        if len(finished) == len(batch):
            for execution, outcome in batch:
                self._accepted(execution, outcome)
            return
        accepted = {row.run_id for row in finished}
        # A run that was swept while its report waited, and claimed again by this worker, is here with two tokens. The history
        # knows which one counts.
        accepted -= {run_id for run_id, times in Counter(outcome.run_id for _, outcome in batch).items() if times > 1}
        for execution, outcome in batch:
            if outcome.run_id in accepted:
                self._accepted(execution, outcome)
            else:
                await self._unaccepted(execution, outcome)

    async def _finish(self, reports: list[Report]) -> list[runs.Finished]:
        # On its own connection, because errors of the driver are translated when it is returned to the pool.
        async with self._database.connection() as connection:
            return await runs.finish(connection, reports, now=self._clock.database_now())

    async def _bisect(self, batch: list[tuple[Execution, Report]], refusal: DataRefused) -> None:
        """Rule "bisect bad batches": a report that the database cannot store does not block the others. It becomes a permanent
        failure that says so."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
            return
        execution, outcome = batch[0]
        refused = Failed(
            ErrorInfo("sexton.errors.DataRefused", f"PostgreSQL rejected the handler's result: {refusal}"), permanent=True
        )
        plain = report(execution.claimed.lease, refused, self._rng, started_s=outcome.started_s, took_s=outcome.took_s)
        await self._one_by_one([(execution, plain)])

    async def _hand_over(self, batch: list[tuple[Execution, LiveOutput | None]]) -> None:
        """If the lease is no longer held, a faster callback has ended the run, or the run was lost. No result is dropped, so no
        event is emitted. The same applies after a lost reply."""
        left, locked = set[UUID](), set[UUID]()
        # The worker has two ids after it was declared dead.
        for worker_id, each in groupby(batch, key=lambda item: item[0].worker_id):
            leaving = list(each)
            outputs = [_output_of(execution, live) for execution, live in leaving if live is not None]
            fences = [execution.claimed.lease.fence for execution, _ in leaving]
            if outputs:
                await store_output(self._database, worker_id, outputs, clock=self._clock)
            async with self._database.connection() as connection:
                gone = await callbacks.hand_over(connection, worker_id, fences, now=self._clock.database_now())
                others = [fence for fence in fences if fence[0] not in gone]
                locked |= await callbacks.still_held(connection, worker_id, others) if others else set()
            left |= gone
        for execution, live in batch:
            self._leaving.popleft()
            lease = execution.claimed.lease
            if lease.run_id in locked:
                self._locked_leaving.append((self._clock.monotonic() + LOCKED_S, execution, live))
                continue
            self._forget(execution)
            if lease.run_id in left:
                self._emit(HandedOver(execution.worker_id, lease.job_id, lease.run_id, lease.token, execution.claimed.task))

    async def _unaccepted(self, execution: Execution, outcome: Report) -> None:
        async with self._database.connection() as connection:
            known = await runs.recorded_outcome(connection, execution.claimed, outcome.status)
        if known.recorded is not None:  # by an earlier try whose reply was lost, or by ctx.transaction()
            self._accepted(execution, outcome, known.recorded)
        elif known.held:  # a cancel came in between; the next statement sees it
            self._again.append((execution, outcome))
        else:
            self.drop(execution)

    def drop(self, execution: Execution) -> None:
        """The lease is lost: the result is dropped and counted, and an event is emitted."""
        self._held_runs.refused_count += 1
        self._forget(execution)
        lease = execution.claimed.lease
        self._emit(LeaseLost(execution.worker_id, lease.job_id, lease.run_id, lease.token))

    def _accepted(self, execution: Execution, outcome: Report, recorded: runs.Recorded | None = None) -> None:
        """Emits the event as the history has it, if that is known to differ from the report."""
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
        self._held_up.discard(execution)
        self._held_runs.remove(execution)


def _output_of(execution: Execution, live: LiveOutput) -> dict[str, object]:
    lease = execution.claimed.lease
    return {"run_id": lease.run_id, "token": lease.token, "progress": live.progress_json, "output": live.output}
