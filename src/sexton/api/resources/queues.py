"""`/v1/queues`: a pause, the rate they release runs at, ageing, defaults; and how long each is."""

from __future__ import annotations

from datetime import datetime

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
from sexton.operations import queues
from sexton.store.database import Connection
from sexton.store.sharing import queues as store
from sexton.store.views import overview

PATH = "/v1/queues/"
_QUEUE = {200: Answer("The queue as it stands now.", wire.QueueView)}


@get(
    "/v1/queues",
    opt=described(
        Call(
            id="listQueues",
            tag="sharing",
            summary="List queues",
            description="By name: with work in them, with a worker that serves them, or with something set for them.",
            answers={200: Answer("Each with its load and what is set for it.", wire.Page[wire.QueueView])},
            problems=(422,),
        )
    ),
)
async def listed(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state = state_of(request)
    async with state.database.connection() as connection:
        loads = {load.name: load for load in await overview.queues(connection, now=state.clock.database_now())}
        known = {one.name: one for one in await store.known(connection)} | await store.get_many(connection, loads)
    names = sorted({*loads, *known})
    return answer(wire.Page(items=[views.queue(name, loads.get(name), known.get(name)) for name in names]))


@get(
    "/v1/queues/{name:path}",
    opt=described(
        Call(
            id="getQueue",
            tag="sharing",
            summary="Look at a queue",
            answers=_QUEUE,
            problems=(400, 404, 422),
        )
    ),
)
async def shown(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, name = state_of(request), name_of(request, PATH)
    async with state.database.connection() as connection:
        load, settings = await _found(connection, name, state.clock.database_now())
    if load is None and settings is None:
        raise NotFound(f"there is no work in a queue {name!r}, no live worker serves it, and nothing is set for it")
    return answer(views.queue(name, load, settings))


@put(
    "/v1/queues/{name:path}",
    opt=described(
        Call(
            id="setQueue",
            tag="sharing",
            summary="Set a queue's pace and defaults",
            description=(
                "Replaces all that was set: what is left out has its default again. A pause stays. `timeout`, `retry` and "
                "`jitter` are those of jobs submitted from now on whose task and submission say nothing themselves."
            ),
            body=body(wire.QueueSettings, **examples.QUEUES),
            answers=_QUEUE,
            problems=(400, 404, 413, 415, 422),
        )
    ),
)
async def set_(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, name = state_of(request), plain_name(name_of(request, PATH))
    settings = await read_checked(request, wire.QueueSettings, wire.QueueSettings.to_domain)
    now = state.clock.database_now()
    async with state.database.transaction() as connection:
        await queues.put(connection, caller_of(request), name, settings, now=now)
        return answer(views.queue(name, *await _found(connection, name, now)))


@delete(
    "/v1/queues/{name:path}",
    status_code=200,
    opt=described(
        Call(
            id="removeQueue",
            tag="sharing",
            summary="Forget what is set for a queue",
            description="It has the defaults again, and a pause ends. The runs in it stay.",
            answers={200: Answer("It has the defaults again.", wire.Removed)},
            problems=(400, 404, 422),
        )
    ),
)
async def removed(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    name = name_of(request, PATH)
    async with state_of(request).database.transaction() as connection:
        if not await queues.remove(connection, caller_of(request), name):
            raise NotFound(f"nothing is set for a queue {name!r}")
    return answer(wire.Removed(name=name))


@patch(
    "/v1/queues/{name:path}",
    opt=described(
        Call(
            id="setQueueStatus",
            tag="sharing",
            path="/v1/queues/{name}/status",
            summary="Pause or resume a queue",
            description="While it is paused nothing in it starts; what runs goes on, and jobs may be submitted.",
            body=body(wire.ShareStatusChange, **examples.SHARE_STATUS_CHANGES),
            answers=_QUEUE,
            problems=(400, 404, 413, 415, 422),
        )
    ),
)
async def set_status(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, name = state_of(request), plain_name(name_of(request, PATH, "/status"))
    change = await read(request, wire.ShareStatusChange)
    refuse_unkeepable("/note", change.note)
    now = state.clock.database_now()
    async with state.database.transaction() as connection:
        if change.status == "paused":
            await queues.pause(connection, caller_of(request), name, note=change.note, now=now)
        else:
            await queues.resume(connection, caller_of(request), name)
        return answer(views.queue(name, *await _found(connection, name, now)))


async def _found(
    connection: Connection, name: str, now: datetime | None
) -> tuple[overview.QueueLoad | None, store.Queue | None]:
    loads = await overview.queues(connection, now=now)
    return next((one for one in loads if one.name == name), None), await store.get(connection, name)


HANDLERS = [listed, shown, set_, removed, set_status]
