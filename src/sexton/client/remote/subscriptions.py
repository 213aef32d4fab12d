"""The calls about subscriptions and deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack
from uuid import UUID

import msgspec

from sexton import wire
from sexton.domain.duration import Duration
from sexton.domain.job import Priority
from sexton.domain.retry import Retry
from sexton.domain.subscription import Kind
from sexton.domain.targets import SecretRef
from sexton.errors import InvalidSubmission

from .call import Call, Pages, get, part
from .calls import policy, span
from .sender import Sender
from .sync_and_async import call, pages


class SubscriptionWords(TypedDict, total=False):
    """`tenant`, `run_queue` and `job_id` filter runs; `queue` is the queue of the deliveries."""

    kinds: Sequence[Kind]
    tenant: str | None
    run_queue: str | None
    job_id: UUID | str | None
    headers: Mapping[str, str | SecretRef]
    signed_with: Sequence[str]
    queue: str | None
    priority: Priority | None
    retry: Retry | None
    timeout: Duration | None
    paused: bool


class DeliveryFilters(TypedDict, total=False):
    status: wire.JobStatus | None
    submitted_from: datetime | None
    submitted_until: datetime | None


class SubscriptionCalls(Sender):
    @call
    def set_subscription(self, name: str, url: str, **settings: Unpack[SubscriptionWords]) -> Call[wire.SubscriptionView]:
        """Creates or replaces the subscription: Sexton calls the URL when runs end. `tenant`, `run_queue` and `job_id` filter
        the runs."""
        given: dict[str, Any] = {field: span(value) for field, value in settings.items() if value is not None}
        filters = {_FILTERS[field]: given.pop(field) for field in _FILTERS if field in given}
        if isinstance(given.get("retry"), Retry):
            given["retry"] = policy(given["retry"])
        wrong = next((field for field in given if field not in wire.SubscriptionSettings.__struct_fields__), None)
        if wrong is not None:
            may = ", ".join(SubscriptionWords.__annotations__)
            raise InvalidSubmission(f"/{wrong}", f"cannot be set; these fields can: {may}")
        body = msgspec.json.encode({"url": url, "filter": filters, **given})
        return Call("PUT", _path(name), wire.SubscriptionView, body=body, repeatable=True)

    @pages
    def subscriptions(self, *, limit: int | None = None) -> Pages[wire.SubscriptionView]:
        """By name."""
        return Pages(get("/v1/subscriptions", wire.Page[wire.SubscriptionView]), limit)

    @call
    def subscription(self, name: str) -> Call[wire.SubscriptionView]:
        return get(_path(name), wire.SubscriptionView)

    @call
    def remove_subscription(self, name: str) -> Call[wire.SubscriptionRemoved]:
        """Cancels its pending deliveries."""
        return Call("DELETE", _path(name), wire.SubscriptionRemoved)

    @pages
    def deliveries(self, name: str, *, limit: int | None = None, **filters: Unpack[DeliveryFilters]) -> Pages[wire.Delivery]:
        """The log of a subscription, newest first."""
        return Pages(get(_path(name, "/deliveries"), wire.Page[wire.Delivery], **filters), limit)

    @call
    def replay_delivery(self, name: str, delivery_id: UUID | str) -> Call[wire.DeliveriesReplayed]:
        """Sends it again with the same message id. `NotAllowedIn` while it is being delivered."""
        return Call("POST", _path(name, f"/deliveries/{part(delivery_id)}/replay"), wire.DeliveriesReplayed)

    @call
    def replay_deliveries(
        self,
        name: str,
        *,
        status: Literal["failed", "completed", "cancelled"] | None = "failed",
        from_at: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
        limit: int = 1_000,
    ) -> Call[wire.DeliveriesReplayed]:
        """Sends the deliveries with this status again, newest first; with `status=None` all that have ended."""
        asked = wire.DeliveriesReplay(status=status, from_at=from_at, until=until, dry_run=dry_run, limit=limit)
        path = _path(name, "/deliveries/replay")
        return Call("POST", path, wire.DeliveriesReplayed, body=msgspec.json.encode(asked), repeatable=dry_run)


_FILTERS = {"tenant": "tenant", "run_queue": "queue", "job_id": "job_id"}


def _path(name: str, below: str = "") -> str:
    return f"/v1/subscriptions/{part(name)}{below}"
