"""What a person may do to a job that lives: change it, stop it for now, let it go on, try it again at once.

Each call needs a transaction: it locks the job, then its run, then decides (rule "lock, then decide"). A call that is refused
changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from sexton.domain.job import TIMEOUT_S, Lane
from sexton.domain.retry import Retry
from sexton.domain.states import RunState
from sexton.domain.targets import Target, in_place_of
from sexton.errors import Contention, NotAllowedIn, NotFound, VersionMismatch
from sexton.store.database import Connection, Row
from sexton.store.sql import statements

from . import dead_letters, jobs, runs
from .jobs import JobView

_SQL = statements(__name__)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What to change, already checked. What is unset stays; null goes back to the default of the task, then of the product.

    At most one of `run_at` and `delay_s`; either of them null makes the job due now."""

    payload: msgspec.Raw | UnsetType = UNSET
    run_at: datetime | UnsetType | None = UNSET
    delay_s: float | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    queue: str | UnsetType | None = UNSET
    lane: int | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    timeout_s: float | UnsetType | None = UNSET  # 0: no limit
    deadline_s: float | UnsetType | None = UNSET
    start_within_s: float | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType | None = UNSET
    target: Target | UnsetType | None = UNSET  # of the kind it had; null is for none


class _Definition(NamedTuple):
    version: int
    queue: str
    lane: int
    name: str | None
    payload_json: str
    policy_json: str | None
    timeout_s: float | None
    tags: list[str] | None
    options_json: str | None  # of its task, as registered


class _Run(NamedTuple):
    id: UUID
    state: str
    token: int


async def edit(
    connection: Connection,
    job_id: UUID,
    changes: Changes,
    *,
    version: int | None = None,
    by: str | None = None,
    now: datetime | None = None,
) -> JobView:
    """Only while no attempt has begun, else `NotAllowedIn`; with a `version` only that one, else `VersionMismatch`. The old
    definition is kept in `job_versions`."""
    old, run = await _lock(connection, job_id)
    if version is not None and version != old.version:
        raise VersionMismatch(f"job {job_id} is at version {old.version}, not {version}; read it again before you edit it")
    if run is None or run.state == RunState.RUNNING:
        raise NotAllowedIn("edit", (await jobs.show(connection, job_id)).status)
    if run.token > 0:
        raise NotAllowedIn("edit", "pending", "cannot edit a job whose first attempt has begun; cancel it and submit another")
    new = _changed(old, changes)
    before, after = set(old.tags or ()), set(new.tags or ())
    rows = await connection.fetch(
        _SQL["edit"],
        now,
        job_id,
        run.id,
        *new[1:-1],
        list(before - after),
        list(after - before),
        changes.run_at is not UNSET or changes.delay_s is not UNSET,
        _given(changes.run_at),
        _given(changes.delay_s),
        by,
    )
    await _announce(connection, rows)
    return await jobs.show(connection, job_id)


async def pause(
    connection: Connection, job_id: UUID, *, note: str | None = None, by: str | None = None, now: datetime | None = None
) -> JobView:
    """It does not start before it is resumed; its deadline and latest start still count. Of one that is paused already only the
    note changes. One that runs or has ended refuses."""
    _, run = await _lock(connection, job_id)
    match run:
        case _Run(state=RunState.PAUSED):
            await connection.fetch(_SQL["note"], job_id, note)
        case _Run(state=RunState.WAITING | RunState.READY | RunState.PARKED):
            await connection.fetch(_SQL["pause_job"], now, job_id, by, note)
            await connection.fetch(_SQL["pause_run"], run.id)
        case _:
            raise NotAllowedIn("pause", (await jobs.show(connection, job_id)).status)
    return await jobs.show(connection, job_id)


