"""The interface between a worker and a handler: start it, wait for it, ask it to stop, force it to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol
from uuid import UUID

from sexton.errors import NotHere, OutboundRefused, SextonError
from sexton.ids import process_name

from .context import Call, Context

MakeDue = Callable[[Sequence[tuple[UUID, int]]], None]  # makes postponed runs due now, by id and token
Elsewhere = Callable[[UUID, str], Awaitable[bool]]  # whether another worker may have what this one lacks for a run


async def nowhere(_run_id: UUID, _lacks: str) -> bool:
    """For a worker that is alone."""
    return False


class HandedOver(SextonError):
    """Control flow of a handler whose work continues elsewhere (an HTTP target that answered 202): the run leaves this worker,
    and the target, which has the lease, ends it over HTTP."""

    code = "handed_over"

    def __init__(self) -> None:
        super().__init__("handed over: the target ends the run by calling back")


async def refuse(elsewhere: Elsewhere, run_id: UUID, host: str, port: int, refused: OutboundRefused) -> NoReturn:
    """Permanent only if no other worker may allow the call: this worker may be the one whose settings are old."""
    lacks = f"outbound {host}:{port}"
    if await elsewhere(run_id, lacks):
        raise NotHere(lacks, f"worker {process_name()}: {refused}") from None
    raise refused.with_traceback(None)


class Handle(Protocol):
    """One execution in progress."""

    @property
    def done(self) -> asyncio.Future[Any]:
        """Ends with the handler's return value or its exception. A handler that stopped when asked ends cancelled or with
        `Stopped`.

        For an async function this is its task, which cannot be ended from outside: after `force_stop`, read `done` again.
        """

    @property
    def freed(self) -> asyncio.Future[Any]:
        """Done when its slot is free. That may be later than `done`, or the same future. Its result has no meaning: add a
        callback, do not await it."""

    def ask_to_stop(self) -> None:
        """Cooperative: cancels a task, or sets the flag behind `ctx.cancelled` in a thread or a process."""

    def force_stop(self) -> bool:
        """Called after the grace period. Afterwards `done` is done. True if the handler has certainly ended; false if it
        may still run as a zombie, which keeps its slot until it ends."""


class Handler(Protocol):
    def start(self, call: Call, context: Context) -> Handle:
        """An exception from it fails this attempt. Called on the event loop's thread."""
