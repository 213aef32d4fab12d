"""The tasks of a service's event loop: the service's own ones, those that execute a run, and those that handlers make. A
handler finds all of them in `asyncio.all_tasks()`, but it can only cancel the last kind, and the task of its own run."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from sexton.handlers.python.function import worked_for, worked_for_by


class ServiceTask(asyncio.Task[Any]):
    """Made by code of the service, not of a handler."""

    __slots__ = ("context",)

    context: contextvars.Context

    def get_context(self) -> contextvars.Context:
        """Python 3.11 does not tell it."""
        return self.context

    def cancel(self, msg: Any | None = None) -> bool:
        """A handler may cancel the task of its own run: `asyncio.timeout` and `asyncio.TaskGroup` do."""
        by, of = worked_for(), worked_for_by(self)
        if by is None or (of is not None and by[:2] == of[:2]):
            return super().cancel(msg)
        loop: Any = self.get_loop()
        loop.tell_refused("cancel() of a task that is not its own")
        return False


def make(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any],
    *,
    context: contextvars.Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """The task factory of the loop. It costs 1 µs per task."""
    if worked_for() is not None:
        return asyncio.Task(coro, loop=loop, context=context, **options)
    if context is None:
        context = contextvars.copy_context()
    task = ServiceTask(coro, loop=loop, context=context, **options)
    task.context = context
    return task
