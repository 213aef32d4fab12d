"""`/v1/subscriptions`: webhooks that report the outcome of runs, the log of their deliveries, and replays."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from litestar import Response

from sexton import wire
from sexton.api.answers import delivery_views
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Operation, body, ok
from sexton.api.requests.bodies import read, read_checked
from sexton.api.requests.parameters import filter_of, id_of, query_of, within_history
from sexton.api.requests.queries import DeliveriesQuery, SubscriptionsQuery
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.domain.subscription import checked_name
from sexton.errors import NotAllowedIn, NotFound
from sexton.operations import subscriptions
from sexton.operations.subscriptions import CHUNK
from sexton.store.database import Connection
from sexton.store.views.search import Found, JobFilter
from sexton.store.work import jobs
from sexton.store.work import subscriptions as store

from .pages import by_name, newest_first

operation = partial(Operation, tag="subscriptions")

_SUBSCRIPTION = ok("The current subscription.", wire.SubscriptionView)


@operation(
    "GET /v1/subscriptions",
    id="listSubscriptions",
    query=SubscriptionsQuery,
    answers=ok("A page of subscriptions.", wire.Page[wire.SubscriptionView]),
)
async def listed(request: ApiRequest) -> Response[bytes]:
    """List subscriptions.

    By name.
    """
    query = query_of(request, SubscriptionsQuery)

    async def found(connection: Connection, after: str) -> list[store.Known]:
        return await store.find(connection, after=after, limit=query.limit)

    return await by_name(request, query, found, delivery_views.subscription, lambda one: one.name)


@operation("GET /v1/subscriptions/{name:str}", id="getSubscription", answers=_SUBSCRIPTION, problems=(404, 422))
async def shown(request: ApiRequest) -> Response[bytes]:
    """Get a subscription."""
    async with state_of(request).database.connection() as connection:
        return answer(delivery_views.subscription(await _found(connection, _name(request))))


@operation(
    "PUT /v1/subscriptions/{name:str}",
    id="setSubscription",
    body=body(wire.SubscriptionSettings, **examples.SUBSCRIPTIONS),
    answers={**_SUBSCRIPTION, 201: Answer("It is new.", wire.SubscriptionView)},
)
async def set_(request: ApiRequest) -> Response[bytes]:
    """Subscribe to the outcome of runs.

    Creates the subscription, or replaces all of it. It applies to runs that end from now on; existing deliveries keep their
    URL. While it is paused, events are neither created nor kept for later.
    """
    state, name = state_of(request), checked_name(_name(request))
    given = await read_checked(request, wire.SubscriptionSettings, lambda one: one.to_domain(name))
    async with state.database.transaction() as connection:
        is_new = await subscriptions.put(connection, caller_of(request), given, now=state.clock.database_now())
        view = delivery_views.subscription(await _found(connection, name))
    return answer(view, status=201 if is_new else 200)


@operation(
    "DELETE /v1/subscriptions/{name:str}",
    id="removeSubscription",
    answers=ok("Nothing more is sent.", wire.SubscriptionRemoved),
    problems=(404, 422),
)
async def removed(request: ApiRequest) -> Response[bytes]:
    """Remove a subscription.

    Undelivered events are cancelled. Delivered ones stay among the jobs, named `webhook:{name}`.
    """
    state, name = state_of(request), _name(request)
    count = await subscriptions.remove(state.database, caller_of(request), name, now=state.clock.database_now())
    if count is None:
        raise _unknown(name)
    return answer(wire.SubscriptionRemoved(name=name, cancelled_count=count))


@operation(
    "GET /v1/subscriptions/{name:str}/deliveries",
    id="listDeliveries",
    query=DeliveriesQuery,
    answers=ok("A page.", wire.Page[wire.Delivery]),
    problems=(404,),
)
async def log(request: ApiRequest) -> Response[bytes]:
    """List deliveries, newest first."""
    query, name = query_of(request, DeliveriesQuery), _name(request)

    async def find(connection: Connection, chosen: JobFilter, **where: Any) -> Found[store.Delivery]:
        await _found(connection, name)
        return await store.deliveries(connection, name, chosen, **where)

    return await newest_first(request, query, filter_of(JobFilter, query, name=name), find, delivery_views.delivery)


@operation(
    "POST /v1/subscriptions/{name:str}/deliveries/{delivery_id:str}/replay",
    id="replayDelivery",
    answers=ok("It is sent again.", wire.DeliveriesReplayed),
    problems=(409, 422),
)
async def replay_one(request: ApiRequest) -> Response[bytes]:
    """Send a delivery again.

    Whether it arrived, failed or was cancelled, with a fresh budget, to the current URL of the subscription. The message keeps
    its id (`webhook-id`), so a receiver that checks it acts once.
    """
    state, name, wanted = state_of(request), _name(request), id_of(request, "delivery_id", "delivery")
    async with state.database.transaction() as connection:
        await _found(connection, name)
        replayed = await subscriptions.replay(connection, caller_of(request), name, [wanted], now=state.clock.database_now())
        if not replayed:
            await _refuse_replay(connection, name, wanted)
    return answer(wire.DeliveriesReplayed(matched_count=1, replayed=replayed, dry_run=False, has_more=False))


async def _refuse_replay(connection: Connection, name: str, wanted: UUID) -> None:
    for view in await jobs.show_many(connection, [wanted]):
        if store.delivers(view, name) is not None:
            raise NotAllowedIn("replay", view.status, f"the delivery is {view.status}: it has not ended yet")
    raise NotFound(f"{name} has no delivery {wanted}")


@operation(
    "POST /v1/subscriptions/{name:str}/deliveries/replay",
    id="replayDeliveries",
    body=body(wire.DeliveriesReplay, **examples.DELIVERIES_REPLAYS),
    answers=ok("The deliveries that are sent again, or after a dry run would be.", wire.DeliveriesReplayed),
    problems=(404,),
)
async def replay_many(request: ApiRequest) -> Response[bytes]:
    """Send many deliveries again.

    All that failed, or those of a range of time, newest first; each as by the call for one.
    """
    state, name, asked = state_of(request), _name(request), await read(request, wire.DeliveriesReplay)
    async with state.database.connection() as connection:
        await _found(connection, name)
        ids, has_more = await _chosen(connection, name, asked)
    replayed: list[UUID] = []
    for start in range(0, 0 if asked.dry_run else len(ids), CHUNK):
        async with state.database.transaction() as connection:
            part = ids[start : start + CHUNK]
            replayed += await subscriptions.replay(connection, caller_of(request), name, part, now=state.clock.database_now())
    summary: dict[str, Any] = {"matched_count": len(ids), "dry_run": asked.dry_run, "has_more": has_more}
    return answer(wire.DeliveriesReplayed(replayed=replayed, **summary))


async def _chosen(connection: Connection, name: str, asked: wire.DeliveriesReplay) -> tuple[list[UUID], bool]:
    """The newest with this status, and whether there are more of them."""
    chosen = JobFilter(
        status=asked.status, submitted_from=within_history(asked.from_at), submitted_until=within_history(asked.until)
    )
    ids: list[UUID] = []
    before = None
    while True:
        page = await store.deliveries(connection, name, chosen, before=before, limit=CHUNK)
        ids += [one.job.id for one in page.rows if one.job.ended_at is not None]
        before = page.next_before
        if len(ids) >= asked.limit or before is None:
            return ids[: asked.limit], len(ids) > asked.limit or before is not None


def _name(request: ApiRequest) -> str:
    return str(request.path_params["name"])


async def _found(connection: Connection, name: str) -> store.Known:
    known = await store.get(connection, name) if "\x00" not in name else None
    if known is None:
        raise _unknown(name)
    return known


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no subscription {name!r}")


HANDLERS = [listed, shown, set_, removed, log, replay_one, replay_many]
