"""`/v1/tenants`: their share, their limits, a pause; and the load of each."""

from __future__ import annotations

from datetime import datetime

from sexton import wire
from sexton.api.answers import views
from sexton.api.openapi import examples
from sexton.operations import tenants
from sexton.store.database import Connection
from sexton.store.sharing import tenants as store
from sexton.store.views import overview

from .sharing import Shares


async def _find(connection: Connection, name: str, now: datetime | None) -> wire.TenantView:
    return views.tenant(name, await overview.tenant(connection, name), await store.get(connection, name))


async def _find_all(connection: Connection, now: datetime | None) -> list[wire.TenantView]:
    loads = {load.name: load for load in await overview.tenants(connection)}
    known = {one.name: one for one in await store.known(connection)} | await store.get_many(connection, loads)
    return [views.tenant(name, loads.get(name), known.get(name)) for name in sorted({*loads, *known})]


_TENANTS = Shares("tenant", wire.TenantView, _find, is_known=lambda view: view.updated_at is not None or view.has_runs)

HANDLERS = [
    _TENANTS.list(_find_all, description="By name: those with waiting or running runs, and up to 1,000 with settings."),
    _TENANTS.show(
        description="A tenant without settings has the defaults.",
        missing="the tenant {name} has no settings and no waiting or running runs",
    ),
    _TENANTS.set(
        wire.TenantSettings,
        lambda given, _: given.to_domain(),
        tenants.put,
        summary="Set a tenant's share and limits",
        description="Replaces all settings: fields that you leave out have their default again. A pause stays.",
        examples=examples.TENANTS,
    ),
    _TENANTS.forget(tenants.TENANTS, stays="Its jobs stay."),
    _TENANTS.set_status(
        tenants.TENANTS, description="While it is paused none of its runs starts; running ones continue, and it may submit."
    ),
]
