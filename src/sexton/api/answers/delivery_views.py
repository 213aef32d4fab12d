"""Rows about subscriptions and deliveries as structs of the wire."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from sexton import wire
from sexton.domain.job import Lane
from sexton.domain.retry import DEFAULT
from sexton.domain.subscription import TIMEOUT_S
from sexton.domain.targets import HttpTarget
from sexton.store.work import subscriptions as store

from . import views


class _Data(msgspec.Struct):
    job_id: UUID | None = None


class _Event(msgspec.Struct):
    timestamp: datetime | None = None
    data: _Data = msgspec.field(default_factory=_Data)


_event = msgspec.json.Decoder(_Event).decode


def subscription(known: store.Known) -> wire.SubscriptionView:
    document = known.delivery
    policy = document.policy
    target = policy.target if policy is not None and isinstance(policy.target, HttpTarget) else HttpTarget("")
    handler = wire.handler_of(target)
    assert isinstance(handler, wire.HttpHandler)  # noqa: S101  (of an HTTP target)
    return wire.SubscriptionView(
        name=known.name,
        status="active" if known.paused_at is None else "paused",
        url=target.url,
        kinds=known.kinds,
        filter=wire.RunFilter(tenant=known.tenant, queue=known.queue, job_id=known.job_id),
        headers=handler.headers,
        signed_with=target.signed_with,
        queue=document.queue or "default",
        priority=views.priority(int(Lane.NORMAL) if document.lane is None else document.lane),
        retry=views.retry(DEFAULT if policy is None else policy.retry) or wire.RetryPolicy(),
        timeout_s=TIMEOUT_S if document.timeout_s is None else document.timeout_s,
        paused_at=known.paused_at,
        created_at=known.created_at,
        updated_at=known.updated_at,
    )


def delivery(row: store.Delivery) -> wire.Delivery:
    job, last = row.job, row.job.last_execution
    event = _event(row.event_json)
    error = None if last is None else last.error
    return wire.Delivery(
        id=job.id,
        subscription=row.delivers.subscription,
        kind=row.delivers.kind,
        status=job.status,  # type: ignore[arg-type]
        execution_id=row.delivers.execution_id,
        run_job_id=event.data.job_id,
        occurred_at=event.timestamp,
        attempt=job.attempt,
        response_status=row.response_status,
        error=None if error is None else wire.Error(type=error.type, message=error.message),
        reason=None if last is None else last.reason,
        submitted_at=job.submitted_at,
        next_try_at=job.next_fire_at,
        ended_at=job.ended_at,
    )
