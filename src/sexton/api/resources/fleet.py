"""`/v1/workers` and `/v1/nodes`: who is there, and who has fallen silent."""

from __future__ import annotations

from datetime import datetime

from litestar import Response, get

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Answer, Call, described
from sexton.api.requests.parameters import no_query
from sexton.api.state import ApiRequest, state_of
from sexton.store import clock as database_clock
from sexton.store.fleet import workers as store
from sexton.store.views.overview import NODE_ALIVE_S


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
    state = state_of(request)
    async with state.database.connection() as connection:
        now = await database_clock.now(connection, now=state.clock.database_now())
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
    state = state_of(request)
    async with state.database.connection() as connection:
        now = await database_clock.now(connection, now=state.clock.database_now())
        rows = await store.nodes(connection)
    items = [views.node(row, _since(row.beat_at, now), alive_s=NODE_ALIVE_S) for row in rows]
    return answer(wire.Page(items=items))


def _since(beat_at: datetime, now: datetime) -> float:
    return max((now - beat_at).total_seconds(), 0.0)


HANDLERS = [workers, nodes]
