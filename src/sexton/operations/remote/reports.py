"""Reports that arrive over HTTP, from remote workers and from targets that call back. Each presents its lease; the run ends
by the statement that ends every run (rule "one path in, one path out")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.domain.outcome import Cancelled, Outcome, Released, Snoozed, Succeeded, status_of, storable
from sexton.domain.run import Report, report
from sexton.domain.signed_lease import SignedLease
from sexton.errors import Contention, DataRefused, LeaseLost
from sexton.ids import Rng
from sexton.operations.caller import Caller
from sexton.store.database import Connection, Database
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Emit, Ended

TRIES = 3  # between the read and the report there may be one hand-over and one cancel
OUTPUT_BYTES_LIMIT = 64 * 1024


class Item(NamedTuple):
    lease: SignedLease
    outcome: Outcome
    result: msgspec.Raw | None = None
    output: str | None = None


class Reported(NamedTuple):
    run_id: UUID
    execution_id: UUID
    status: str
    state: str | None  # the current state of the run; null: it has ended


Settled = Reported | LeaseLost | DataRefused | Contention


class LeaseReports:
    def __init__(self, database: Database, *, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._database, self._clock, self._emit, self._rng = database, clock, emit, rng

    async def settle(self, caller: Caller, item: Item) -> Reported:
        async with self._database.connection() as connection:
            (settled,) = await self._settle_all(connection, [item])
        if isinstance(settled, Exception):
            raise settled
        return settled

    async def settle_all(self, caller: Caller, items: Sequence[Item]) -> list[Settled]:
        """If the database cannot store one report, or another transaction has locked its run, only that one fails."""
        try:
            try:
                async with self._database.connection() as connection:
                    return await self._settle_all(connection, items)
            except Contention:
                async with self._database.connection() as connection:
                    return await self._settle_all(connection, items, one_by_one=True)
        except DataRefused as error:
            if len(items) == 1:
                return [error]
        middle = len(items) // 2
        return [*await self.settle_all(caller, items[:middle]), *await self.settle_all(caller, items[middle:])]

    async def hear(
        self, caller: Caller, lease: SignedLease, *, progress: msgspec.Raw | None, output: str | None
    ) -> callbacks.Heard:
        """A heartbeat of a run that continues."""
        async with self._database.connection() as connection:
            now = self._clock.database_now()
            heard = await callbacks.hear(connection, lease, progress=progress, output=output, now=now)
        if heard is None:
            raise _lease_lost(lease, "has ended, or another worker has it now")
        return heard

    async def _settle_all(self, connection: Connection, items: Sequence[Item], *, one_by_one: bool = False) -> list[Settled]:
        settled: dict[int, Settled] = {}
        for attempt in range(TRIES):
            open_items = {index: item for index, item in enumerate(items) if index not in settled}
            if not open_items:
                break
            settled |= await self._round(connection, open_items, is_last=attempt == TRIES - 1, one_by_one=one_by_one)
        return [settled[index] for index in range(len(items))]

    async def _round(
        self, connection: Connection, items: dict[int, Item], *, is_last: bool, one_by_one: bool
    ) -> dict[int, Settled]:
        leases = [item.lease for item in items.values()]
        held = await callbacks.leases(connection, leases, now=self._clock.database_now())
        reports = {
            index: self._report(held[item.lease.run_id], item)
            for index, item in items.items()
            if item.lease.run_id in held and held[item.lease.run_id].lease.token == item.lease.token
        }
        rows, locked = list[runs.Finished](), set[UUID]()
        if reports:
            to_end, now = list(reports.values()), self._clock.database_now()
            if one_by_one:  # rule "a waiting caller leaves the group"
                rows, locked = await runs.finish_each(connection, to_end, now=now)
            else:
                rows = await runs.finish(connection, to_end, now=now)
        finished = {row.run_id: row for row in rows}
        settled: dict[int, Settled] = {}
        for index, item in items.items():
            ended = finished.get(item.lease.run_id) if index in reports else None
            if item.lease.run_id in locked:
                what = f"another transaction has locked the run {item.lease.run_id}; report it again shortly"
                settled[index] = Contention(what, waits_for="run")
            elif ended is not None:
                settled[index] = self._ended(held[item.lease.run_id], reports[index], ended)
            elif index not in reports or is_last:
                settled[index] = await self._unaccepted(connection, item)
        return settled

    def _report(self, held: callbacks.HeldLease, item: Item) -> Report:
        outcome = item.outcome
        if held.cancel_requested and isinstance(outcome, Released | Snoozed):
            outcome = Cancelled()
        return report(
            held.lease,
            outcome,
            self._rng,
            started_s=0.0,
            took_s=held.held_s,
            result=item.result,
            output=_joined(held.lease.output, item.output),
            key=held.key if isinstance(outcome, Succeeded) else None,
        )

    def _ended(self, held: callbacks.HeldLease, outcome: Report, row: runs.Finished) -> Reported:
        lease = held.lease
        self._emit(
            Ended(
                lease.worker_id,
                lease.job_id,
                lease.run_id,
                lease.token,
                held.task,
                outcome.status,
                outcome.ending,
                lease.attempt,
                held.lag_s,
                held.held_s,
                outcome.reason,
            )
        )
        return Reported(
            run_id=lease.run_id,
            execution_id=row.execution_id,
            status=outcome.status,
            state=row.state,
        )

    async def _unaccepted(self, connection: Connection, item: Item) -> Settled:
        """Rule "reconcile lost replies": a repeated report is not an error, because the answer to the first may have been
        lost."""
        recorded = await callbacks.recorded(connection, item.lease)
        if recorded is not None and recorded.status in _same(item.outcome):
            return Reported(
                run_id=item.lease.run_id,
                execution_id=recorded.execution_id,
                status=recorded.status,
                state=recorded.state,
            )
        ended = "now belongs to another worker" if recorded is None else f"has already ended, as {recorded.status}"
        return _lease_lost(item.lease, ended)


def _lease_lost(lease: SignedLease, what: str) -> LeaseLost:
    return LeaseLost(f"this attempt of the run {lease.run_id} {what}; stop, and discard its result")


def _same(outcome: Outcome) -> tuple[str, ...]:
    """The statuses that this report would have produced."""
    own = str(status_of(outcome))
    return (own, "cancelled") if isinstance(outcome, Released | Snoozed) else (own,)


def _joined(before: str | None, given: str | None) -> str | None:
    """The whole output; if it is too long, its newest part."""
    texts = [text for text in (before, None if given is None else storable(given)) if text]
    if not texts:
        return None
    return "\n".join(texts).encode()[-OUTPUT_BYTES_LIMIT:].decode(errors="ignore")
