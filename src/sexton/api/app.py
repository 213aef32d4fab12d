"""The Litestar app over one database. It needs no lifespan: background work starts when it is needed."""

from __future__ import annotations

from litestar import Litestar
from litestar.config.compression import CompressionConfig
from litestar.datastructures import State

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.operations.remote.claims import RemoteClaims
from sexton.operations.remote.reports import LeaseReports
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.postgres.waiting_pool import WaitingPool
from sexton.telemetry.events import Emit

from .answers.problems import answer_problem
from .edge.cross_site import reject_cross_site
from .edge.load_shedding import LoadShedder
from .edge.request_ids import RequestIds
from .group_commit import GroupCommit
from .known_tasks import KnownTasks
from .live_stream import LiveStream
from .locked_requests import LockedRequests
from .outage_log import OutageLog
from .remote import runs, workers
from .remote.leases import Leases
from .remote.long_polling import LongPolling
from .resources import (
    backfills,
    batch,
    dead_letters,
    events,
    executions,
    fleet,
    health,
    jobs,
    limits,
    previews,
    queues,
    stats,
    subscriptions,
    tenants,
    why,
)
from .state import ApiState

_RESOURCES = (
    jobs,
    batch,
    backfills,
    previews,
    why,
    executions,
    dead_letters,
    tenants,
    queues,
    limits,
    fleet,
    workers,
    runs,
    stats,
    subscriptions,
    events,
    health,
)
_SMALL_BODY = 64 * 1024  # of calls without a body


def create(database: Postgres, settings: Settings, *, clock: Clock, emit: Emit, rng: Rng) -> Litestar:
    load_shedder = LoadShedder(request_limit=settings.api_request_limit, body_bytes_limit=settings.api_body_mib * 2**20)
    # The other half of the connections is for requests that do not wait.
    long_polling = LongPolling(database, clock=clock, emit=emit, rng=rng, limit=max(1, settings.api_connection_limit // 2))
    waiting_pool = WaitingPool(database)
    state = ApiState(
        database,
        settings,
        clock,
        emit,
        rng,
        group_commit=GroupCommit(database, clock, notify=settings.notify, waiting_pool=waiting_pool),
        known_tasks=KnownTasks(database, clock),
        live_stream=LiveStream(database, clock=clock, emit=emit, rng=rng),
        load_shedder=load_shedder,
        leases=Leases(database),
        long_polling=long_polling,
        remote_claims=RemoteClaims(database, grace_s=settings.worker_grace_s, clock=clock, emit=emit, rng=rng),
        remote_reports=LeaseReports(database, clock=clock, emit=emit, rng=rng),
        waiting_pool=waiting_pool,
        locked_requests=LockedRequests(waiting_pool, clock),
        outage_log=OutageLog(database, clock=clock, emit=emit, rng=rng),
    )
    app = Litestar(
        route_handlers=[handler for resource in _RESOURCES for handler in resource.HANDLERS],
        before_request=reject_cross_site,
        exception_handlers={Exception: answer_problem},
        compression_config=CompressionConfig(
            backend="gzip", gzip_compress_level=5, minimum_size=1024, exclude=[f"^{events.PATH}$"]
        ),
        request_max_body_size=_SMALL_BODY,
        on_shutdown=[state.close],
        openapi_config=None,
        logging_config=None,
        state=State({"api": state}),
    )
    app.asgi_handler = RequestIds(state.load_shedder.before(app.asgi_handler), rng)
    return app
