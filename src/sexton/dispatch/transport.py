"""How ready runs reach a worker. Whatever carries them, PostgreSQL decides every claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from sexton.domain.run import Claimed


class Transport(Protocol):
    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        """Leases up to `limit` ready runs of these tasks. `ahead` is for work that no slot is free for yet: it leaves out runs
        whose claim already counts as their start."""
