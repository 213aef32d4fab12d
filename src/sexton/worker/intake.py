"""Claims runs as fast as slots become free: one at once when idle, hundreds at a time under load.

A full worker leaves runs in the store. It prefetches at most the runs that start within about 50 ms at the current rate
(rule "bounded prefetch"), and returns those that do not start. Under load two claims are in progress: while the worker starts
the runs of one claim, the database works on the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.dispatch.transport import Transport
from sexton.domain.run import Claimed
from sexton.ids import Rng
from sexton.service import Wake
from sexton.telemetry.events import Claimed as ClaimedEvent
from sexton.telemetry.events import Emit

from .execution import Execution, Phase
from .held_runs import HeldRuns
from .overdue import OverdueWork

CLAIM_LIMIT = 1000
AHEAD_S = 0.05
AHEAD_LIMIT = 2000
STALE_S = 1.0  # prefetched and not started for this long: another worker may be faster
LAST_LOOK_S = 0.015  # longer than submitters suppress notifications (10 ms): one more claim closes that gap
GATHER_S = 0.005  # under load, wait for more free slots instead of claiming one by one
GATHER_LIMIT = 250
OVERDUE_LOOK_S = 5.0
UNREPORTED_LIMIT = 5_000  # ended but not yet reported: if the worker dies now, each counts as lost
PACE_WINDOW_S = 0.02
SECOND_HAND_MIN = 8  # runs: below it, a second claim costs more than it gains
TURN_S = 0.5  # at least this often, a claim asks only for free slots: at-most-once and limited runs are never prefetched
POLL_S_MAX = 2.0  # rule "any node does overdue work": the longest wait where a run could become ready without a notification


class Slots:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def free(self) -> int:
        return self.limit - self.used


class Hand:
    """One of the two claimers. Each is a service with its own transport, which remembers the tenant that is next."""

    def __init__(self, name: str, transport: Transport, claim_once: Callable[[Hand], Awaitable[float]]) -> None:
        self.name = name
        self.wake = Wake()
        self.transport = transport
        self.claiming = asyncio.Lock()
        self.claimed_ahead = False  # whether its last claim prefetched
        self._claim_once = claim_once

    async def run_once(self) -> float:
        return await self._claim_once(self)


class Intake:
    def __init__(
        self,
        name: str,
        transports: Sequence[Transport],
        tasks: Sequence[str],
        slots: Slots,
        held_runs: HeldRuns,
        *,
        overdue: OverdueWork | None,
        worker_id: Callable[[], UUID],
        begin: Callable[[Claimed, float], Execution],
        may_claim: Callable[[], bool] = lambda: True,
        unreported_count: Callable[[], int] = lambda: 0,
        takes_ahead: bool,
        poll_s: float,
        clock: Clock,
        emit: Emit,
        rng: Rng,
    ) -> None:
        """Has one hand per transport. The others stay idle until there is more work than the first can claim."""
        self.hands = [Hand(f"{name} {n}" if n else name, transport, self._claim_once) for n, transport in enumerate(transports)]
        self.slots = slots
        self.open = True
        self.tasks = list(tasks)
        self._held_runs, self._overdue = held_runs, overdue
        self._may_claim, self._unreported_count = may_claim, unreported_count
        self._worker_id, self._begin, self._takes_ahead = worker_id, begin, takes_ahead
        self._poll_s, self._clock, self._emit, self._rng = min(poll_s, POLL_S_MAX), clock, emit, rng
        self._backlog: deque[Execution] = deque()
        self._more_waits = False  # the last claim returned as many runs as it asked for
        self._owes_a_look = False
        self._is_starting = False
        self._asked_count = 0  # by claims in progress
        self._promised_count = 0  # slots reserved for claims in progress: their runs must not wait
        self._claimed_at_once_at = clock.monotonic()
        self._found_held_back = False  # the last claim that could find runs that are never prefetched found some
        self._found_others = False
        self._saw_to_overdue_at = clock.monotonic()
        self._pace_per_s = 0.0
        self._paced_at = clock.monotonic()
        self._started_count = 0

    @property
    def wake(self) -> Wake:
        """The wake-up of the first hand."""
        return self.hands[0].wake

    @property
    def backlog_count(self) -> int:
        """Runs that are leased and have not started."""
        return len(self._backlog)

    async def run_once(self) -> float:
        """One pass of the first hand."""
        return await self.hands[0].run_once()

    async def _claim_once(self, hand: Hand) -> float:
        if not self.open or not self._may_claim():
            return self._poll_s / 4
        if self._unreported_count() >= UNREPORTED_LIMIT:
            return GATHER_S
        self._start_waiting()
        limit, ahead = self._how_many(hand)
        if hand is not self.hands[0] and (not self._more_waits or limit < max(SECOND_HAND_MIN, self.slots.limit // 4)):
            return self._poll_s
        if limit <= 0:
            self._more_waits = True  # not known, so assume it; the next free slot wakes the intake
            return min(self._poll_s, STALE_S) if self.backlog_count else self._poll_s
        if self._more_waits and limit < self._worth_a_claim(ahead=ahead):
            return GATHER_S
        claimed = await self._take(hand, limit, ahead=ahead)
        self._more_waits = len(claimed) >= limit or (ahead and self._found_held_back)
        if self._more_waits or (ahead and not claimed):  # runs that are never prefetched may be ready: claim once more at once
            return 0.0
        if claimed or self._owes_a_look:
            self._owes_a_look = False
            return LAST_LOOK_S
        await self._do_overdue_work()
        return self._poll_s * self._rng.uniform(0.8, 1.0)

    def hear(self) -> None:
        """Something may be ready."""
        self._owes_a_look = True
        self.wake()

    def slot_freed(self) -> None:
        self.slots.used -= 1
        self._start_waiting()
        if self._more_waits:
            for hand in self.hands:
                hand.wake()

    def close(self, reason: str) -> None:
        """Stops claiming, and returns the runs that have not started."""
        self.open = False
        while self._backlog:
            execution = self._backlog.popleft()
            if execution.claimed.lease.at_most_once:
                self._start(execution)  # its claim counts as its start: if it were returned, it would go to the dead letters
            else:
                execution.release(reason)

    async def at_rest(self) -> None:
        """Returns when no claim is in progress."""
        for hand in self.hands:
            async with hand.claiming:
                pass

    async def _take(self, hand: Hand, limit: int, *, ahead: bool) -> list[Claimed]:
        sent_at = self._clock.monotonic()
        async with hand.claiming:
            promised = 0 if ahead else limit
            self._asked_count += limit
            self._promised_count += promised
            try:
                with self._held_runs.claiming():
                    claimed = await hand.transport.take(self._worker_id(), self.tasks, limit, ahead=ahead)
                    self._receive(claimed, ahead=ahead)
            finally:
                self._asked_count -= limit
                self._promised_count -= promised
            self._note(hand, claimed, sent_at, ahead=ahead)
            if self.open:
                self._start_waiting()
            else:
                self.close("the worker is draining")
        return claimed

    def _receive(self, claimed: Sequence[Claimed], *, ahead: bool) -> None:
        taken_at = self._clock.monotonic()
        executions = [self._begin(run, taken_at) for run in self._held_runs.still_leased(claimed)]
        for execution in executions:
            self._held_runs.add(execution)
        if ahead:
            self._backlog.extend(executions)
        else:
            self._backlog.extendleft(reversed(executions))

    def _note(self, hand: Hand, claimed: Sequence[Claimed], sent_at: float, *, ahead: bool) -> None:
        hand.claimed_ahead = ahead
        if not ahead:
            self._claimed_at_once_at = sent_at
            held_back_count = sum(run.lease.at_most_once or run.is_limited for run in claimed)
            self._found_held_back = held_back_count > 0
            self._found_others = held_back_count < len(claimed)
        if claimed:
            self._emit(ClaimedEvent(self._worker_id(), len(claimed)))

    def _how_many(self, hand: Hand) -> tuple[int, bool]:
        """How many to claim, and whether to prefetch, which is done only while more runs wait; then each hand claims half. From
        time to time a claim asks only for free slots, because some runs are never prefetched; every second claim does so while
        there are such runs. Runs that are prefetched already start first."""
        free = self.slots.free - len(self._backlog) - self._asked_count
        ahead = self._room_ahead()
        is_time = self._found_held_back or self._clock.monotonic() - self._claimed_at_once_at >= TURN_S
        if ahead <= 0 or (is_time and (hand.claimed_ahead or not self._found_others)):
            return min(free, self._share_of(self.slots.limit), CLAIM_LIMIT), False
        return min(free + ahead, self._share_of(self.slots.limit + ahead), CLAIM_LIMIT), True

    def _room_ahead(self) -> int:
        """How many prefetched runs would start within AHEAD_S."""
        return min(int(self._pace() * AHEAD_S), AHEAD_LIMIT) if self._takes_ahead and self._more_waits else 0

    def _worth_a_claim(self, *, ahead: bool) -> int:
        """Under load, while runs are waiting to start or being claimed, it is worth waiting for a few more free slots: every
        claim has a fixed cost."""
        if not self._asked_count and not self._backlog:
            return 0
        if ahead:
            return min((self.slots.limit + self._room_ahead()) // 4, GATHER_LIMIT)
        return min(self.slots.limit // (2 if self._asked_count else 4), GATHER_LIMIT)

    def _share_of(self, room: int) -> int:
        """The part of the room that one hand may claim at once."""
        return -(-room // len(self.hands)) if self._more_waits else room

    def _start_waiting(self) -> None:
        if self._is_starting:
            return  # an execution that ends while it starts frees its slot inside this loop
        self._is_starting = True
        try:
            self._return_stale()  # first: after a pause of the process, another worker may have them
            while self._backlog and self.slots.free > self._promised_count:
                execution = self._backlog.popleft()
                self._start(execution)
        finally:
            self._is_starting = False

    def _start(self, execution: Execution) -> None:
        if execution.phase is Phase.TAKEN:  # not cancelled or lost in the meantime
            self.slots.used += 1
            self._started_count += 1
            execution.start()

    def _return_stale(self) -> None:
        oldest_allowed = self._clock.monotonic() - STALE_S
        while self._backlog and self._backlog[0].taken_at < oldest_allowed:
            self._backlog.popleft().release("prefetched, but no slot became free")

    def _pace(self) -> float:
        """Recent starts per second; the weight of older starts halves with every window."""
        elapsed_s = self._clock.monotonic() - self._paced_at
        if elapsed_s >= PACE_WINDOW_S:
            kept = 0.5 ** (elapsed_s / PACE_WINDOW_S)
            self._pace_per_s = kept * self._pace_per_s + (1 - kept) * self._started_count / elapsed_s
            self._paced_at += elapsed_s
            self._started_count = 0
        return self._pace_per_s

    async def _do_overdue_work(self) -> None:
        """The worker is idle, so it promotes what no scheduler promoted (rule "any node does overdue work")."""
        now = self._clock.monotonic()
        if self._overdue is not None and now - self._saw_to_overdue_at >= OVERDUE_LOOK_S:
            self._saw_to_overdue_at = now
            if await self._overdue.see_to():
                self.hear()
