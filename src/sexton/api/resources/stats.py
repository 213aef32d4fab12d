"""`/v1/stats`: the cluster at a glance."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Answer, Call, described
from sexton.api.requests.parameters import no_query
from sexton.api.state import ApiRequest, state_of
from sexton.store.views import overview as store


@get(
    "/v1/stats",
    opt=described(
        Call(
            id="getStats",
            tag="fleet",
            summary="The whole cluster at a glance",
            answers={200: Answer("Counts stop at 10,000 each.", wire.Stats)},
            problems=(422,),
        )
    ),
)
async def stats(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state = state_of(request)
    async with state.database.connection() as connection:
        return answer(wire.Stats(**msgspec.structs.asdict(await store.stats(connection, now=state.clock.database_now()))))


HANDLERS = [stats]
