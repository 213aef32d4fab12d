"""Rows of the store as structs of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from sexton import wire
from sexton.domain.job import Lane, Policy
from sexton.domain.job_options import BY_NAME, POLICIES
from sexton.domain.limit import Limit
from sexton.domain.outcome import ErrorInfo
from sexton.domain.retry import DEFAULT, Retry
from sexton.domain.schedule import Schedule, describe
from sexton.domain.schedule.recurrence import Recurrence, recurrence_of, seed_of
from sexton.store.fleet import workers
from sexton.store.sharing import limits, queues, tenants
from sexton.store.views import overview, transitions
from sexton.store.work import dead_letters, jobs

S = TypeVar("S", bound=msgspec.Struct)

_policy = msgspec.json.Decoder(Policy).decode
_POLICY_FIELDS = tuple((str(BY_NAME[name].field), key) for name, key in POLICIES.items())
_NO_POLICY = dict.fromkeys([*(field for field, _ in _POLICY_FIELDS), "limit"])
_RETRY_FIELDS = {
    "max_attempts": "max_attempts",
    "backoff": "backoff",
    "base": "base_s",
    "factor": "factor",
    "max": "max_s",
    "jitter": "jitter",
    "delays": "delays_s",
    "replays": "replays",
    "replay_after": "replay_after_s",
}


def handler(view: jobs.JobView) -> str | wire.TargetHandler:
    target = None if view.policy_json is None else _policy(view.policy_json).target
    return view.task if target is None else wire.handler_of(target)


def job(view: jobs.JobView, warnings: Sequence[str] = ()) -> wire.Job:
    return wire.Job(**_job_fields(view), warnings=warnings)


def submitted(view: jobs.JobView, *, created: bool, warnings: Sequence[str] = ()) -> wire.Submitted:
    return wire.Submitted(**_job_fields(view), warnings=warnings, created=created)


def _job_fields(view: jobs.JobView) -> dict[str, Any]:
    policy = Policy() if view.policy_json is None else _policy(view.policy_json)
    return {
        "id": view.id,
        "status": view.status,
        "version": view.version,
        "handler": view.task if policy.target is None else wire.handler_of(policy.target),
        "payload": _raw(view.payload_json),
        "tenant": view.tenant,
        "queue": view.queue,
        "priority": priority(view.lane),
        "delivery": "at_most_once" if view.at_most_once else "at_least_once",
        "name": view.name,
        "tags": view.tags or (),
        "timeout_s": view.timeout_s,
        **(_NO_POLICY if view.policy_json is None else _policy_fields(policy, view.policy_json)),
        "idempotency_key": view.idempotency_key,
        "submitted_at": view.submitted_at,
        "submitted_by": view.submitted_by,
        "trace": view.trace,
        "run_at": view.run_at,
        "next_fire_at": view.next_fire_at,
        "attempt": view.attempt,
        "ended_at": view.ended_at,
        "last_execution": None if view.last_execution is None else execution(view.last_execution),
        "note": view.note,
        "paused_at": view.paused_at,
        "paused_by": view.paused_by,
        **({} if view.schedule_json is None else _recurring_fields(view.schedule_json, view)),
    }


def _policy_fields(policy: Policy, policy_json: str) -> dict[str, Any]:
    fields = {field: getattr(policy, key) for field, key in _POLICY_FIELDS}
    return {**fields, "retry": retry(policy.retry), "limit": _limit(policy_json)}


def _recurring_fields(schedule_json: str, view: jobs.JobView) -> dict[str, Any]:
    schedule, words = _schedule(schedule_json, seed_of(view.tenant, view.name, view.id))
    recurrence = _recurrence(view.recurrence_json)
    overlap, catch_up = recurrence.overlap, recurrence.catch_up
    return {
        "schedule": schedule,
        "schedule_words": words,
        "overlap": wire.OverlapRule(
            policy=overlap.policy,
            max_queued=overlap.max_queued if overlap.policy == "queue" else None,
            max_parallel=overlap.max_parallel if overlap.policy == "parallel" else None,
        ),
        "catch_up": wire.CatchUpRule(
            policy=catch_up.policy,
            window=catch_up.window_s,
            max_catch_up=catch_up.max_catch_up if catch_up.policy == "all" else None,
        ),
        "on_resume": recurrence.on_resume,
        "pause_after": recurrence.pause_after,
        "resume_at": view.resume_at,
        "over_reason": view.over_reason,
    }


@lru_cache(maxsize=1024)
def _schedule(text: str, seed: str) -> tuple[wire.Schedule | None, str | None]:
    """As it is stored, and in words. One that was written in plain SQL may be anything; its job then says why it failed."""
    try:
        kept = msgspec.json.decode(text, type=wire.Schedule)
    except msgspec.MsgspecError:
        return None, None
    try:
        return kept, describe(msgspec.json.decode(text, type=Schedule), seed)
    except (msgspec.MsgspecError, ValueError):
        return kept, None


def _recurrence(text: str | None) -> Recurrence:
    try:
        return recurrence_of(text)
    except msgspec.MsgspecError:
        return Recurrence()


def retry(policy: Retry) -> wire.RetryPolicy | None:
    """Only what differs from the default, as in the request."""
    fields = {
        name: getattr(policy, field)
        for name, field in _RETRY_FIELDS.items()
        if getattr(policy, field) != getattr(DEFAULT, field)
    }
    return wire.RetryPolicy(**fields) if fields else None


def _limit(policy_json: str | None) -> wire.LimitRule | None:
    """As the job has it, separate from its policy. One that was written in plain SQL may be anything."""
    if policy_json is None or '"limit"' not in policy_json:
        return None
    try:
        kept = msgspec.json.decode(policy_json, type=_Limited).limit
    except msgspec.MsgspecError:
        return None
    if kept is None:
        return None
    return wire.LimitRule(
        key=kept.key, running=kept.running, count=kept.count, per=kept.per_s, burst=kept.burst, ordered=kept.ordered
    )


class _Limited(msgspec.Struct):
    limit: Limit | None = None


def queue(name: str, load: overview.QueueLoad | None, settings: queues.Queue | None) -> wire.QueueView:
    counts = msgspec.structs.asdict(load or overview.QueueLoad(name, 0, 0, 0, 0, False, None, 0))
    if settings is None:
        return wire.QueueView(**counts, status="active")
    return wire.QueueView(
        **counts,
        status=_share_status(settings),
        **{field: getattr(settings, field) for field in _QUEUE_FIELDS},
        retry=None if settings.retry is None else retry(settings.retry) or wire.RetryPolicy(),
    )


def tenant(name: str, load: overview.TenantLoad | None, settings: tenants.Tenant | None) -> wire.TenantView:
    counts = msgspec.structs.asdict(load or overview.TenantLoad(name, 0, 0, 0, 0, False))
    if settings is None:
        return wire.TenantView(**counts, status="active")
    fields = msgspec.structs.asdict(settings)
    del fields["name"]
    return wire.TenantView(**counts, status=_share_status(settings), **fields)


_QUEUE_FIELDS = (
    "release_rate",
    "release_burst",
    "ageing_s",
    "timeout_s",
    "jitter_s",
    "paused_at",
    "paused_by",
    "note",
    "updated_at",
)


def _share_status(settings: queues.Queue | tenants.Tenant) -> Any:
    return "active" if settings.paused_at is None else "paused"


def limit(row: limits.LimitUse) -> wire.LimitView:
    holders = [_copied(wire.LimitHolder, one, handler=one.task, worker=one.worker_name) for one in row.holders]
    return _copied(wire.LimitView, row, holders=holders)


def execution(row: jobs.Execution, payload_json: str | None = None) -> wire.Execution:
    """`payload_json`: the payload of its run, if it is not the job's."""
    return _copied(
        wire.Execution,
        row,
        handler=row.task,
        error=_error(row.error),
        result=_optional_raw(row.result_json),
        progress=_optional_raw(row.progress_json),
        payload=_optional_raw(payload_json),
    )


