"""One run of a call that it shares with others. It has its own lease, outcome and report; the call has the time limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sexton.domain.batch import Member
from sexton.domain.outcome import Cancelled, Lost, Outcome, Released, TimedOut
from sexton.handlers.handle import HandedOver
from sexton.handlers.python.batch.shared_call import FailedTogether, Share
from sexton.worker.execution import Bench, Execution, Phase

if TYPE_CHECKING:
    from .group import Group


class BatchExecution(Execution):
    __slots__ = ("group",)

    claimed: Member

    def __init__(self, claimed: Member, taken_at: float, bench: Bench) -> None:
        super().__init__(claimed, taken_at, bench)
        self.group: Group | None = None

    def cancel(self) -> None:
        """Only this run: it ends at once, and what the handler says about it later is refused."""
        self._leave(Cancelled())

    def lose(self) -> None:
        if not self._lost and self.phase in (Phase.TAKEN, Phase.RUNNING):
            self._lost = True
            self._leave(Lost("the lease was lost"))

    def release(self, reason: str) -> None:
        """A run that has not started is given back, even an at-most-once run. The call of a running one is asked to stop."""
        self._stop(Released(reason, has_started=self.phase is not Phase.TAKEN))

    def is_executed_by(self, task: object) -> bool:
        return isinstance(self._handle, Share) and self._handle.is_executed_by(task)

    @property
    def companions(self) -> int:
        """How many runs its call was started with, this one included."""
        return 1 if self.group is None else self.group.size

    def shares_call_with(self, other: Execution) -> bool:
        return self is other or (isinstance(other, BatchExecution) and self.group is not None and self.group is other.group)

    def stop_with_call(self, verdict: Outcome) -> None:
        """Its call is asked to stop."""
        super()._stop(verdict)

    def _stop(self, verdict: Outcome) -> None:
        if self.phase is Phase.RUNNING and self.group is not None:
            self.group.stop(verdict)
        else:
            super()._stop(verdict)

    def _leave(self, verdict: Outcome) -> None:
        if self.phase is Phase.TAKEN:
            super()._stop(verdict)
        elif self.phase is Phase.RUNNING and isinstance(self._handle, Share) and self._handle.leave():
            self._verdict = verdict
            if self.group is not None:
                self.group.has_left(verdict)

    def _watch(self) -> None:
        """The timeout is watched by the group. A deadline is of this run alone."""
        left_s = self.claimed.lease.deadline_left_s
        if left_s is not None:
            self._timers.append(self._bench.timers.call_later(left_s, self._pass_deadline))
        limit_s = self.claimed.lease.policy.progress_within_s
        if limit_s is not None:
            self._progress_timer = self._bench.timers.call_later(limit_s, self._check_progress)

    def _pass_deadline(self) -> None:
        self._leave(TimedOut("the deadline of all attempts passed"))

    def _outcome(self, done: asyncio.Future[Any]) -> Outcome | HandedOver:
        """Rule "a failed call is halved": no run is charged for a call of several, also if it was stopped because of its
        timeout. If it was stopped for another reason, that is the reason of the return."""
        error = None if done.cancelled() else done.exception()
        if not isinstance(error, FailedTogether):
            return super()._outcome(done)
        match self._verdict:
            case None:
                return Released(str(error), batch_limit=error.batch_limit)
            case TimedOut(reason):
                runs = f"{self.companions:,} runs in its call"
                return Released(f"{runs}: {reason}", batch_limit=error.batch_limit)
            case verdict:
                return verdict
