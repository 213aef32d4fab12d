"""`/v1/limits`: limits by key, who holds them, and how many wait."""

from __future__ import annotations

from litestar import Response, delete, get, put

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Call, body, described
from sexton.api.requests import cursors
from sexton.api.requests.bodies import read_checked
from sexton.api.requests.parameters import name_of, no_query, query_of
from sexton.api.requests.queries import LimitsQuery
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.errors import NotFound
from sexton.operations import limits
from sexton.store.sharing import limits as store

PATH = "/v1/limits/"
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
    query, state = query_of(request, LimitsQuery), state_of(request)
    after = cursors.decode_text(query.cursor)
    async with state.database.connection() as connection:
        found = await store.find(
            connection, prefix=query.prefix or "", after=after, limit=query.limit, now=state.clock.database_now()
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
    state, key = state_of(request), name_of(request, PATH)
    async with state.database.connection() as connection:
        found = await store.get(connection, key, now=state.clock.database_now())
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
    state, key = state_of(request), name_of(request, PATH)
    limit = await read_checked(request, wire.LimitSettings, lambda one: one.to_domain(key))
    now = state.clock.database_now()
    async with state.database.transaction() as connection:
        await limits.put(connection, caller_of(request), limit, now=now)
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
    async with state_of(request).database.transaction() as connection:
        if not await limits.remove(connection, caller_of(request), key):
            raise NotFound(f"there is no limit {key!r}")
    return answer(wire.Removed(name=key))


HANDLERS = [listed, shown, set_, removed]
