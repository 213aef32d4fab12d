"""`/v1/tenants`: their share, their limits, a pause; and how much each has going on."""

from __future__ import annotations

from litestar import Response, delete, get, patch, put

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Call, body, described
from sexton.api.requests.bodies import read, read_checked, refuse_unkeepable
from sexton.api.requests.parameters import name_of, no_query
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.domain.sharing import plain_name
from sexton.errors import NotFound
from sexton.operations import tenants
from sexton.store.database import Connection
from sexton.store.sharing import tenants as store
from sexton.store.views import overview

PATH = "/v1/tenants/"
_TENANT = {200: Answer("The tenant as it stands now.", wire.TenantView)}


@get(
    "/v1/tenants",
    opt=described(
        Call(
            id="listTenants",
            tag="sharing",
            summary="List tenants",
            description="By name: those with work waiting or running, and up to 1,000 for which something was set.",
            answers={200: Answer("Each with its load and what is set for it.", wire.Page[wire.TenantView])},
            problems=(422,),
        )
    ),
)
async def listed(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    async with state_of(request).database.connection() as connection:
        loads = {load.name: load for load in await overview.tenants(connection)}
        known = {one.name: one for one in await store.known(connection)} | await store.get_many(connection, loads)
    names = sorted({*loads, *known})
    return answer(wire.Page(items=[views.tenant(name, loads.get(name), known.get(name)) for name in names]))


@get(
    "/v1/tenants/{name:path}",
    opt=described(
        Call(
            id="getTenant",
            tag="sharing",
            summary="Look at a tenant",
            description="One for which nothing was set has the defaults.",
            answers=_TENANT,
            problems=(400, 404, 422),
        )
    ),
)
async def shown(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    name = name_of(request, PATH)
    async with state_of(request).database.connection() as connection:
        view = await _view(connection, name)
    if view.updated_at is None and not view.ready_count + view.running_count + view.waiting_count + view.parked_count:
        raise NotFound(f"nothing is set for a tenant {name!r}, and it has no work waiting or running")
    return answer(view)


@put(
    "/v1/tenants/{name:path}",
    opt=described(
        Call(
            id="setTenant",
            tag="sharing",
            summary="Set a tenant's share and limits",
            description="Replaces all that was set: what is left out has its default again. A pause stays.",
            body=body(wire.TenantSettings, **examples.TENANTS),
            answers=_TENANT,
            problems=(400, 404, 413, 415, 422),
        )
    ),
)
async def set_(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, name = state_of(request), plain_name(name_of(request, PATH))
    settings = await read_checked(request, wire.TenantSettings, wire.TenantSettings.to_domain)
    async with state.database.transaction() as connection:
        await tenants.put(connection, caller_of(request), name, settings, now=state.clock.database_now())
        return answer(await _view(connection, name))


@delete(
    "/v1/tenants/{name:path}",
    status_code=200,
    opt=described(
        Call(
            id="removeTenant",
            tag="sharing",
            summary="Forget what is set for a tenant",
            description="It has the defaults again, and a pause ends. Its jobs stay.",
            answers={200: Answer("It has the defaults again.", wire.Removed)},
            problems=(400, 404, 422),
        )
    ),
)
async def removed(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    name = name_of(request, PATH)
    async with state_of(request).database.transaction() as connection:
        if not await tenants.remove(connection, caller_of(request), name):
            raise NotFound(f"nothing is set for a tenant {name!r}")
    return answer(wire.Removed(name=name))


@patch(
    "/v1/tenants/{name:path}",
    opt=described(
        Call(
            id="setTenantStatus",
            tag="sharing",
            path="/v1/tenants/{name}/status",
            summary="Pause or resume a tenant",
            description="While it is paused none of its runs starts; what runs goes on, and it may submit.",
            body=body(wire.ShareStatusChange, **examples.SHARE_STATUS_CHANGES),
            answers=_TENANT,
            problems=(400, 404, 413, 415, 422),
        )
    ),
)
async def set_status(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, name = state_of(request), plain_name(name_of(request, PATH, "/status"))
    change = await read(request, wire.ShareStatusChange)
    refuse_unkeepable("/note", change.note)
    async with state.database.transaction() as connection:
        if change.status == "paused":
            await tenants.pause(connection, caller_of(request), name, note=change.note, now=state.clock.database_now())
        else:
            await tenants.resume(connection, caller_of(request), name)
        return answer(await _view(connection, name))


async def _view(connection: Connection, name: str) -> wire.TenantView:
    return views.tenant(name, await overview.tenant(connection, name), await store.get(connection, name))


HANDLERS = [listed, shown, set_, removed, set_status]
