"""Reports that this worker is alive, with one row for all its runs, and compares the leases in the database with its own.

It runs in its own thread with its own connection, so a handler that keeps Python busy cannot delay it. When the event loop
hangs, it stops sending heartbeats on purpose, because no run of this worker makes progress then.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.duty_cycle import DutyCycle
from sexton.domain.run import Report
from sexton.errors import Contention, DatabaseDown, DataRefused
from sexton.ids import Rng
from sexton.operations import reconcile
from sexton.operations.caller import SCHEDULER
from sexton.store.database import Connection, Database, client_end
from sexton.store.fleet import workers
from sexton.store.work import runs
from sexton.telemetry.events import Emit, ExitForced, LoopStalled, Reconciled, StallHandedBack
from sexton.worker.stall import loop_watch
from sexton.worker.stall.loop_pulse import Pulse
from sexton.worker.stall.loop_watch import Blocker, StallWatch

from .execution import Execution, Phase
from .held_runs import HeldRuns
from .missing_settings import MissingSettings
from .own_session import OwnSession, may_be_taken_early

# Without a connection to the database, a worker stops its own runs this long before others may claim them: first by asking,
# then by force. For a short lease, at most a third and a twelfth of it.
ASK_S = 2.0
FORCE_S = 0.5
IDLE_BEAT_S_MAX = 2.0  # rule "any node does overdue work": a heartbeat also looks for work for an idle worker
AGAIN_S = 0.1  # after an answer over a session that has ended since
APART_S = 0.25  # if comparing all leases takes longer than this, it must not delay the heartbeat
ADVICE = "make the handler a plain function, or give it process=True"
OVERDUE_S = 5.0  # rule "any node does overdue work": an idle worker does what schedulers have not done for this long


def idle_beat_s(beat_s: float, lease_s: float) -> float:
    """A worker without runs beats half as often, because it has no leases to lose. But at least twice per lease, so that one
    lost heartbeat does not make it dead."""
    return max(beat_s, min(2 * beat_s, lease_s / 2, IDLE_BEAT_S_MAX))


class Owner(Protocol):
    """The worker, as its heartbeat sees it."""

    @property
    def worker_id(self) -> UUID: ...

    @property
    def enlisted(self) -> bool: ...

    @property
    def draining(self) -> bool: ...

    @property
    def process_tasks(self) -> frozenset[str]: ...

    @property
    def batch_tasks(self) -> frozenset[str]: ...

    @property
    def missing(self) -> MissingSettings: ...

    async def enlist(self, connection: Connection) -> None: ...

    def declared_lost(self, worker_id: UUID) -> None: ...

    def on_suspects(self) -> None:
        """A heartbeat has seen that suspects wait for a worker in quarantine."""

    def looked(self, *, is_ready: bool, is_overdue: bool, sent_at: float) -> None:
        """A heartbeat sent at `sent_at` has seen whether there is work."""


class LastResort(NamedTuple):
    """Ends the process if a handler blocks the event loop for ever: a supervisor sees only a process that has ended."""

    end: Callable[[ExitForced], object]  # from any thread
    limit_s: float  # how long the process may take to stop, added to the lease
    is_confined: bool = False  # in quarantine: as soon as its runs are handed back


class Heartbeat:
    name = "heartbeat"

    def __init__(
        self,
        database: Database,
        owner: Owner,
        held_runs: HeldRuns,
        pulse: Pulse,
        *,
        post: Callable[[Callable[[], None]], object],
        beat_s: float,
        lease_s: float,
        loop_stall_s: float,
        queues: Sequence[str],
        clock: Clock,
        emit: Emit,
        rng: Rng,
        last_resort: LastResort | None = None,
    ) -> None:
        """`post` passes a call to the event loop."""
        self._database, self._owner, self._held_runs, self._pulse, self._post = database, owner, held_runs, pulse, post
        self._beat_s, self._lease_s, self._loop_stall_s, self._queues = beat_s, lease_s, loop_stall_s, queues
        self._clock, self._emit, self._rng = clock, emit, rng
        self._beat_sent_at = clock.monotonic()  # the send time of the last heartbeat that was answered
        self._suspects: dict[tuple[UUID, int], frozenset[int]] = {}
        self._stalled = False
        self._stall = StallWatch(pulse, held_runs, loop_stall_s=loop_stall_s, clock=clock)
        self._blocker: Blocker | None = None  # of the present stall
        self._is_handed_back = self._has_tried = False
        self._refused_count = 0  # reports of the last hand-back that another session's lock refused
        self._last_resort = last_resort
        self._comparing = DutyCycle()  # for reading all leases of this worker from the database
        self._cut_short_count = 0  # how many of the interrupted claims were reconciled
        self._session = OwnSession(lease_s=lease_s, clock=clock)

    async def run_once(self) -> float:
        if self._loop_hangs():
            await self._hand_back()
            return self._beat_s
        try:
            await self._beat(self._clock.monotonic())
        except DatabaseDown:
            self._session.server_is_down()
            raise
        if self._session.is_over:
            return AGAIN_S
        return self._beat_s if len(self._held_runs) else idle_beat_s(self._beat_s, self._lease_s)

    @property
    def is_overdue(self) -> bool:
        """The worker should claim nothing: it would have to return it at once."""
        return self._session.should_ask or self._clock.monotonic() - self._beat_sent_at >= self._lease_s - min(
            ASK_S, self._lease_s / 3
        )

    def session_ended(self, number: int) -> bool:
        """A connection of the heartbeat has ended. True if sweepers may take this for the end of the worker from now on: then a
        heartbeat is urgent, and `watch` after each of `own_session.WATCH_AFTER_S`."""
        return self._session.ended(number)

    def watch(self) -> None:
        """If no heartbeat succeeded for most of a lease, or the session has ended and no heartbeat announced another one, other
        workers may soon claim the runs of this one, so it stops them first. The reports wait until the database is reachable
        again. Called regularly, because a heartbeat may also hang."""
        self._stall.look()
        self._end_if_stuck()
        elapsed_s = self._clock.monotonic() - self._beat_sent_at
        for execution in self._held_runs.all():
            lease_s = max(self._lease_s, execution.lease_s or 0.0)
            left_s = lease_s - elapsed_s
            is_cut_off = self._session.should_ask and may_be_taken_early(execution.claimed.lease)
            if execution.phase not in (Phase.TAKEN, Phase.RUNNING) or (left_s > min(ASK_S, lease_s / 3) and not is_cut_off):
                continue
            if not execution.stopping:
                self._post(partial(execution.release, "the database was not reachable"))
            elif left_s <= min(FORCE_S, lease_s / 12) or (is_cut_off and self._session.should_force):
                self._post(execution.force)  # never together with asking: a task needs a moment to be cancelled

    async def _beat(self, sent_at: float) -> None:
        held_before = self._held_runs.all()
        cut_short_count = self._held_runs.cut_short_count
        is_thorough = cut_short_count != self._cut_short_count or self._comparing.is_due(sent_at)
        is_apart = is_thorough and self._comparing.took_s > APART_S
        worker_id = self._owner.worker_id
        async with self._database.connection() as connection:
            if not self._owner.enlisted:
                await self._owner.enlist(connection)
            announced = self._session.announcing(client_end(connection))
            beaten = await workers.beat(
                connection,
                worker_id,
                running_count=len(held_before),
                draining=self._owner.draining,
                refused_count=self._held_runs.refused_count,
                process_running_count=sum(one.claimed.task in self._owner.process_tasks for one in held_before),
                batch_running_count=sum(one.claimed.task in self._owner.batch_tasks for one in held_before),
                lacks=self._owner.missing.names,
                queues=self._queues,
                overdue_s=None if held_before else OVERDUE_S,  # a busy worker does not do overdue work
                only=None if is_thorough and not is_apart else self._in_question(held_before),
                announced=announced,
                now=self._clock.database_now(),
            )
        if beaten is None:
            self._beat_sent_at = self._clock.monotonic()
            self._post(partial(self._owner.declared_lost, worker_id))
            return
        self._beat_sent_at = sent_at
        self._session.answered(announced, is_announced=beaten.is_announced)
        leased = beaten.held
        if not held_before:
            self._post(partial(self._owner.looked, is_ready=beaten.is_ready, is_overdue=beaten.is_overdue, sent_at=sent_at))
        if beaten.suspects_wait:
            self._post(self._owner.on_suspects)
        self._stop_the_lost(worker_id, held_before, leased)
        self._cancel_the_unwanted(leased)
        if is_apart:
            sent_at = self._clock.monotonic()
            async with self._database.connection() as connection:
                leased = await workers.leased(connection, worker_id)
        if is_thorough:
            self._comparing.note(sent_at, self._clock.monotonic())
            self._cut_short_count = cut_short_count
        await self._return_the_unknown(leased)

    def _in_question(self, held: list[Execution]) -> list[UUID]:
        """The runs to compare: those held, and those that may be held after a lost reply. Under load a full comparison always
        finds runs that were just claimed or just ended, and a second full comparison for those may take long."""
        return [*(execution.claimed.run_id for execution in held), *(run_id for run_id, _ in self._suspects)]

    def _stop_the_lost(self, worker_id: UUID, held_before: list[Execution], leased: list[workers.Held]) -> None:
        """Stops runs held since before the heartbeat whose lease is lost, and runs under an id that was declared
        dead."""
        ours = {(held.run_id, held.token) for held in leased}
        for execution in held_before:
            lease = execution.claimed.lease
            is_of_this_life = lease.worker_id == worker_id
            if (not is_of_this_life or lease.fence not in ours) and not execution.ending:
                self._post(execution.lose)

    def _cancel_the_unwanted(self, leased: list[workers.Held]) -> None:
        for held in leased:
            if held.cancel_requested:
                execution = self._held_runs.get(held.run_id, held.token)
                if execution is not None:
                    self._post(execution.cancel)

    async def _return_the_unknown(self, leased: list[workers.Held]) -> None:
        """Rule "reconcile lost replies": an unknown lease comes from a claim whose reply was lost. It is returned when every
        claim that was in progress at its first sight has ended, because only then no reply can still bring it."""
        # In this order, and after the heartbeat: a claim that started during the heartbeat is still in progress here, or its
        # runs are in the held_runs below.
        under_way = self._held_runs.claims_under_way
        unknown = {(held.run_id, held.token): held for held in leased if self._held_runs.get(held.run_id, held.token) is None}
        self._suspects = {fence: self._suspects.get(fence, under_way) for fence in unknown}
        orphans = [unknown[fence] for fence, since in self._suspects.items() if not since & under_way]
        if not orphans:
            return
        worker_id, reason, now = self._owner.worker_id, reconcile.REPLY_LOST, self._clock.database_now()
        async with self._database.connection() as connection:
            count = await reconcile.give_back(connection, SCHEDULER, worker_id, orphans, reason=reason, rng=self._rng, now=now)
        if count:
            self._emit(Reconciled(worker_id, count))

    def _loop_hangs(self) -> bool:
        stalled_s = self._clock.monotonic() - self._pulse.felt_at
        stalled = stalled_s > self._loop_stall_s
        if not stalled:
            self._blocker, self._is_handed_back, self._has_tried = None, False, False
        elif self._blocker is None:
            self._blocker = self._stall.blocker()
            if self._blocker is not None or not self._stalled:
                self._emit(self._stalled_event(stalled_s))
        self._stalled = stalled
        return stalled

    def _stalled_event(self, stalled_s: float) -> LoopStalled:
        if self._blocker is None:
            return LoopStalled(self._owner.worker_id, stalled_s)
        self._pulse.is_named = True
        claimed = self._blocker.execution.claimed
        return LoopStalled(self._owner.worker_id, stalled_s, claimed.task, claimed.run_id, self._blocker.place)

    async def _hand_back(self) -> None:
        """Rule "suspects apart": the worker names the run that blocks its loop. Only that one is charged. The others start
        elsewhere at once, instead of being lost together with it. What another session has locked is tried again."""
        if self._blocker is None or self._is_handed_back:
            return
        stalled_s = self._clock.monotonic() - self._pulse.felt_at
        async with self._database.connection() as connection:
            await workers.count_held(connection, self._owner.worker_id)
        reported = list(loop_watch.reports(self._blocker, self._held_runs.all(), stalled_s))
        self._refused_count = 0
        count = await self._finish([report for _, report in reported]) + await self._return_the_unheard()
        is_first, self._has_tried = not self._has_tried, True
        self._is_handed_back = not self._refused_count
        for execution, _ in reported:
            self._post(execution.lose)
            execution.ask_to_stop()  # a function in a thread sees it before the loop is back
        run_id = self._blocker.execution.claimed.run_id
        if is_first or count:
            self._emit(StallHandedBack(self._owner.worker_id, run_id, count))

    def _end_if_stuck(self) -> None:
        """Rule "leave in bounded time": a worker in quarantine ends when its runs are handed back: its parent starts the
        next one. Another worker waits until its lease is over for all that it has left, and then as long as a stop may take."""
        resort, blocked_s = self._last_resort, self._stall.blocked_s
        if resort is None or not blocked_s:
            return
        limit_s = 0.0 if resort.is_confined else self._loop_stall_s + self._lease_s + resort.limit_s
        may_end = self._is_handed_back if resort.is_confined else self._has_tried or self._blocker is None
        if blocked_s < limit_s or not may_end:
            return
        stuck_at = self._stall.place()
        if self._blocker is not None:
            claimed = self._blocker.execution.claimed
            stuck_at = f"{stuck_at}, in task {claimed.task}, run {claimed.run_id}"
        resort.end(ExitForced((), (), stuck_at, limit_s, ADVICE))

    async def _return_the_unheard(self) -> int:
        """Leases of claims whose reply waits for the loop. The intake drops them when the loop is back."""
        worker_id, now = self._owner.worker_id, self._clock.database_now()
        async with self._database.connection() as connection:
            leased = [held for held in await workers.leased(connection, worker_id) if not held.at_most_once]
            unheard = [held for held in leased if self._held_runs.get(held.run_id, held.token) is None]
            self._held_runs.returned |= {(held.run_id, held.token) for held in unheard}
            unheard = [held for held in unheard if self._held_runs.get(held.run_id, held.token) is None]
            if not unheard:
                return 0
            count = await reconcile.give_back(
                connection, SCHEDULER, worker_id, unheard, reason=loop_watch.REPLY_UNREAD, rng=self._rng, now=now
            )
            self._refused_count += len(unheard) - count
            return count

    async def _finish(self, reports: list[Report]) -> int:
        """How many were accepted. A run that another session has locked keeps back no other run."""
        if not reports:
            return 0
        try:
            async with self._database.connection() as connection:
                return len(await runs.finish(connection, reports, now=self._clock.database_now()))
        except (Contention, DataRefused) as error:
            middle = len(reports) // 2
            if middle:
                return await self._finish(reports[:middle]) + await self._finish(reports[middle:])
            self._refused_count += isinstance(error, Contention)
            return 0


class OwnThread:
    """A thread with its own event loop that runs one coroutine until it is asked to stop."""

    def __init__(self, name: str, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def call(self, function: Callable[[], None]) -> None:
        """Passes a call to the thread's loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    async def stop(self, patience_s: float) -> None:
        if self._stop is not None:
            self.call(self._stop.set)
        await asyncio.to_thread(self._thread.join, patience_s)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._main(self._stop)
