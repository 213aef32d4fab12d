"""What the handlers of the API share: made once by `app.create`, found through the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litestar import Request

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.telemetry.events import Emit

if TYPE_CHECKING:
    from .acquiring import Acquiring
    from .doorbell import Doorbell
    from .gate import Gate
    from .grouping import Grouping
    from .known_tasks import KnownTasks
    from .leases import Leases
    from .live import Live
    from .reporting import Reporting

ApiRequest = Request[Any, Any, Any]


@dataclass(frozen=True)
class Parts:
    database: Postgres
    settings: Settings
    clock: Clock
    emit: Emit
    dice: Rng
    grouping: Grouping
    known_tasks: KnownTasks
    live: Live
    gate: Gate
    leases: Leases
    doorbell: Doorbell
    acquiring: Acquiring
    reporting: Reporting

    def answer_all(self) -> None:
        """Whoever only waits here is answered at once."""
        self.live.close()
        self.doorbell.close()

    async def close(self) -> None:
        self.answer_all()
        await self.grouping.close()


def parts_of(request: ApiRequest) -> Parts:
    parts: Parts = request.app.state["parts"]
    return parts


def request_id_of(request: ApiRequest) -> str:
    return str(request.scope.get("request_id", ""))
