"""Events about what handlers do to the event loop of their worker. Subscribers and services import them from `events`."""

from __future__ import annotations

from uuid import UUID

import msgspec


class LoopInterrupted(msgspec.Struct, frozen=True):
    """A callback or a task of a handler raised an exception that asyncio does not catch, such as `SystemExit`, or stopped the
    event loop. The loop continues."""

    error: str
    place: str
    function: str


class LoopCallRefused(msgspec.Struct, frozen=True):
    """A handler called what would end the event loop of its worker or change it for all its handlers, or cancelled tasks that
    are not its own. The call had no effect. `task` and `run_id` are not known if a thread of the handler called it."""

    call: str
    task: str | None
    run_id: UUID | None
    advice: str = "the event loop belongs to the worker; use process=True for a task that needs its own"


class WorkerDisabled(msgspec.Struct, frozen=True):
    """A part that this worker needs to work was ended by other code of its process. It returns its runs and exits."""

    reason: str
    advice: str = "code of a handler did that; start a new worker, and use process=True for tasks that you do not trust"
