"""`/healthz` (this process answers), `/readyz` (it can work), and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial

import msgspec
from litestar import Litestar, Response, get

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Answer, Operation, ok
from sexton.api.openapi.document import openapi
from sexton.api.requests.bodies import JSON
from sexton.api.state import ApiRequest, ApiState, state_of
from sexton.errors import DatabaseUnavailable, SextonError
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster

operation = partial(Operation, tag="operations")


@operation("GET /healthz", any_query=True, id="getHealth", answers=ok("It is alive.", wire.Health))
async def healthz(request: ApiRequest) -> Response[bytes]:
    """Check whether this process is alive.

    Never uses the database.
    """
    return answer(wire.Health(), headers={"Cache-Control": "no-store"})


@operation(
    "GET /readyz",
    any_query=True,
    id="getReadiness",
    answers={
        200: Answer("It is ready.", wire.Readiness),
        503: Answer("It is not ready; the checks say why.", wire.Readiness),
    },
)
async def readyz(request: ApiRequest) -> Response[bytes]:
    """Check whether this process can work."""
    state = state_of(request)
    checks: dict[str, wire.Check] = {}
    for name, check in _CHECKS.items():
        checks[name] = await _check(check, state)
        if not checks[name].ok:
            break  # the rest depends on it
    ready = all(check.ok for check in checks.values())
    return answer(
        wire.Readiness(ready=ready, checks=checks), status=200 if ready else 503, headers={"Cache-Control": "no-store"}
    )


async def _ping(database: Postgres) -> None:
    async with database.connection() as connection:
        await connection.fetch("SELECT 1")


_CHECKS: dict[str, Callable[[Postgres], Awaitable[None]]] = {
    "database": _ping,
    "migrations": migrations.require_current,
    "writable": cluster.require_writable,
    "home": cluster.require_home,
}


async def _check(check: Callable[[Postgres], Awaitable[None]], state: ApiState) -> wire.Check:
    try:
        await check(state.database)
    except SextonError as error:
        if isinstance(error, DatabaseUnavailable):
            state.outage_log.failed(error)
        return wire.Check(ok=False, detail=f"{error.code}: {error}")
    return wire.Check(ok=True, detail="ok")


@operation("GET /schema", any_query=True, id="getOpenApi", answers=ok("OpenAPI 3.1.", dict))
async def schema(request: ApiRequest) -> Response[bytes]:
    """Get this OpenAPI document."""
    return Response(_document(request.app), media_type=JSON)


@get("/schema/openapi.json")
async def schema_file(request: ApiRequest) -> Response[bytes]:
    """The address where tools look for it."""
    return Response(_document(request.app), media_type=JSON)


@cache
def _document(app: Litestar) -> bytes:
    return msgspec.json.encode(openapi(app))


HANDLERS = [healthz, readyz, schema, schema_file]
