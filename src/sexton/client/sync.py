"""Synchronizes the database with the schedules that an app's code declares: creates, updates by name, and on request ends
those that the code no longer has. Many processes may do it at once. An unchanged schedule is not written again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.schedule import next_fire
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.recurrence import seed_of
from sexton.domain.schedule.rule import Schedule
from sexton.registry import Registry
from sexton.store.database import Connection, Database
from sexton.store.fleet import workers
from sexton.store.work import declared, recurring

_NO_ID = UUID(int=0)


class Synced(NamedTuple):
    """Names of schedules, by what was done with them."""

    created: list[str]
    updated: list[str]
    unchanged: list[str]
    ended: list[str]  # not changed: ended by its own rule, or by a user
    pruned: list[str]


class _Rehearsal(Exception):
    """Rolls everything back, after a dry run."""


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
    synced = Synced([], [], [], [], [])
    if not registry.schedules and not prune:
        return synced
    try:
        async with database.transaction() as connection:
            await _sync(connection, registry, f"sync:{owner}", synced, prune=prune, revive=revive, now=now)
            if dry_run:
                raise _Rehearsal
    except _Rehearsal:
        pass
    return synced


async def _sync(
    connection: Connection,
    registry: Registry,
    mark: str,
    synced: Synced,
    *,
    prune: bool,
    revive: bool,
    now: datetime | None,
) -> None:
    at = await declared.begin(connection, now=now)
    await workers.register_tasks(connection, {one.name: one.options for one in registry}, now=now)
    documents = [msgspec.structs.replace(one, submitted_by=mark) for one in registry.schedules.values()]
    over = {one.name for one in documents if _is_over(one, at)}
    if not revive and documents:
        over |= await declared.ended(connection, documents)
    synced.ended.extend(sorted(name for name in over if name is not None))
    await _write(connection, [one for one in documents if one.name not in over], mark, synced, now)
    if prune:
        for undeclared in await declared.undeclared(connection, mark, list(registry.schedules)):
            await declared.prune(connection, undeclared.id, now=now)
            synced.pruned.append(undeclared.name)


async def _write(
    connection: Connection, documents: Sequence[ScheduleDocument], mark: str, synced: Synced, now: datetime | None
) -> None:
    written = await recurring.submit(connection, documents, now=now) if documents else []
    for one, answer in zip(documents, written, strict=True):
        names = synced.created if answer.created else synced.updated if answer.changed else synced.unchanged
        names.append(one.name or one.task)
    await declared.adopt(connection, [answer.id for answer in written], mark)


def _is_over(one: ScheduleDocument, at: datetime) -> bool:
    rule = one.schedule
    if not isinstance(rule, Schedule):
        return False
    if rule.anchor_at is None:
        rule = msgspec.structs.replace(rule, anchor_at=at)
    return next_fire(rule, after=at, seed=seed_of("default", one.name, _NO_ID)) is None
