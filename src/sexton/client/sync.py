"""Writes the schedules that an app's code declares to the database."""

from __future__ import annotations

from datetime import datetime

from sexton.operations.caller import Caller
from sexton.operations.recurring.declared_schedules import Synced as Synced
from sexton.operations.recurring.declared_schedules import declare
from sexton.registry import Registry
from sexton.store.database import Database


async def sync(
    database: Database,
    registry: Registry,
    owner: str,
    *,
    prune: bool = False,
    revive: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Synced:
    """`owner` is the name of the app: only schedules declared under it are pruned. `revive` restarts schedules that ended."""
    return await declare(
        database,
        Caller(f"sync:{owner}"),
        list(registry.schedules.values()),
        {one.name: one.options for one in registry},
        prune=prune,
        revive=revive,
        dry_run=dry_run,
        now=now,
    )
