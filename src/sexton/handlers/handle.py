"""What a worker knows of anything it can execute: start it, wait for it, ask it to stop, end its patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from .context import Call, Context

Hasten = Callable[[Sequence[tuple[UUID, int]]], None]  # makes runs due, by id and token, that a handler had sent away


class Handle(Protocol):
    """One execution under way."""

    @property
    def done(self) -> asyncio.Future[Any]:
        """Ends with the handler's return value or its exception; one that stopped as asked ends cancelled or with `Stopped`.

        For an async function this is its task, which nobody can end from outside: after `force_stop`, read it again.
        """

    @property
    def freed(self) -> asyncio.Future[Any]:
        """Done when its slot is truly free, which may be later than `done`, or the very same future. It carries no
        meaning beyond that: add a callback rather than await it."""

    def ask_to_stop(self) -> None:
        """Cooperative: cancels a task, raises the flag behind `ctx.cancelled` in a thread or a process."""

    def force_stop(self) -> bool:
        """When the grace is over. From here on `done` is done. True if the handler is gone for certain; false if it can
        only be left behind, a zombie that holds its slot until it ends by itself."""


class Handler(Protocol):
    def start(self, call: Call, context: Context) -> Handle:
        """What it raises is the failure of this attempt. Called on the event loop's thread."""
