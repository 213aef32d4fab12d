"""The executions of one call, from its start until its function has ended: they have one timeout and stop together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sexton.domain.outcome import Lost, Outcome, TimedOut
from sexton.handlers.python.batch.functions import BatchFunction
from sexton.handlers.python.batch.shared_call import FailedTogether, SharedCall
from sexton.worker.deadlines import Timer, Timers
from sexton.worker.execution import LOST_GRACE_S

from .execution import BatchExecution


@dataclass(frozen=True, slots=True)
class Hall:
    """What all groups of one task share."""

    function: BatchFunction
    timers: Timers
    grace_s: float
    ended: Callable[[Group], None]  # its call may be used again
    divided: Callable[[str, FailedTogether], None]  # its call has failed, with several runs of this task in it
    undead: Callable[[Group], None]  # all its runs have ended, but its function still runs and keeps its call


class Group:
    __slots__ = (
        "_executions",
        "_grace_s",
        "_hall",
        "_is_asked",
        "_shared",
        "_timeout_s",
        "_timers",
        "_verdict",
        "is_undead",
        "size",
        "task",
    )

    def __init__(self, executions: Sequence[BatchExecution], hall: Hall) -> None:
        first = executions[0].claimed
        own_s = first.lease.policy.grace_s
        self._executions, self._hall = executions, hall
        self._timeout_s, self._grace_s = first.timeout_s, hall.grace_s if own_s is None else own_s
        self._shared: SharedCall | None = None
        self._timers: list[Timer] = []
        self._is_asked = False
        self._verdict: Outcome | None = None
        self.is_undead = False  # its function does not stop
        self.task = first.task
        self.size = 0

    def start(self) -> None:
        shared = self._shared = self._hall.function.open()
        for execution in self._executions:
            execution.group = self
            execution.start()
        self.size = len(shared.shares)
        if self._timeout_s is not None:
            self._timers.append(self._hall.timers.call_later(self._timeout_s, self._time_out))
        shared.freed.add_done_callback(lambda _: self._end())
        shared.begin()

    def stop(self, verdict: Outcome) -> None:
        """All runs that are not decided share the verdict. Each asks the call to stop, and forces it after its grace."""
        self._verdict = self._verdict or verdict
        for execution in self._executions:
            execution.stop_with_call(verdict)
        self._ask()

    def has_left(self, verdict: Outcome) -> None:
        """A run was cancelled or lost. Without a run that waits for it, the call is of no use."""
        if self._shared is None or not self._shared.is_empty:
            return
        self._verdict = self._verdict or verdict
        if isinstance(verdict, Lost):  # another worker may already execute it
            self._timers.append(self._hall.timers.call_later(min(self._grace_s, LOST_GRACE_S), self._force))
        self._ask()

    def _time_out(self) -> None:
        self.stop(TimedOut(f"still running after its timeout of {self._timeout_s:g} s"))

    def _ask(self) -> None:
        """Also if no execution is left that would force it."""
        if not self._is_asked and self._shared is not None:
            self._is_asked = True
            self._timers.append(self._hall.timers.call_later(self._grace_s, self._force))
            self._shared.ask_to_stop()

    def _force(self) -> None:
        if self._shared is not None:
            self._shared.force_stop()
            if not self._shared.freed.done():
                self.is_undead = True
                self._hall.undead(self)

    def _end(self) -> None:
        """Nothing refers in a circle afterwards, so all is freed without the garbage collector."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        failure = None if self._shared is None else self._shared.failure
        if failure is not None and self._is_failure(failure):
            self._hall.divided(self.task, failure)
        self._executions, self._shared = (), None
        self._hall.ended(self)

    def _is_failure(self, failure: FailedTogether) -> bool:
        """A call that was stopped has not failed, unless it was too slow."""
        return self._verdict is None or (isinstance(self._verdict, TimedOut) and failure.run_count > 0)
