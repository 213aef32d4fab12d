"""Frees what a failed handler has left in memory. A traceback refers to the handler's frames, and these to all its local
variables; where a frame refers back to its exception, only the garbage collector would free them, and much later.

The exception is of the handler's own class, which may forbid assignments (a frozen dataclass) and may raise where an attribute
is read. So its own attributes are never used, and nothing here raises.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

_cause = vars(BaseException)["__cause__"].__get__
_context = vars(BaseException)["__context__"].__get__
_members = vars(BaseExceptionGroup)["exceptions"].__get__


def drop_tracebacks(error: BaseException | None) -> None:
    """Of the exception, of those that it was raised from or during, and of the members of a group."""
    rest, seen = [error], set[int]()
    while rest:
        error = rest.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        BaseException.with_traceback(error, None)
        rest += (_cause(error), _context(error))
        if issubclass(type(error), BaseExceptionGroup):
            rest += _members(error)


def drop_tracebacks_of(done: asyncio.Future[Any]) -> None:
    """Call it when nothing reads the future's exception any more."""
    error = None if done.cancelled() else done.exception()
    with suppress(BaseException):
        done.result()  # the future has its own reference to the traceback, until it raises
    drop_tracebacks(error)
