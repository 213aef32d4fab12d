"""The intake of one batch task. It has slots of its own: `calls` calls of up to `size` runs each.

It claims only what it can start, except that claimed runs wait for others of their group, at most `Batch.wait`. Where groups
come out smaller than `size`, most of a claim would wait in vain and be given back: then it claims less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sexton.dispatch.transport import Transport
from sexton.domain.batch import Batch
from sexton.domain.run import Claimed
from sexton.handlers.python.batch.functions import BatchFunction
from sexton.handlers.python.batch.shared_call import FailedTogether
from sexton.telemetry.events import CallDivided
from sexton.worker.deadlines import ALARM_S_MIN, Timer, Timers
from sexton.worker.intake import CLAIM_LIMIT, Hand, Intake, Slots

from .execution import BatchExecution
from .forming import Forming
from .group import Group, Hall

FEW = 32  # runs: to give back so many now and then costs less than smaller claims


class BatchIntake(Intake):
    def __init__(
        self,
        name: str,
        transports: Sequence[Transport],
        task: str,
        shape: Batch,
        function: BatchFunction,
        *,
        wait_s: float,
        timers: Timers,
        exact_timers: Timers,
        grace_s: float,
        undead: Callable[[Group], None],
        freed: Callable[[Group], None],
        **options: Any,
    ) -> None:
        """`timers` are up to a tick late, which may be longer than `wait`: that needs `exact_timers`. `undead` and `freed` are
        told of groups whose function still runs after its runs have ended, and of all that have ended. `options`: as of any
        intake."""
        super().__init__(name, transports, [task], Slots(shape.size * shape.calls), takes_ahead=False, **options)
        self._shape, self._timers = shape, exact_timers
        self._hall = Hall(function, timers, grace_s, self._call_ended, self._call_divided, self._call_undead)
        self._group_freed, self._group_undead = freed, undead
        self._forming = Forming(shape, wait_s)
        self._calls: set[Group] = set()
        self._an_end = asyncio.Event()
        self._alarm: Timer | None = None  # when the next group has waited long enough
        self._reach = self.slots.limit  # how many runs may wait for their call
        self._vain_start_count = 0  # runs that have started since others were given back

    @property
    def backlog_count(self) -> int:
        return len(self._forming)

    @property
    def _free_calls(self) -> int:
        return self._shape.calls - len(self._calls)

    def slot_freed(self) -> None:
        """A run has ended, but the others of its call may go on."""
        self.slots.used -= 1

    def close(self, reason: str) -> None:
        """Stops claiming, and returns the runs that have not started."""
        self.open = False
        self._set_alarm(None)
        for execution in self._forming.take_all():
            execution.release(reason)

    async def at_rest(self) -> None:
        """Also when no call is in progress: its runs may have ended before it. One that does not stop is not waited for."""
        await super().at_rest()
        while not all(group.is_undead for group in self._calls):
            self._an_end.clear()
            await self._an_end.wait()

    def _receive(self, claimed: Sequence[Claimed], *, ahead: bool) -> None:
        taken_at = self._clock.monotonic()
        for run in self._held_runs.still_leased(claimed):
            execution = self._begin(run, taken_at)
            assert isinstance(execution, BatchExecution), "the worker makes them for this intake"  # noqa: S101
            self._held_runs.add(execution)
            self._forming.add(execution)

    def _how_many(self, hand: Hand) -> tuple[int, bool]:
        """What free calls can take, without what waits for them already."""
        room = min(self._free_calls * self._shape.size, self._reach)
        return min(room - len(self._forming) - self._asked_count, CLAIM_LIMIT), False

    def _worth_a_claim(self, *, ahead: bool) -> int:
        return 0  # a call frees all its slots at once

    def _start_waiting(self) -> None:
        now = self._clock.monotonic()
        self._forming.drop_ended()
        self._give_back(now)
        while self._free_calls > 0 and (executions := self._forming.take_startable(now)):
            self._start_call(executions)
        self._give_back_alone()
        next_at = self._forming.next_at
        self._set_alarm(None if next_at is None or self._free_calls <= 0 else next_at - now)

    def _start_call(self, executions: Sequence[BatchExecution]) -> None:
        """A claim that has started to the last run was not too large."""
        self.slots.used += len(executions)
        self._vain_start_count += len(executions)
        if not len(self._forming) and not executions[0].claimed.lease.at_most_once:
            self._reach = min(2 * self._reach, self.slots.limit)
        group = Group(executions, self._hall)
        self._calls.add(group)
        group.start()

    def _call_ended(self, group: Group) -> None:
        self._calls.discard(group)
        self._group_freed(group)
        self._an_end.set()
        self._start_waiting()
        if self._more_waits:
            self.wake()

    def _call_undead(self, group: Group) -> None:
        self._group_undead(group)
        self._an_end.set()

    def _call_divided(self, task: str, failure: FailedTogether) -> None:
        self._emit(CallDivided(self._worker_id(), task, failure.run_count, failure.batch_limit, str(failure)))

    def _give_back(self, now: float) -> None:
        """As after a pause of the process, or while calls are slow. If more wait in vain than start, claims are too large."""
        stale = self._forming.take_stale(now)
        for execution in stale:
            execution.release("claimed, but no call of its batch was free")
        if len(stale) > max(FEW, self._vain_start_count):
            self._reach = max(self._shape.calls, self._reach // 2)
        if stale:
            self._vain_start_count = 0

    def _give_back_alone(self) -> None:
        """Rule "bounded prefetch": the claim of an at-most-once run counts as its start, so it does not wait for a call."""
        alone = self._forming.take_alone()
        for execution in alone:
            execution.release("claimed, but it is executed alone, and no call of its batch was free")
        if alone:
            self._reach = self._shape.calls

    def _set_alarm(self, delay_s: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if delay_s is None else self._timers.call_later(max(delay_s, ALARM_S_MIN), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._start_waiting()
        if self._more_waits:
            self.wake()