def dead_letter(row: dead_letters.DeadLetter) -> wire.DeadLetter:
    own = {"priority": priority(row.lane), "error": _error(row.error), "payload": _raw(row.payload_json)}
    return _copied(wire.DeadLetter, row, handler=row.task, **own)


def worker(row: workers.Worker, silent_s: float) -> wire.Worker:
    here = "draining" if row.draining else "live"
    status = "lost" if row.lost_at is not None else here if row.is_alive else "silent"
    return _copied(wire.Worker, row, status=status, silent_s=silent_s)


def node(row: workers.Node, silent_s: float) -> wire.Node:
    return _copied(wire.Node, row, status="live" if row.is_alive else "silent", silent_s=silent_s)


def event(row: transitions.Transition) -> wire.Event:
    return _copied(wire.Event, row, handler=row.task)


def _copied(kind: type[S], row: object, **own: Any) -> S:
    """A struct of the wire with the row's fields of the same names, and `own` for the other fields."""
    return kind(**{name: getattr(row, name) for name in kind.__struct_fields__ if name not in own}, **own)


def priority(lane: int) -> Any:
    return Lane(lane).name.lower()


def _error(error: ErrorInfo | None) -> wire.Error | None:
    return None if error is None else wire.Error(type=error.type, message=error.message, traceback=error.traceback)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _optional_raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else _raw(text)
