"""`/v1/stats`, `/v1/queues`, `/v1/tenants`: the cluster at a glance."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from sexton import wire
from sexton.errors import NotFound
from sexton.store import overview as store

from .answering import answer
from .describing import Answer, Call, described
from .parameters import name_of, no_query
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


@get(
    "/v1/queues",
    opt=described(
        Call(
            id="listQueues",
            tag="fleet",
            summary="List queues",
            answers={200: Answer("By name: with work in them, or a worker that serves them.", wire.Page[wire.QueueView])},
            problems=(422,),
        )
    ),
)
async def queues(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    return answer(wire.Page(items=await _queues(request)))


@get(
    "/v1/queues/{name:path}",
    opt=described(
        Call(
            id="getQueue",
            tag="fleet",
            summary="Look at a queue",
            answers={200: Answer("Its load.", wire.QueueView)},
            problems=(400, 404, 422),
        )
    ),
)
async def queue(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    name = name_of(request, "/v1/queues/")
    found = next((one for one in await _queues(request) if one.name == name), None)
    if found is None:
        raise NotFound(f"there is no work in a queue {name!r}, and no live worker serves it")
    return answer(found)


@get(
    "/v1/tenants",
    opt=described(
        Call(
            id="listTenants",
            tag="fleet",
            summary="List tenants",
            answers={200: Answer("By name: those with work waiting or running.", wire.Page[wire.TenantView])},
            problems=(422,),
        )
    ),
)
async def tenants(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    return answer(wire.Page(items=await _tenants(request)))


@get(
    "/v1/tenants/{name:path}",
    opt=described(
        Call(
            id="getTenant",
            tag="fleet",
            summary="Look at a tenant",
            answers={200: Answer("Its load.", wire.TenantView)},
            problems=(400, 404, 422),
        )
    ),
)
async def tenant(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    name = name_of(request, "/v1/tenants/")
    found = next((one for one in await _tenants(request) if one.name == name), None)
    if found is None:
        raise NotFound(f"the tenant {name!r} has no work waiting or running")
    return answer(found)


async def _queues(request: ApiRequest) -> list[wire.QueueView]:
    parts = parts_of(request)
    async with parts.database.connection() as connection:
        rows = await store.queues(connection, now=parts.clock.database_now())
    return [wire.QueueView(**msgspec.structs.asdict(row)) for row in rows]


async def _tenants(request: ApiRequest) -> list[wire.TenantView]:
    async with parts_of(request).database.connection() as connection:
        rows = await store.tenants(connection)
    return [wire.TenantView(**msgspec.structs.asdict(row)) for row in rows]


HANDLERS = [stats, queues, queue, tenants, tenant]
