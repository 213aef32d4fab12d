"""`/v1/limits`: limits by key, the runs that hold them, and how many wait."""

from __future__ import annotations

from datetime import datetime

from litestar import Response

from sexton import wire
from sexton.api.answers import views
from sexton.api.openapi import examples
from sexton.api.openapi.description import ok
from sexton.api.requests.parameters import query_of
from sexton.api.requests.queries import LimitsQuery
from sexton.api.state import ApiRequest, state_of
from sexton.domain.limit import Limit
from sexton.operations import limits
from sexton.operations.caller import Caller
from sexton.store.database import Connection
from sexton.store.sharing import limits as store

from .pages import by_name
from .sharing import SettingsByName, operation


@operation("GET /v1/limits", id="listLimits", query=LimitsQuery, answers=ok("A page of limits.", wire.Page[wire.LimitView]))
async def find(request: ApiRequest) -> Response[bytes]:
    """List limits.

    By key. Each with how many runs hold it and wait for it, counted up to 1,000, but without its holders.
    """
    query, state = query_of(request, LimitsQuery), state_of(request)
    prefix, now = query.prefix or "", state.clock.database_now()

    async def found(connection: Connection, after: str) -> list[store.LimitUse]:
        return await store.find(connection, prefix=prefix, after=after, limit=query.limit, now=now)

    return await by_name(request, query, found, views.limit, lambda one: one.key)


async def _find(connection: Connection, key: str, now: datetime | None) -> wire.LimitView | None:
    found = await store.get(connection, key, now=now)
    return None if found is None else views.limit(found)


async def _put(connection: Connection, caller: Caller, key: str, limit: Limit, *, now: datetime | None) -> None:
    await limits.put(connection, caller, limit, now=now)


_LIMITS = SettingsByName("limit", wire.LimitView, _find, parameter="key")
_MISSING = "there is no limit {name}"

HANDLERS = [
    find,
    _LIMITS.show(summary="Get a limit and its holders", missing=_MISSING),
    _LIMITS.set(
        wire.LimitSettings,
        wire.LimitSettings.to_domain,
        _put,
        summary="Set a limit",
        description="Creates it, or replaces its numbers, at once and for all jobs that name it. Runs keep their slots.",
        examples=examples.LIMITS,
    ),
    _LIMITS.remove(
        limits.remove,
        summary="Remove a limit",
        description="Rejected (409) while runs wait for it.",
        done="It is deleted.",
        missing=_MISSING,
        problems=(409,),
    ),
]
