"""`/v1/workers` and `/v1/nodes`: who is there, and who has fallen silent."""

from __future__ import annotations

from datetime import datetime

from litestar import Response, get

from sexton import wire
from sexton.store import fleet as store
from sexton.store import tail
from sexton.store.overview import NODE_ALIVE_S

from . import views
from .answering import answer
from .describing import Answer, Call, described
from .parameters import no_query
from .parts import ApiRequest, parts_of


@get(
    "/v1/workers",
    opt=described(
        Call(
            id="listWorkers",
            tag="fleet",
            summary="List workers",
            answers={200: Answer("All that are known, also those lost lately.", wire.Page[wire.Worker])},
            problems=(422,),
        )
    ),
)
async def workers(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    parts = parts_of(request)
    async with parts.database.connection() as connection:
        now = await tail.mark(connection, now=parts.clock.database_now())
        rows = await store.workers(connection)
    return answer(wire.Page(items=[views.worker(row, _since(row.beat_at, now)) for row in rows]))


@get(
    "/v1/nodes",
    opt=described(
        Call(
            id="listNodes",
            tag="fleet",
            summary="List scheduler nodes",
            answers={200: Answer("Each with the partitions it leads.", wire.Page[wire.Node])},
            problems=(422,),
        )
    ),
)
async def nodes(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    parts = parts_of(request)
    async with parts.database.connection() as connection:
        now = await tail.mark(connection, now=parts.clock.database_now())
        rows = await store.nodes(connection)
    items = [views.node(row, _since(row.beat_at, now), alive_s=NODE_ALIVE_S) for row in rows]
    return answer(wire.Page(items=items))


def _since(beat_at: datetime, now: datetime) -> float:
    return max((now - beat_at).total_seconds(), 0.0)


HANDLERS = [workers, nodes]