async def resume(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """Waiting or ready again, by its due time. Nothing happens to one that is not paused; one that has ended refuses."""
    _, run = await _lock(connection, job_id)
    if run is None:
        raise NotAllowedIn("resume", (await jobs.show(connection, job_id)).status)
    if run.state == RunState.PAUSED:
        await connection.fetch(_SQL["resume_job"], job_id)
        await _announce(connection, await connection.fetch(_SQL["resume_run"], now, run.id))
    return await jobs.show(connection, job_id)


async def retry(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """A failed job rises from its newest dead letter with a fresh budget; one that waits between attempts is due now."""
    _, run = await _lock(connection, job_id)
    if run is not None and run.state == RunState.WAITING and run.token > 0:
        await _make_due(connection, run, now)
    else:
        await _replay(connection, job_id, now)
    return await jobs.show(connection, job_id)


async def hasten(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> JobView:
    """One that waits, for its time or for its next attempt, is due now. Nothing happens to one that is ready or running; one
    that is paused or has ended refuses."""
    _, run = await _lock(connection, job_id)
    match run:
        case _Run(state=RunState.WAITING):
            await _make_due(connection, run, now)
        case _Run(state=RunState.READY | RunState.PARKED | RunState.RUNNING):
            pass
        case _:
            raise NotAllowedIn("run", (await jobs.show(connection, job_id)).status)
    return await jobs.show(connection, job_id)


async def _make_due(connection: Connection, run: _Run, now: datetime | None) -> None:
    await _announce(connection, await connection.fetch(_SQL["hasten"], now, run.id))


async def _replay(connection: Connection, job_id: UUID, now: datetime | None) -> None:
    status = (await jobs.show(connection, job_id)).status
    if status != "failed":
        raise NotAllowedIn("retry", status)
    letters = await connection.fetch(_SQL["newest_letter"], job_id)
    if not letters:
        message = "cannot retry a job whose dead letter was discarded or has expired; submit it again"
        raise NotAllowedIn("retry", status, message)
    if not await dead_letters.replay(connection, [letters[0]["id"]], now=now):
        raise Contention(f"the dead letter of job {job_id} is being replayed or discarded by somebody else")


async def _lock(connection: Connection, job_id: UUID) -> tuple[_Definition, _Run | None]:
    rows = await connection.fetch(_SQL["lock_job"], job_id)
    if not rows:
        raise NotFound(f"there is no job {job_id}")
    live = await connection.fetch(_SQL["lock_run"], job_id)
    return _Definition(*rows[0]), _Run(*live[0]) if live else None


async def _announce(connection: Connection, rows: list[Row]) -> None:
    ready = {row["queue"] for row in rows if row["is_ready"]}
    due_soon = any(row["due_soon"] for row in rows)
    if ready or due_soon:
        await runs.announce(connection, ready, due_soon=due_soon)


def _changed(old: _Definition, changes: Changes) -> _Definition:
    options: dict[str, Any] = {} if old.options_json is None else msgspec.json.decode(old.options_json)
    timeout_s = old.timeout_s
    if changes.timeout_s is not UNSET:
        timeout_s = options.get("timeout_s", TIMEOUT_S) if changes.timeout_s is None else changes.timeout_s
    return _Definition(
        version=old.version + 1,
        queue=_value(changes.queue, old.queue, options.get("queue", "default")),
        lane=_value(changes.lane, old.lane, options.get("lane", Lane.NORMAL)),
        name=_value(changes.name, old.name, None),
        payload_json=old.payload_json if changes.payload is UNSET else bytes(changes.payload).decode(),
        policy_json=_changed_policy(old.policy_json, changes, options.get("policy") or {}),
        timeout_s=timeout_s or None,
        tags=_value(None if changes.tags == () else changes.tags, old.tags, None),
        options_json=old.options_json,
    )


def _changed_policy(old_json: str | None, changes: Changes, of_task: dict[str, Any]) -> str | None:
    """Only what differs from the defaults of the product is stored, as in a submission."""
    policy: dict[str, Any] = {} if old_json is None else msgspec.json.decode(old_json)
    for part in ("retry", "deadline_s", "start_within_s"):
        value = getattr(changes, part)
        if value is not UNSET:
            policy[part] = of_task.get(part) if value is None else msgspec.to_builtins(value)
    if changes.target is not UNSET:
        old = msgspec.convert(policy.get("target"), Target | None)
        policy["target"] = msgspec.to_builtins(in_place_of(old, changes.target))
    chosen = {part: value for part, value in policy.items() if value is not None}
    return msgspec.json.encode(chosen).decode() if chosen else None


def _value(change: Any, old: Any, default: Any) -> Any:
    if change is UNSET:
        return old
    return default if change is None else change


def _given(change: Any) -> Any:
    return None if change is UNSET else change
