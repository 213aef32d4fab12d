"""Which task started a child process of `multiprocessing` that still runs. At a fork the stack says it, if the handler itself
forks. For other children (a task or thread that the handler started, `spawn`) the worker notes the tasks that ran meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from sexton.handlers import forked

_TASKS = "_sexton_tasks"  # an attribute of the process object


def note_at_forks() -> None:
    """In this process from now on."""
    os.register_at_fork(before=_note_forked)


def note(tasks: Sequence[str]) -> None:
    """`tasks` ran since the last call."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return
    named = tuple(tasks)
    with suppress(RuntimeError):  # a thread starts a child at the same time: the next call notes it
        for child in tuple(process._children):  # `active_children` would wait for those that ended
            vars(child).setdefault(_TASKS, named)


def tasks_of(child: object) -> tuple[str, ...]:
    """More than one if several ran when it appeared; none if it was not noted."""
    tasks: tuple[str, ...] = vars(child).get(_TASKS, ())
    return tasks


def _note_forked() -> None:
    """In the thread that forks. A fork without `multiprocessing` leaves no process object, and nothing waits for its child."""
    with suppress(Exception):
        child = _child_on(sys._getframe(1))
        task = None if child is None else forked.task_on(sys._getframe(1))
        if task is not None:
            vars(child)[_TASKS] = (task,)


def _child_on(frame: FrameType | None) -> Any:
    while frame is not None:
        if frame.f_globals.get("__name__") == "multiprocessing.popen_fork" and "process_obj" in frame.f_locals:
            return frame.f_locals["process_obj"]
        frame = frame.f_back
    return None
