"""Pauses, resumes and resets tenants and queues, whose settings are rows by name.

Each change needs a transaction: it locks the row, then decides (rule "lock, then decide"), and wakes the workers, which may
have more to do now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sexton.store.database import Connection
from sexton.store.sharing.settings_table import SettingsTable

from .caller import Caller


@dataclass(frozen=True)
class PausableSettings:
    table: SettingsTable[Any]
    wake: Callable[[Connection, str], Awaitable[None]]  # the workers that may start runs after the change

    async def pause(
        self, connection: Connection, caller: Caller, name: str, *, note: str | None = None, now: datetime | None = None
    ) -> None:
        """None of its runs starts until it is resumed. Running ones continue, and jobs may be submitted."""
        await self.table.lock(connection, name, now=now)
        await self.table.pause(connection, name, by=caller.actor, note=note)

    async def resume(self, connection: Connection, caller: Caller, name: str) -> None:
        await self.table.resume(connection, name)
        await self.wake(connection, name)

    async def remove(self, connection: Connection, caller: Caller, name: str) -> bool:
        """Resets it to the defaults. False: it already had them."""
        is_gone = await self.table.remove(connection, name)
        await self.wake(connection, name)
        return is_gone
