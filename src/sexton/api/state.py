"""The state that the handlers of the API share: created once by `app.create`, found through the request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from litestar import Request

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.operations.caller import Caller
from sexton.operations.remote.claims import RemoteClaims
from sexton.operations.remote.reports import LeaseReports
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.telemetry.events import Emit

if TYPE_CHECKING:
    from sexton.store.postgres.waiting_pool import WaitingPool

    from .edge.load_shedding import LoadShedder
    from .group_commit import GroupCommit
    from .known_tasks import KnownTasks
    from .live_stream import LiveStream
    from .locked_requests import LockedRequests
    from .outage_log import OutageLog
    from .remote.leases import Leases
    from .remote.long_polling import LongPolling

ApiRequest = Request[Any, Any, Any]
ON_SEAT = "sexton.on_seat"  # in the scope of a request that has to wait: the state that it uses
ACTOR = "api"  # stored as `submitted_by` and `paused_by`


@dataclass(frozen=True)
class ApiState:
    database: Postgres
    settings: Settings
    clock: Clock
    emit: Emit
    rng: Rng
    group_commit: GroupCommit
    known_tasks: KnownTasks
    live_stream: LiveStream
    load_shedder: LoadShedder
    leases: Leases
    long_polling: LongPolling
    remote_claims: RemoteClaims
    remote_reports: LeaseReports
    waiting_pool: WaitingPool
    locked_requests: LockedRequests
    outage_log: OutageLog
    may_wait: bool = False  # this request has a connection of its own, on which it may wait for locks

    def answer_all(self) -> None:
        """Answers the waiting requests at once."""
        self.live_stream.close()
        self.long_polling.close()

    async def close(self) -> None:
        self.answer_all()
        await self.outage_log.close()
        await self.group_commit.close()
        await self.waiting_pool.close()

    def on_seat(self, database: Any) -> ApiState:
        """For a request that has to wait for another transaction."""
        reports = LeaseReports(database, clock=self.clock, emit=self.emit, rng=self.rng)
        return replace(self, database=database, remote_reports=reports, may_wait=True)


def state_of(request: ApiRequest) -> ApiState:
    scope: Any = request.scope
    state: ApiState = scope.get(ON_SEAT) or request.app.state["api"]
    return state


def request_id_of(request: ApiRequest) -> str:
    return str(request.scope.get("request_id", ""))


def caller_of(request: ApiRequest) -> Caller:
    """The caller of the request. Every caller may do everything today."""
    return Caller(ACTOR, request_id=request_id_of(request))
