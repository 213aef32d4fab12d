"""The Litestar app over one database. It needs no lifespan: what runs in the background starts when it is needed."""

from __future__ import annotations

from litestar import Litestar
from litestar.config.compression import CompressionConfig
from litestar.datastructures import State

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.telemetry.events import Emit

from . import (
    backfills,
    batch,
    dead_letters,
    events,
    executions,
    fleet,
    health,
    jobs,
    limits,
    overview,
    previews,
    queues,
    remote_workers,
    reports,
    subscriptions,
    tenants,
    why,
)
from .acquiring import Acquiring
from .doorbell import Doorbell
from .gate import Gate
from .grouping import Grouping
from .known_tasks import KnownTasks
from .leases import Leases
from .live import Live
from .parts import Parts
from .problems import answer_problem
from .reporting import Reporting
from .request_ids import RequestIds
from .sites import refuse_other_sites

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
    remote_workers,
    reports,
    overview,
    subscriptions,
    events,
    health,
)
_SMALL_BODY = 64 * 1024  # of calls that take none


def create(database: Postgres, settings: Settings, *, clock: Clock, emit: Emit, dice: Rng) -> Litestar:
    gate = Gate(request_limit=settings.api_request_limit, body_bytes_limit=settings.api_body_mib * 2**20)
    # The other half of the connections is for those who do not wait.
    doorbell = Doorbell(database, clock=clock, emit=emit, dice=dice, limit=max(1, settings.api_connection_limit // 2))
    parts = Parts(
        database=database,
        settings=settings,
        clock=clock,
        emit=emit,
        dice=dice,
        grouping=Grouping(database, clock, notify=settings.notify),
        known_tasks=KnownTasks(database, clock),
        live=Live(database, clock=clock, emit=emit, dice=dice),
        gate=gate,
        leases=Leases(database),
        doorbell=doorbell,
        acquiring=Acquiring(database, settings, doorbell, gate, clock=clock, emit=emit, dice=dice),
        reporting=Reporting(database, clock=clock, emit=emit, dice=dice),
    )
    app = Litestar(
        route_handlers=[handler for resource in _RESOURCES for handler in resource.HANDLERS],
        before_request=refuse_other_sites,
        exception_handlers={Exception: answer_problem},
        compression_config=CompressionConfig(
            backend="gzip", gzip_compress_level=5, minimum_size=1024, exclude=[f"^{events.PATH}$"]
        ),
        request_max_body_size=_SMALL_BODY,
        on_shutdown=[parts.close],
        openapi_config=None,
        logging_config=None,
        state=State({"parts": parts}),
    )
    app.asgi_handler = RequestIds(parts.gate.before(app.asgi_handler), dice)
    return app
