"""`/v1/queues`: a pause, the rate they release runs at, ageing, defaults; and how long each is."""

from __future__ import annotations

from datetime import datetime

from sexton import wire
from sexton.api.answers import views
from sexton.api.openapi import examples
from sexton.operations import queues
from sexton.store.database import Connection
from sexton.store.sharing import queues as store
from sexton.store.views import overview

from .sharing import Shares


async def _find(connection: Connection, name: str, now: datetime | None) -> wire.QueueView:
    loads = await overview.queues(connection, now=now)
    return views.queue(name, next((one for one in loads if one.name == name), None), await store.get(connection, name))


async def _find_all(connection: Connection, now: datetime | None) -> list[wire.QueueView]:
    loads = {load.name: load for load in await overview.queues(connection, now=now)}
    known = {one.name: one for one in await store.known(connection)} | await store.get_many(connection, loads)
    return [views.queue(name, loads.get(name), known.get(name)) for name in sorted({*loads, *known})]


def _is_known(view: wire.QueueView) -> bool:
    return view.updated_at is not None or view.has_runs or view.worker_count > 0


_QUEUES = Shares("queue", wire.QueueView, _find, is_known=_is_known)

HANDLERS = [
    _QUEUES.list(
        _find_all,
        description="By name: with work in them, with a worker that serves them, or with something set for them.",
    ),
    _QUEUES.show(missing="there is no work in a queue {name}, no live worker serves it, and nothing is set for it"),
    _QUEUES.set(
        wire.QueueSettings,
        lambda given, _: given.to_domain(),
        queues.put,
        summary="Set a queue's pace and defaults",
        description=(
            "Replaces all that was set: what is left out has its default again. A pause stays. `timeout`, `retry` and "
            "`jitter` are those of jobs submitted from now on whose task and submission say nothing themselves."
        ),
        examples=examples.QUEUES,
    ),
    _QUEUES.forget(queues.QUEUES, stays="The runs in it stay."),
    _QUEUES.set_status(
        queues.QUEUES, description="While it is paused nothing in it starts; what runs goes on, and jobs may be submitted."
    ),
]
