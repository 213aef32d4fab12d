"""`/v1/queues`: a pause, the release rate, ageing, defaults; and the length of each queue."""

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
        description="By name: queues with runs, with a live worker, or with settings.",
    ),
    _QUEUES.show(missing="the queue {name} has no runs, no live worker and no settings"),
    _QUEUES.set(
        wire.QueueSettings,
        lambda given, _: given.to_domain(),
        queues.put,
        summary="Set a queue's release rate and defaults",
        description=(
            "Replaces all settings: fields that you leave out have their default again. A pause stays. `timeout`, `retry` and "
            "`jitter` apply to jobs submitted from now on whose task and submission do not set them."
        ),
        examples=examples.QUEUES,
    ),
    _QUEUES.forget(queues.QUEUES, stays="The runs in it stay."),
    _QUEUES.set_status(
        queues.QUEUES, description="While it is paused nothing in it starts; running runs continue, and jobs may be submitted."
    ),
]
