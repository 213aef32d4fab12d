"""The transport of a batch task: what the claim of another one brings, with what decides which runs may share a call."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from sexton.domain.batch import Member
from sexton.domain.run import Claimed
from sexton.store.database import Database
from sexton.store.work import runs

from .transport import Transport


class BatchTransport:
    """A second small statement for each claim that has brought runs, so that the claim itself stays as it is for all others. If
    it fails, the leases are returned as after a reply that was lost."""

    def __init__(self, transport: Transport, database: Database) -> None:
        self._transport, self._database = transport, database

    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        claimed = await self._transport.take(worker_id, tasks, limit, ahead=ahead)
        if not claimed:
            return claimed
        async with self._database.connection() as connection:
            found = await runs.batch_facts(connection, [run.run_id for run in claimed])
        return [Member(*(*msgspec.structs.astuple(run), *found.get(run.run_id, (None, None)))) for run in claimed]
