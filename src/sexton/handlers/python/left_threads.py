"""Which task started a thread that still runs. Python does not know it, so the worker looks for new threads now and then and
notes the tasks that ran meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence

_TASKS = "_sexton_tasks"  # an attribute of the thread


def note(tasks: Sequence[str]) -> None:
    """`tasks` ran since the last call."""
    named = tuple(tasks)
    for thread in threading.enumerate():
        vars(thread).setdefault(_TASKS, named)


def tasks_of(thread: threading.Thread) -> tuple[str, ...]:
    """More than one if several ran when it appeared; none if it was not noted."""
    tasks: tuple[str, ...] = vars(thread).get(_TASKS, ())
    return tasks
