"""Claims for workers that speak HTTP: the same statement and the same fairness as for ours. What no worker has heard of goes
back at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.fairness import QueueTurns, Turns
from sexton.domain.fault import Invalid
from sexton.domain.outcome import ErrorInfo, Failed, Outcome, Succeeded
from sexton.domain.run import Claimed, Report, report
from sexton.errors import WorkerLost
from sexton.ids import Rng
from sexton.store.database import Connection, Database
from sexton.store.fleet import remote_workers
from sexton.store.fleet.remote_workers import RemoteWorker
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Claimed as ClaimedEvent
from sexton.telemetry.events import Emit, Reconciled, WorkerJoined

from . import reconcile
from .caller import Caller

GRACE_MORE_S = 5.0  # beyond the worker's grace, as for our own
UNHEARD_S = 10.0  # a claim's answer is with its worker by then, or never will be
TURNS_LIMIT = 10_000  # of workers, the longest silent forgotten first


class StopRun(NamedTuple):
    """What a worker should stop."""

    run_id: UUID
    why: Literal["cancelled", "lost"]


class RemoteClaims:
    def __init__(self, database: Database, *, grace_s: float, clock: Clock, emit: Emit, dice: Rng) -> None:
        self._database, self._clock, self._emit, self._dice = database, clock, emit, dice
        self._grace_s = grace_s + GRACE_MORE_S
        self._turns: OrderedDict[tuple[UUID, frozenset[str], frozenset[str]], tuple[QueueTurns, Turns]] = OrderedDict()

    async def attend(self, caller: Caller, worker: RemoteWorker) -> list[StopRun]:
        """It is alive, and hears what it should stop."""
        async with self._database.connection() as connection:
            attendance = await remote_workers.attend(connection, worker, now=self._clock.database_now())
            if attendance.is_ours:
                raise Invalid("worker_id", "this is the id of a worker that does not speak HTTP; leave it out to get your own")
            if not attendance.is_present:
                raise _lost(worker.id)
            if attendance.is_new:
                self._emit(WorkerJoined(worker.id, worker.name))
            if worker.holding is None:
                return []
            # It asks for more, so the answer to its last claim is in, or is lost.
            return await self._compare(connection, caller, worker.id, worker.holding, unheard_s=0.0)

    async def beat(
        self, caller: Caller, worker_id: UUID, holding: Collection[UUID] | None, *, draining: bool
    ) -> tuple[float, list[StopRun]]:
        """Its lease in seconds, and what it should stop."""
        async with self._database.connection() as connection:
            lease_s = await remote_workers.beat(connection, worker_id, draining=draining, now=self._clock.database_now())
            if lease_s is None:
                raise _lost(worker_id)
            return lease_s, await self._compare(connection, caller, worker_id, holding, unheard_s=UNHEARD_S)

    async def leave(self, caller: Caller, worker_id: UUID) -> int:
        """Hands back all that it holds, and forgets it."""
        async with self._database.connection() as connection:
            if await remote_workers.beat(connection, worker_id, draining=True, now=self._clock.database_now()) is None:
                raise _lost(worker_id)
            held = await remote_workers.held(connection, worker_id, now=self._clock.database_now())
            returned = await self._return(connection, caller, worker_id, held, reason="its worker has left")
            await remote_workers.leave(connection, worker_id)
        return returned

    async def _compare(
        self,
        connection: Connection,
        caller: Caller,
        worker_id: UUID,
        holding: Collection[UUID] | None,
        *,
        unheard_s: float,
    ) -> list[StopRun]:
        """Rule "reconcile lost replies": compares what the database believes the worker holds with what the worker says. The
        unknown goes back, and the worker hears what to stop."""
        held = await remote_workers.held(connection, worker_id, now=self._clock.database_now())
        known = {one.run_id for one in held} if holding is None else set(holding)
        unknown = [one for one in held if one.run_id not in known and one.held_s >= unheard_s]
        await self._return(connection, caller, worker_id, unknown, reason=reconcile.REPLY_LOST)
        cancelled = [
            StopRun(run_id=one.run_id, why="cancelled") for one in held if one.cancel_requested and one.run_id in known
        ]
        lost = [StopRun(run_id=run_id, why="lost") for run_id in sorted(known - {one.run_id for one in held})]
        return [*cancelled, *lost]

    async def _return(
        self, connection: Connection, caller: Caller, worker_id: UUID, held: Sequence[remote_workers.Held], *, reason: str
    ) -> int:
        if not held:
            return 0
        now = self._clock.database_now()
        count = await reconcile.give_back(connection, caller, worker_id, held, reason=reason, dice=self._dice, now=now)
        if count:
            self._emit(Reconciled(worker_id, count))
        return count

    async def take(self, caller: Caller, worker: RemoteWorker, *, more_wait: Callable[[], None]) -> list[Claimed]:
        """What it may start now. `more_wait` hears of a claim as large as it might be."""
        queues, turns = self._turns_of(worker)
        while True:
            async with self._database.connection() as connection:
                claimed = await runs.claim(
                    connection,
                    worker_id=worker.id,
                    queues=queues.following(),
                    tasks=list(worker.tasks),
                    limit=worker.limit,
                    grace_s=self._grace_s,
                    turns=turns.as_json(),
                    now=self._clock.database_now(),
                )
                turns.note(claimed)
                if not claimed:
                    return []
                self._emit(ClaimedEvent(worker.id, len(claimed)))
                if len(claimed) >= worker.limit:
                    more_wait()
                to_start = await self._settle(connection, claimed)
                await remote_workers.beat(connection, worker.id, now=self._clock.database_now())
            if to_start:
                return to_start

    async def _settle(self, connection: Connection, claimed: list[Claimed]) -> list[Claimed]:
        """Ends those that are not to be started, as a worker of ours would."""
        decided = [(one, _foregone(one)) for one in claimed]
        reports = [
            report(one.lease, outcome, self._dice, started_s=0.0, took_s=0.0, key=one.idempotency_key)
            for one, outcome in decided
            if outcome is not None
        ]
        if reports:
            await runs.finish(connection, reports, now=self._clock.database_now())
        return [one for one, outcome in decided if outcome is None]

    async def give_back(self, caller: Caller, claimed: Sequence[Claimed]) -> None:
        """The worker hung up before the answer: it has not heard of these, so not even an at-most-once run has begun."""
        if not claimed:
            return
        reports = [
            Report(
                run_id=one.lease.run_id,
                token=one.lease.token,
                worker_id=one.lease.worker_id,
                next="again",
                status="released",
                delay_s=0.0,
                spends="nothing",
                reason="the worker that asked for it hung up before the answer",
            )
            for one in claimed
        ]
        async with self._database.connection() as connection:
            await runs.finish(connection, reports, now=self._clock.database_now())

    def _turns_of(self, worker: RemoteWorker) -> tuple[QueueTurns, Turns]:
        key = (worker.id, frozenset(worker.queues), frozenset(worker.tasks))
        found = self._turns.pop(key, None) or (QueueTurns(tuple(dict.fromkeys(worker.queues))), Turns())
        self._turns[key] = found
        if len(self._turns) > TURNS_LIMIT:
            self._turns.popitem(last=False)
        return found


def refuse_reserved(worker_id: UUID | None) -> None:
    if worker_id == callbacks.HOLDER:
        raise Invalid("worker_id", "this id is reserved; leave it out to get your own")


def _lost(worker_id: UUID) -> WorkerLost:
    how = "declared dead, or never here: drop what it holds, and acquire without `worker_id` to join anew"
    return WorkerLost(f"the worker {worker_id} was {how}")


def _foregone(claimed: Claimed) -> Outcome | None:
    if claimed.completed_by is not None:
        return Succeeded(reason=f"its key was completed before, by execution {claimed.completed_by}")
    if claimed.payload_json is None:
        gone = "the definition of this job is gone; it was older than the history that is kept"
        return Failed(ErrorInfo("sexton.errors.PermanentError", gone), permanent=True)
    return None
