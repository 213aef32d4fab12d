"""What executions in a separate process share, for Python functions and scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from .context import Stoppable, Stopped, ask_to_stop


class Process(Protocol):
    def ask_to_stop(self) -> None: ...

    def force_stop(self) -> None: ...


P = TypeVar("P", bound=Process)


class ProcessHandle(Generic[P]):
    """`run` starts the process, keeps it in `_process` while it works, and completes `done`."""

    __slots__ = ("_context", "_process", "done", "freed")

    killed = "its process was killed"

    def __init__(self, context: Stoppable, run: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        self._context = context
        self._process: P | None = None
        self.done: asyncio.Future[Any] = loop.create_future()
        self.freed: asyncio.Future[Any] = loop.create_task(run)

    def ask_to_stop(self) -> None:
        ask_to_stop(self._context)
        if self._process is None:
            self._fail(Stopped("it was stopped before it started"))
        else:
            self._process.ask_to_stop()

    def force_stop(self) -> bool:
        ask_to_stop(self._context)
        if self._process is not None and not self.done.done():
            self._process.force_stop()
        self._fail(Stopped(self.killed))
        return True

    def _succeed(self, result: Any) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)
