"""The calls about subscriptions and deliveries, built once for both faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict
from urllib.parse import quote
from uuid import UUID

import msgspec

from sexton import wire
from sexton.domain.duration import Duration
from sexton.domain.job import Priority
from sexton.domain.retry import Retry
from sexton.domain.subscription import Kind
from sexton.domain.targets import SecretRef
from sexton.errors import InvalidSubmission

from .call import Call
from .calls import policy, query, span


class SubscriptionWords(TypedDict, total=False):
    """Whose runs: `tenant`, `run_queue`, `job_id`; `queue` is where the deliveries wait."""

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


def subscriptions(cursor: str | None, size: int) -> Call[wire.Page[wire.SubscriptionView]]:
    asked = query(cursor=cursor, limit=size)
    return Call("GET", "/v1/subscriptions", wire.Page[wire.SubscriptionView], query=asked, repeatable=True)


def subscription(name: str) -> Call[wire.SubscriptionView]:
    return Call("GET", _path(name), wire.SubscriptionView, repeatable=True)


def put(name: str, url: str, words: Mapping[str, Any]) -> Call[wire.SubscriptionView]:
    """Twice is as once."""
    said = {field: span(value) for field, value in words.items() if value is not None}
    whose = {_WHOSE[field]: said.pop(field) for field in _WHOSE if field in said}
    if isinstance(said.get("retry"), Retry):
        said["retry"] = policy(said["retry"])
    wrong = next((field for field in said if field not in wire.SubscriptionSettings.__struct_fields__), None)
    if wrong is not None:
        raise InvalidSubmission(f"/{wrong}", f"cannot be set; what may be: {', '.join(SubscriptionWords.__annotations__)}")
    body = {"url": url, "filter": whose, **said}
    return Call("PUT", _path(name), wire.SubscriptionView, body=msgspec.json.encode(body), repeatable=True)


def remove(name: str) -> Call[wire.SubscriptionRemoved]:
    return Call("DELETE", _path(name), wire.SubscriptionRemoved)


def deliveries(name: str, filters: DeliveryFilters, cursor: str | None, size: int) -> Call[wire.Page[wire.Delivery]]:
    asked = query(**filters, cursor=cursor, limit=size)
    return Call("GET", f"{_path(name)}/deliveries", wire.Page[wire.Delivery], query=asked, repeatable=True)


def replay(name: str, delivery_id: UUID | str) -> Call[wire.DeliveriesReplayed]:
    part = quote(str(delivery_id), safe="") or "-"
    return Call("POST", f"{_path(name)}/deliveries/{part}/replay", wire.DeliveriesReplayed)


def replay_many(
    name: str,
    *,
    status: Literal["failed", "completed", "cancelled"] | None,
    from_at: datetime | None,
    until: datetime | None,
    dry_run: bool,
    limit: int,
) -> Call[wire.DeliveriesReplayed]:
    asked = wire.DeliveriesReplay(status=status, from_at=from_at, until=until, dry_run=dry_run, limit=limit)
    path, body = f"{_path(name)}/deliveries/replay", msgspec.json.encode(asked)
    return Call("POST", path, wire.DeliveriesReplayed, body=body, repeatable=dry_run)


_WHOSE = {"tenant": "tenant", "run_queue": "queue", "job_id": "job_id"}


def _path(name: str) -> str:
    return f"/v1/subscriptions/{quote(name, safe='') or '-'}"
