"""`/v1/stats`: the cluster at a glance."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from sexton import wire
from sexton.store import overview as store

from .answering import answer
from .describing import Answer, Call, described
from .parameters import no_query
from .parts import ApiRequest, parts_of


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
    parts = parts_of(request)
    async with parts.database.connection() as connection:
        return answer(wire.Stats(**msgspec.structs.asdict(await store.stats(connection, now=parts.clock.database_now()))))


HANDLERS = [stats]
