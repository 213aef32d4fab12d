"""Rule "the process is not the handler's": what handlers have changed in it is restored, and their tasks are named.

A look takes 0.1 to 0.2 ms, longer than a small handler. So the guard does not look after each handler, which only leaves its
task's name (0.2 µs), but four times per second, and names all tasks that ran meanwhile. Further changes of the same kind leave
fewer and fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sexton.clock import Clock
from sexton.domain.reminders import Reminders
from sexton.handlers.python import left_children, left_threads
from sexton.handlers.python.process_state import ProcessState
from sexton.telemetry.events import Emit, ProcessChanged

from .execution import Execution, Phase

LOOK_S = 0.25
PATIENCE_S = 5.0  # for handlers that still run: one of them may restore it itself
TELL_S = 60.0  # while several tasks come into question, one warning per kind in this time
NAMES_LIMIT = 10


@dataclass
class Change:
    now: str
    seen_at: float
    tasks: set[str]
    running: list[Execution]  # handlers that may have made it, and may yet undo it


class ProcessGuard:
    name = "process guard"

    def __init__(
        self,
        state: ProcessState,
        ran: set[str],
        running: Callable[[], Sequence[Execution]],
        *,
        clock: Clock,
        emit: Emit,
    ) -> None:
        """`ran` gets the task of each handler that ends in this process; `running` are those that have not ended."""
        self._state, self._ran, self._running, self._clock, self._emit = state, ran, running, clock, emit
        self._changes: dict[str, Change] = {}
        self._suspects: dict[str, set[str]] = {}
        self._named: set[tuple[str, str]] = set()
        self._reminders = Reminders(TELL_S)

    async def run_once(self) -> float:
        self.look()
        return LOOK_S

    def look(self) -> None:
        if not self._ran and not self._changes:
            return
        running = list(self._running())
        tasks = self._ran | {execution.claimed.task for execution in running}
        self._ran.clear()
        left_threads.note(sorted(tasks)[:NAMES_LIMIT])
        left_children.note(sorted(tasks)[:NAMES_LIMIT])
        present = self._state.changes()
        self._changes = {what: change for what, change in self._changes.items() if present.get(what) == change.now}
        for what, now in present.items():
            change = self._changes.setdefault(what, Change(now, self._clock.monotonic(), tasks, running))
            if self._is_left(change):
                self._restore(what, change)

    def _is_left(self, change: Change) -> bool:
        change.running = [execution for execution in change.running if execution.phase is Phase.RUNNING]
        return not change.running or self._clock.monotonic() - change.seen_at >= PATIENCE_S

    def _restore(self, what: str, change: Change) -> None:
        del self._changes[what]
        fault = self._state.restore(what)
        suspects = self._suspects.get(what, change.tasks) & change.tasks or change.tasks
        self._suspects[what] = suspects
        if self._is_news(what, suspects):
            named = tuple(sorted(suspects))
            self._emit(ProcessChanged(what, change.now, named[:NAMES_LIMIT], max(0, len(named) - NAMES_LIMIT), fault))

    def _is_news(self, what: str, suspects: set[str]) -> bool:
        if len(suspects) == 1:
            change_and_task = (what, next(iter(suspects)))
            is_news = change_and_task not in self._named
            self._named.add(change_and_task)
            return is_news
        return self._reminders.is_due(what, self._clock.monotonic())
