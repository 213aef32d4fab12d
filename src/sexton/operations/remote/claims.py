"""Claims for workers that use HTTP: the same statement and the same fairness as for built-in workers. Runs that never reached a
worker are given back at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.fairness import QueueTurns, Turns
from sexton.domain.fault import Invalid
from sexton.domain.outcome import ErrorInfo, Failed, Outcome, Succeeded
from sexton.domain.run import Claimed, Report, report
from sexton.errors import Contention, WorkerLost
from sexton.ids import Rng
from sexton.operations import reconcile
from sexton.operations.caller import Caller
from sexton.store.database import Connection, Database
from sexton.store.fleet import remote_workers
from sexton.store.fleet.remote_workers import RemoteWorker
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Claimed as ClaimedEvent
from sexton.telemetry.events import Emit, Reconciled, WorkerJoined

GRACE_MORE_S = 5.0  # in addition to the grace of the worker, as for built-in workers
UNHEARD_S = 10.0  # within this time the answer of a claim has reached its worker, or is lost
TURNS_LIMIT = 10_000  # of workers; the ones silent for the longest time are forgotten first
SUSPECTS_WAIT_S = 5.0  # then they come before the other runs, for a worker that holds nothing


class StopRun(NamedTuple):
    """What a worker must stop."""

    run_id: UUID
    why: Literal["cancelled", "lost"]


class RemoteClaims:
    def __init__(self, database: Database, *, grace_s: float, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._database, self._clock, self._emit, self._rng = database, clock, emit, rng
        self._grace_s = grace_s + GRACE_MORE_S
        self._turns: OrderedDict[tuple[UUID, frozenset[str], frozenset[str]], tuple[QueueTurns, Turns]] = OrderedDict()
        self._suspects_since: dict[
            tuple[frozenset[str], frozenset[str]], float
        ] = {}  # by queues and tasks: since when they wait

    async def attend(self, caller: Caller, worker: RemoteWorker) -> list[StopRun]:
        """Records a heartbeat. Returns what the worker must stop."""
        async with self._database.connection() as connection:
            attendance = await remote_workers.attend(connection, worker, now=self._clock.database_now())
            if attendance.is_ours:
                raise Invalid("worker_id", "this is the id of a worker that does not use HTTP; leave it out to get your own")
            if not attendance.is_present:
                raise _lost(worker.id)
            if attendance.is_new:
                self._emit(WorkerJoined(worker.id, worker.name))
            self._note_suspects(worker, attendance.suspects_wait)
            if worker.holding is None:
                return []
            # The worker asks for more, so the answer to its last claim has arrived, or is lost.
            return await self._compare(connection, caller, worker.id, worker.holding, unheard_s=0.0)

    async def beat(
        self, caller: Caller, worker_id: UUID, holding: Collection[UUID] | None, *, draining: bool
    ) -> tuple[float, list[StopRun]]:
        """Returns its lease in seconds, and what it must stop."""
        async with self._database.connection() as connection:
            lease_s = await remote_workers.beat(connection, worker_id, draining=draining, now=self._clock.database_now())
            if lease_s is None:
                raise _lost(worker_id)
            return lease_s, await self._compare(connection, caller, worker_id, holding, unheard_s=UNHEARD_S)

    async def leave(self, caller: Caller, worker_id: UUID) -> int:
        """Gives back all runs of the worker, and removes it."""
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
        """Rule "reconcile lost replies": compares the runs that the database assigns to the worker with those that the worker
        reports. Unknown runs are given back, and the worker learns what to stop."""
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
        count = await reconcile.give_back(connection, caller, worker_id, held, reason=reason, rng=self._rng, now=now)
        if count:
            self._emit(Reconciled(worker_id, count))
        return count

    async def take(self, caller: Caller, worker: RemoteWorker, *, more_wait: Callable[[], None]) -> list[Claimed]:
        """Returns the runs that it may start now. Calls `more_wait` if the claim was as large as allowed."""
        while True:
            async with self._database.connection() as connection:
                claimed = await self._claim(connection, worker)
                if not claimed:
                    return []
                self._emit(ClaimedEvent(worker.id, len(claimed)))
                if len(claimed) >= worker.limit:
                    more_wait()
            # On connections of their own: the claim stands, whatever another transaction holds. It must not start again.
            to_start = await self._settle(claimed)
            with suppress(Contention):  # `attend` has just recorded a heartbeat
                async with self._database.connection() as connection:
                    await remote_workers.beat(connection, worker.id, now=self._clock.database_now())
            if to_start:
                return to_start

    async def _claim(self, connection: Connection, worker: RemoteWorker) -> list[Claimed]:
        """Rule "suspects apart": a remote worker has no child for them. One that holds nothing gets them if there is nothing
        else, or if they have waited; the store gives it nothing else until they have ended."""
        since_s = self._suspects_since.get(_served(worker))
        if since_s is not None and self._clock.monotonic() - since_s > SUSPECTS_WAIT_S:
            suspects = await self._claim_suspects(connection, worker)
            if suspects:
                return suspects
        queues, turns = self._turns_of(worker)
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
        return claimed or await self._claim_suspects(connection, worker)

    async def _claim_suspects(self, connection: Connection, worker: RemoteWorker) -> list[Claimed]:
        return await runs.claim_suspects(
            connection,
            worker.id,
            queues=list(worker.queues),
            tasks=list(worker.tasks),
            wanted=worker.limit,
            grace_s=self._grace_s,
            now=self._clock.database_now(),
        )

    def _note_suspects(self, worker: RemoteWorker, wait: bool) -> None:
        if wait and len(self._suspects_since) < TURNS_LIMIT:
            self._suspects_since.setdefault(_served(worker), self._clock.monotonic())
        else:
            self._suspects_since.pop(_served(worker), None)

    async def _settle(self, claimed: list[Claimed]) -> list[Claimed]:
        """Ends runs that must not be started, as a built-in worker would. Each by itself: one that another transaction has
        locked is returned by the next comparison (`_compare`), and the others reach the worker now."""
        decided = [(one, _foregone(one)) for one in claimed]
        reports = [
            report(one.lease, outcome, self._rng, started_s=0.0, took_s=0.0, key=one.idempotency_key)
            for one, outcome in decided
            if outcome is not None
        ]
        if reports:
            async with self._database.connection() as connection:
                await runs.finish_each(connection, reports, now=self._clock.database_now())
        return [one for one, outcome in decided if outcome is None]

    async def give_back(self, caller: Caller, claimed: Sequence[Claimed]) -> None:
        """The worker closed the connection before the answer. It does not know these runs, so not even an at-most-once run has
        started."""
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
                reason="the worker that asked for it closed the connection before the answer",
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


def _served(worker: RemoteWorker) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(worker.queues), frozenset(worker.tasks)


def refuse_reserved(worker_id: UUID | None) -> None:
    if worker_id == callbacks.HOLDER:
        raise Invalid("worker_id", "this id is reserved; leave it out to get your own")


def _lost(worker_id: UUID) -> WorkerLost:
    how = "declared dead, or never registered: drop its runs, and acquire without `worker_id` to register again"
    return WorkerLost(f"the worker {worker_id} was {how}")


def _foregone(claimed: Claimed) -> Outcome | None:
    if claimed.completed_by is not None:
        return Succeeded(reason=f"its idempotency key was already completed by execution {claimed.completed_by}")
    if claimed.payload_json is None:
        gone = "the definition of this job no longer exists; it was older than the history that is kept"
        return Failed(ErrorInfo("sexton.errors.PermanentError", gone), permanent=True)
    return None
