"""The transport of a worker in quarantine: it brings suspects, and nothing else (rule "suspects apart")."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.run import Claimed
from sexton.store.database import Database
from sexton.store.work import runs


class SuspectTransport:
    def __init__(self, database: Database, queues: Sequence[str], *, grace_s: float, clock: Clock) -> None:
        self._database, self._queues, self._grace_s, self._clock = database, queues, grace_s, clock

    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        """The database decides how many of them may be executed together."""
        if ahead:
            return []
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            return await runs.claim_suspects(
                connection, worker_id, queues=self._queues, tasks=tasks, wanted=limit, grace_s=self._grace_s, now=now
            )
