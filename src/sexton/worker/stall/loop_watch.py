"""Finds the handler that blocks the event loop, from the heartbeat's thread (rule "suspects apart").

A handler is named only if it was on the stack in every look for at least a third of the allowed time: a loop that is slow
because it has much to do has no culprit, and neither has a process that stood still as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sexton.clock import Clock
from sexton.domain.outcome import Lost, Released
from sexton.domain.run import Report
from sexton.handlers.python.function import fences_of
from sexton.worker.execution import Execution, Phase
from sexton.worker.held_runs import HeldRuns

from . import stacks
from .loop_pulse import PULSE_S, Pulse

REPLY_UNREAD = "the event loop of its worker was blocked before the reply of its claim was read"
LOOK_S_MAX = 1.0  # if this thread was away for longer, the gap counts as this much


class Blocker(NamedTuple):
    """The execution that blocks the loop, and the line of its code."""

    execution: Execution
    place: str


class StallWatch:
    def __init__(self, pulse: Pulse, held_runs: HeldRuns, *, loop_stall_s: float, clock: Clock) -> None:
        self._pulse, self._held_runs, self._loop_stall_s, self._clock = pulse, held_runs, loop_stall_s, clock
        self._felt_at = pulse.felt_at
        self._looked_at = clock.monotonic()
        self._seen: Execution | None = None
        self._watched_s = 0.0
        self.blocked_s = 0.0  # for how long the loop has not run, as far as this thread ran

    def look(self) -> None:
        """Called regularly. While the loop is responsive, it costs next to nothing."""
        now = self._clock.monotonic()
        elapsed_s, self._looked_at = now - self._looked_at, now
        if self._pulse.felt_at != self._felt_at or now - self._felt_at <= 2 * PULSE_S:
            self._felt_at, self._seen, self._watched_s, self.blocked_s = self._pulse.felt_at, None, 0.0, 0.0
            return
        self.blocked_s += min(elapsed_s, LOOK_S_MAX)
        seen = self._on_the_stack()
        is_same = seen is not None and seen is self._seen
        self._watched_s = self._watched_s + min(elapsed_s, LOOK_S_MAX) if is_same else 0.0
        self._seen = seen

    def blocker(self) -> Blocker | None:
        if self._seen is None or self._watched_s < self._loop_stall_s / 3:
            return None
        place = self.place()
        if self._on_the_stack() is not self._seen:
            return None
        return Blocker(self._seen, place)

    def place(self) -> str:
        """The line of the app's code that the loop's thread is in."""
        return str(stacks.place(stacks.of_handler(stacks.of_thread(self._pulse.thread_id))) or "an unknown line")

    def _on_the_stack(self) -> Execution | None:
        task = self._pulse.current_task()
        if task is None:
            return None
        for fence in fences_of(task):
            if (execution := self._held_runs.get(*fence)) is not None:
                return execution
        return next((execution for execution in self._held_runs.all() if execution.is_executed_by(task)), None)


def reports(blocker: Blocker, held: Sequence[Execution], stalled_s: float) -> Iterator[tuple[Execution, Report]]:
    """The run that blocks the loop is reported as lost, and is charged for it. If it shares its call with others, all of these
    are reported as lost together, and none is charged. The others are given back and spend nothing. An at-most-once run stays:
    the loop may continue in time for it. So does a run that has ended, or that its own transaction is about to end."""
    blocking = blocker.execution
    lost = Lost(f"blocked the event loop of its worker for {stalled_s:.1f} s at {blocker.place}", held=blocking.companions)
    released = Released(
        f"returned because task {blocking.claimed.task}, run {blocking.claimed.run_id}, blocked the event loop of their worker"
    )
    for execution in held:
        is_open = execution.phase in (Phase.TAKEN, Phase.RUNNING) and not execution.ending
        if is_open and not execution.claimed.lease.at_most_once:
            yield execution, execution.reported_as(lost if execution.shares_call_with(blocking) else released)
