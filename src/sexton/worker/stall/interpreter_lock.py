"""Names the handler that kept all of Python from running, when the event loop is back or a later process finds the stack."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from sexton.registry import Registry
from sexton.telemetry.events import Emit, LoopStalled, StallFound
from sexton.worker.execution import Phase
from sexton.worker.held_runs import HeldRuns

from . import stack_dump, stacks
from .loop_pulse import Pulse
from .stack_dump import StackDump

PLACES_LIMIT = 3


class Found(NamedTuple):
    """A handler in the dump. There are several if handlers ran in threads: the dump does not show which of them held the
    interpreter lock."""

    place: str
    task: str | None  # null: not a task, or not known


class Standstill:
    def __init__(
        self,
        dump: StackDump,
        pulse: Pulse,
        held_runs: HeldRuns,
        registry: Registry,
        *,
        worker_id: Callable[[], UUID],
        loop_stall_s: float,
        emit: Emit,
    ) -> None:
        self._dump, self._pulse, self._held_runs, self._registry = dump, pulse, held_runs, registry
        self._worker_id, self._loop_stall_s, self._emit = worker_id, loop_stall_s, emit

    def felt(self, elapsed_s: float) -> None:
        """Called on the loop, with the time since its last pulse."""
        text = self._dump.take()
        self._dump.arm()
        was_named, self._pulse.is_named = self._pulse.is_named, False
        if text is None or was_named or elapsed_s <= self._loop_stall_s:
            return
        found = find(text, self._pulse.thread_id, self._registry)
        if found is not None:
            self._emit(LoopStalled(self._worker_id(), elapsed_s, found.task, self._run_of(found.task), found.place))

    def _run_of(self, task: str | None) -> UUID | None:
        """The run, if only one of this task was held."""
        held = [
            one.claimed.run_id for one in self._held_runs.all() if one.claimed.task == task and one.phase is not Phase.TAKEN
        ]
        return held[0] if len(held) == 1 else None


def find(text: str, loop_thread_id: int | None, registry: Registry) -> Found | None:
    handlers = stacks.busy(stacks.of_dump(text), loop_thread_id)
    places = list(dict.fromkeys(str(stacks.place(frames)) for frames in handlers))
    if not places:
        return None
    names = _names(registry)
    tasks = {names.get((frame.file, frame.function)) for frames in handlers for frame in frames} - {None}
    return Found("; or ".join(places[:PLACES_LIMIT]), tasks.pop() if len(tasks) == 1 else None)


def left_behind(app: str, registry: Registry) -> Iterator[StallFound]:
    """Of worker processes of this app on this machine that have ended."""
    for pid, text in stack_dump.left_behind(app):
        found = find(text, None, registry)
        if found is not None:
            yield StallFound(pid, found.place, found.task)


def _names(registry: Registry) -> dict[tuple[str, str], str]:
    """The tasks by the code of their functions."""
    codes = ((definition.name, getattr(inspect.unwrap(definition.fn), "__code__", None)) for definition in registry)
    return {(code.co_filename, code.co_name): name for name, code in codes if code is not None}
