"""Changes the settings of queues: a pause, the release rate, ageing, and defaults for their jobs."""

from __future__ import annotations

from datetime import datetime

from sexton.domain.sharing import QueueSettings
from sexton.store.database import Connection
from sexton.store.sharing import queues
from sexton.store.work import runs

from .caller import Caller
from .pausable_settings import PausableSettings


async def put(
    connection: Connection, caller: Caller, name: str, settings: QueueSettings, *, now: datetime | None = None
) -> None:
    """Replaces the settings; a pause stays."""
    await queues.TABLE.lock(connection, name, now=now)
    await queues.put(connection, name, settings, now=now)
    await _wake(connection, name)


async def _wake(connection: Connection, name: str) -> None:
    await runs.announce(connection, [name], due_soon=True)


QUEUES = PausableSettings(queues.TABLE, _wake)
pause, resume, remove = QUEUES.pause, QUEUES.resume, QUEUES.remove
