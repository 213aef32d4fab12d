"""`/v1/workers` and `/v1/nodes`: the live processes, and those that stopped sending heartbeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Operation, ok
from sexton.api.state import ApiRequest, state_of
from sexton.store import clock as database_clock
from sexton.store.fleet import workers as store

operation = partial(Operation, tag="fleet")

Member = TypeVar("Member", store.Worker, store.Node)


def _listing(
    path: str,
    find: Callable[..., Awaitable[Sequence[Member]]],
    view: Callable[[Member, float], msgspec.Struct],
    **words: Any,
) -> HTTPRouteHandler:
    @operation(f"GET {path}", problems=(422,), **words)
    async def list_(request: ApiRequest) -> Response[bytes]:
        state = state_of(request)
        async with state.database.connection() as connection:
            now = await database_clock.now(connection, now=state.clock.database_now())
            rows = await find(connection, now=now)
        return answer(wire.Page(items=[view(row, max((now - row.beat_at).total_seconds(), 0.0)) for row in rows]))

    return list_


_WORKERS = ok("All known ones, including those lost recently.", wire.Page[wire.Worker])
_NODES = ok("Each with the partitions it leads.", wire.Page[wire.Node])

HANDLERS = [
    _listing("/v1/workers", store.workers, views.worker, id="listWorkers", summary="List workers", answers=_WORKERS),
    _listing("/v1/nodes", store.nodes, views.node, id="listNodes", summary="List scheduler nodes", answers=_NODES),
]
