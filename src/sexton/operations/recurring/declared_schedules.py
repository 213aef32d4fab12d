"""Brings the database in line with the schedules that an app's code declares: creates them, updates them by name, and on
request ends those that the code no longer declares. Many processes may call it at once. It does not write a schedule that is
already the same. An edit by hand stays until the declaration itself changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.schedule import next_fire
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.recurrence import seed_of
from sexton.domain.schedule.rule import Schedule
from sexton.operations.caller import Caller
from sexton.operations.cancel import end_schedule
from sexton.operations.versions import AtVersion
from sexton.store.database import Connection, Database
from sexton.store.fleet import workers
from sexton.store.work import declared

from . import recurring_jobs

_NO_ID = UUID(int=0)


class Synced(NamedTuple):
    """Names of schedules, by what was done with them."""

    created: list[str]
    updated: list[str]
    unchanged: list[str]
    ended: list[str]  # not changed: its rule has no further fire, or a person ended it
    pruned: list[str]
    kept: list[str]  # edited by hand, and declared as before: not changed
    overwritten: list[str]  # of the updated ones, those that were edited by hand

    @classmethod
    def nothing(cls) -> Synced:
        return cls(*([] for _ in cls._fields))


class _DryRun(Exception):
    """Rolls back everything."""


async def declare(
    database: Database,
    caller: Caller,
    documents: Sequence[ScheduleDocument],
    tasks: Mapping[str, object],
    *,
    prune: bool = False,
    revive: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Synced:
    """The caller names the app: only schedules that the same caller declared are pruned. `tasks` are the options of each task.
    `revive` starts ended schedules again."""
    done = Synced.nothing()
    if not documents and not prune:
        return done
    try:
        async with database.transaction() as connection:
            await _declare(connection, caller, documents, tasks, done, prune=prune, revive=revive, now=now)
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    return done


async def _declare(
    connection: Connection,
    caller: Caller,
    given: Sequence[ScheduleDocument],
    tasks: Mapping[str, object],
    done: Synced,
    *,
    prune: bool,
    revive: bool,
    now: datetime | None,
) -> None:
    at = await declared.begin(connection, now=now)
    await workers.register_tasks(connection, tasks, now=now)
    documents = [msgspec.structs.replace(one, submitted_by=caller.actor) for one in given]
    over = {one.name for one in documents if _is_over(one, at)}
    if not revive and documents:
        over |= await declared.ended(connection, documents)
    digests = {one.name or one.task: _digest(one, tasks.get(one.task)) for one in given}
    known = await declared.known(connection, list(digests))
    same = {name for name, one in known.items() if one.digest == digests[name]}
    if not revive:
        over |= {name for name in same if not known[name].is_live and not known[name].is_pruned}
    kept = {name for name in same if known[name].is_live and known[name].is_edited}
    done.ended.extend(sorted(name for name in over if name is not None))
    done.kept.extend(sorted(kept - over))
    renamed = {name: one.id for name, one in known.items() if one.is_renamed and one.is_live}
    changed = [one for one in documents if one.name not in over | kept]
    written = await _rename_back(connection, caller, [one for one in changed if one.name in renamed], renamed, done, now)
    written |= await _write(connection, caller, [one for one in changed if one.name not in renamed], done, now)
    done.overwritten.extend(name for name in done.updated if name in known and known[name].is_edited)
    await declared.record(connection, written, digests)
    if prune:
        names = [one.name or one.task for one in given]
        for undeclared in await declared.undeclared(connection, caller.actor, names):
            await end_schedule(connection, caller, undeclared.id, reason=declared.PRUNED, now=now)
            done.pruned.append(undeclared.name)


async def _write(
    connection: Connection, caller: Caller, documents: Sequence[ScheduleDocument], done: Synced, now: datetime | None
) -> dict[str, UUID]:
    """Returns their ids by name."""
    written = await recurring_jobs.submit(connection, caller, documents, now=now) if documents else []
    for one, answer in zip(documents, written, strict=True):
        names = done.created if answer.created else done.updated if answer.changed else done.unchanged
        names.append(one.name or one.task)
    await declared.adopt(connection, [answer.id for answer in written], caller.actor)
    return {one.name or one.task: answer.id for one, answer in zip(documents, written, strict=True)}


async def _rename_back(
    connection: Connection,
    caller: Caller,
    documents: Sequence[ScheduleDocument],
    renamed: Mapping[str, UUID],
    done: Synced,
    now: datetime | None,
) -> dict[str, UUID]:
    """A changed declaration replaces what a person has edited, the name too. Submitted by name it would be a second
    schedule."""
    ids = {one.name or one.task: renamed[one.name or one.task] for one in documents}
    for one in documents:
        await recurring_jobs.edit(connection, caller, AtVersion(ids[one.name or one.task]), one, now=now)
    done.updated.extend(ids)
    return ids


def _digest(one: ScheduleDocument, options: object) -> str:
    """Of all that the code says about a schedule: its declaration, and the options of its task."""
    declaration = msgspec.structs.replace(one, submitted_by=None, trace=None)
    return hashlib.sha256(msgspec.json.encode([declaration, options], order="deterministic")).hexdigest()


def _is_over(one: ScheduleDocument, at: datetime) -> bool:
    rule = one.schedule
    if not isinstance(rule, Schedule):
        return False
    if rule.anchor_at is None:
        rule = msgspec.structs.replace(rule, anchor_at=at)
    return next_fire(rule, after=at, seed=seed_of("default", one.name, _NO_ID)) is None
