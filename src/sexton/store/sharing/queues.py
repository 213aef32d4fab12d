"""Settings of queues: a pause, the release rate, ageing, and defaults for their jobs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sexton.domain.job import Policy
from sexton.domain.retry import Retry
from sexton.domain.sharing import QueueSettings
from sexton.store.database import Connection
from sexton.store.sql import statements

from .settings_table import SettingsTable, Statements

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


_STATEMENTS = Statements(_SQL["get"], _SQL["list"], _SQL["lock"], _SQL["pause"], _SQL["resume"], _SQL["remove"])
TABLE = SettingsTable(Queue, _STATEMENTS)
get, get_many, known = TABLE.get, TABLE.get_many, TABLE.known


async def put(connection: Connection, name: str, settings: QueueSettings, *, now: datetime | None = None) -> None:
    # In the form of a task's options: a job's own policy overrides it.
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
