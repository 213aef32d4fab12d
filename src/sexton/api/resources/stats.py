"""`/v1/stats`: an overview of the cluster."""

from __future__ import annotations

from functools import partial

import msgspec
from litestar import Response

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Operation, ok
from sexton.api.state import ApiRequest, state_of
from sexton.store.views import overview as store

operation = partial(Operation, tag="fleet")


@operation("GET /v1/stats", id="getStats", answers=ok("Counts stop at 10,000 each.", wire.Stats), problems=(422,))
async def stats(request: ApiRequest) -> Response[bytes]:
    """Get an overview of the cluster."""
    state = state_of(request)
    async with state.database.connection() as connection:
        return answer(wire.Stats(**msgspec.structs.asdict(await store.stats(connection, now=state.clock.database_now()))))


HANDLERS = [stats]
