"""Frees what a failed handler has left in memory. A traceback refers to the handler's frames, and these to all its local
variables; where a frame refers back to its exception, only the garbage collector would free them, and much later."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


def drop_tracebacks(error: BaseException | None) -> None:
    """Of the exception, of those that it was raised from or during, and of the members of a group."""
    rest, seen = [error], set[int]()
    while rest:
        error = rest.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.__traceback__ = None
        rest += (error.__cause__, error.__context__)
        if isinstance(error, BaseExceptionGroup):
            rest += error.exceptions


def drop_tracebacks_of(done: asyncio.Future[Any]) -> None:
    """Call it when nothing reads the future's exception any more."""
    error = None if done.cancelled() else done.exception()
    with suppress(BaseException):
        done.result()  # the future has its own reference to the traceback, until it raises
    drop_tracebacks(error)
