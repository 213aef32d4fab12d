"""What is set for queues: a pause, the pace they release runs at, ageing, and defaults of their jobs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from sexton.domain.job import Policy
from sexton.domain.retry import Retry
from sexton.domain.sharing import QueueSettings
from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)
_policy = msgspec.json.Decoder(Policy).decode


class Queue(msgspec.Struct, frozen=True):
    name: str
    release_rate: float | None
    release_burst: int | None
    ageing_s: float | None
    timeout_s: float | None
    jitter_s: float | None
    policy_json: str | None
    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    updated_at: datetime

    @property
    def retry(self) -> Retry | None:
        return None if self.policy_json is None else _policy(self.policy_json).retry


async def get(connection: Connection, name: str) -> Queue | None:
    found = await get_many(connection, [name])
    return found.get(name)


async def get_many(connection: Connection, names: Collection[str]) -> dict[str, Queue]:
    return {row["name"]: Queue(*row) for row in await connection.fetch(_SQL["get"], list(names))}


async def known(connection: Connection, *, after: str = "", limit: int = 1_000) -> list[Queue]:
    """Those for which something was set, by name."""
    return [Queue(*row) for row in await connection.fetch(_SQL["list"], after, limit)]


async def lock(connection: Connection, name: str, *, now: datetime | None = None) -> None:
    """Its row, which is made if there is none."""
    await connection.fetch(_SQL["lock"], now, name)


async def put(connection: Connection, name: str, settings: QueueSettings, *, now: datetime | None = None) -> None:
    # As a task's options have it: a job's own policy is laid over it.
    policy = None if settings.retry is None else msgspec.json.encode({"retry": settings.retry}).decode()
    await connection.fetch(
        _SQL["put"],
        now,
        name,
        settings.release_rate,
        settings.release_burst,
        settings.ageing_s,
        settings.timeout_s,
        settings.jitter_s,
        policy,
    )


async def pause(connection: Connection, name: str, *, by: str | None, note: str | None) -> None:
    await connection.fetch(_SQL["pause"], name, by, note)


async def resume(connection: Connection, name: str) -> None:
    await connection.fetch(_SQL["resume"], name)


async def remove(connection: Connection, name: str) -> bool:
    return bool(await connection.fetch(_SQL["remove"], name))
