"""`/v1/limits`: limits by key, who holds them, and how many wait."""

from __future__ import annotations

from litestar import Response, delete, get, put

from sexton import wire
from sexton.errors import NotFound
from sexton.store import limits as store

from . import cursors, examples, views
from .answering import answer
from .decoding import read
from .describing import Answer, Call, body, described
from .parameters import name_of, no_query, query_of
from .parts import ApiRequest, parts_of
from .queries import LimitsQuery

PATH = "/v1/limits/"
BY = "api"
_LIMIT = {200: Answer("The limit as it stands now.", wire.LimitView)}


@get(
    "/v1/limits",
    opt=described(
        Call(
            id="listLimits",
            tag="sharing",
            summary="List limits",
            description="By key. Each with how many hold it and wait for it, counted to 1,000, but without its holders.",
            query=LimitsQuery,
            answers={200: Answer("A page of them.", wire.Page[wire.LimitView])},
        )
    ),
)
async def listed(request: ApiRequest) -> Response[bytes]:
    query, parts = query_of(request, LimitsQuery), parts_of(request)
    after = cursors.decode_text(query.cursor)
    async with parts.database.connection() as connection:
        found = await store.find(
            connection, prefix=query.prefix or "", after=after, limit=query.limit, now=parts.clock.database_now()
        )
    more = cursors.encode_text(found[-1].key) if len(found) == query.limit else None
    return answer(wire.Page(items=[views.limit(one) for one in found], next_cursor=more))


@get(
    "/v1/limits/{key:path}",
    opt=described(
        Call(
            id="getLimit",
            tag="sharing",
            summary="Look at a limit and its holders",
            answers=_LIMIT,
            problems=(400, 404, 422),
        )
    ),
)
async def shown(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    parts, key = parts_of(request), name_of(request, PATH)
    async with parts.database.connection() as connection:
        found = await store.get(connection, key, now=parts.clock.database_now())
    if found is None:
        raise NotFound(f"there is no limit {key!r}")
    return answer(views.limit(found))


@put(
    "/v1/limits/{key:path}",
    opt=described(
        Call(
            id="setLimit",
            tag="sharing",
            summary="Set a limit",
            description="Makes it, or replaces its numbers, at once and for all jobs that name it. Whoever holds it keeps it.",
            body=body(wire.LimitSettings, **examples.LIMITS),
            answers=_LIMIT,
            problems=(400, 404, 413, 415, 422),
        )
    ),
)
async def set_(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    parts, key = parts_of(request), name_of(request, PATH)
    limit = (await read(request, wire.LimitSettings)).to_domain(key)
    now = parts.clock.database_now()
    async with parts.database.transaction() as connection:
        await store.put(connection, limit, by=BY, now=now)
        found = await store.get(connection, key, now=now)
    if found is None:
        raise NotFound(f"the limit {key!r} was removed at this moment")
    return answer(views.limit(found))


@delete(
    "/v1/limits/{key:path}",
    status_code=200,
    opt=described(
        Call(
            id="removeLimit",
            tag="sharing",
            summary="Remove a limit",
            description="Refused (409) while runs wait for it.",
            answers={200: Answer("It is gone.", wire.Removed)},
            problems=(400, 404, 409, 422),
        )
    ),
)
async def removed(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    key = name_of(request, PATH)
    async with parts_of(request).database.transaction() as connection:
        if not await store.remove(connection, key):
            raise NotFound(f"there is no limit {key!r}")
    return answer(wire.Removed(name=key))


HANDLERS = [listed, shown, set_, removed]
