"""The description of each field, once: a name means the same everywhere, so the document takes it from here. The options of a
job are in `sexton.domain.job_options`; what is set for tenants, queues and limits, in `sexton.domain.sharing` and
`sexton.domain.limit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from sexton.domain.job_options import OPTIONS, Option
from sexton.domain.limit import LimitOptions
from sexton.domain.sharing import QueueOptions, TenantOptions


def _asked(option: Option) -> str:
    return option.means if option.default == "none" else f"{option.means} By default: {option.default}."


_OF_REQUESTS = {option.name: _asked(option) for option in OPTIONS}
_OF_ANSWERS = {
    option.field: f"{option.means} In seconds." if option.kind == "span" else option.means
    for option in OPTIONS
    if option.has_own_field
}
_OF_TENANTS, _OF_QUEUES, _OF_LIMITS = (
    {name: kind.__metadata__[0] for name, kind in get_type_hints(options, include_extras=True).items()}
    for options in (TenantOptions, QueueOptions, LimitOptions)
)
_OF_STRUCTS: dict[str, Mapping[Any, str]] = {
    "JobRequest": _OF_REQUESTS,
    "JobEdit": _OF_REQUESTS,
    "Job": _OF_ANSWERS,
    "Submitted": _OF_ANSWERS,
    "TenantSettings": _OF_TENANTS,
    "QueueSettings": _OF_QUEUES,
    "LimitSettings": _OF_LIMITS,
}
_OTHERWISE = {"handler", "limit"}  # means something else in other structs
DESCRIPTIONS = {**_OF_TENANTS, **_OF_QUEUES, **_OF_LIMITS}
DESCRIPTIONS |= {option.name: option.means for option in OPTIONS if option.name not in _OTHERWISE}
DESCRIPTIONS |= {
    "handler": "What runs: the name of a Python task.",
    "schedule": "The rule of a recurring job; null: it is a one-time job.",
    "schedule_words": "The rule in words.",
    "paused_at": "When it was paused.",
    "paused_by": "The caller that paused it.",
    "resume_at": "When a paused recurring job becomes active by itself.",
    "over_reason": "Why its schedule is over.",
    "description": "The schedule in words.",
    "fires": "When it is due, earliest first.",
    "after": "Only fires strictly after this instant; default: now.",
    "count": "How many.",
    "added": "Fires that would be added.",
    "removed": "Fires that would be removed.",
    "missed": "Fires that would not run, grouped.",
    "answer": "The answer in one sentence.",
    "chain": "The questions that led to it, in order.",
    "check": "The question.",
    "ok": "Whether it lets the job run.",
    "evidence": "The facts behind the answer.",
    "tag": "One of its tags.",
    "status": "Its current status.",
    "version": "Grows by one with every edit; the first part of the ETag.",
    "submitted_at": "When it was submitted, by the database's clock.",
    "submitted_by": "The caller that submitted it.",
    "submitted_from": "Submitted at this instant or later.",
    "submitted_until": "Submitted before this instant.",
    "started_from": "Started at this instant or later.",
    "started_until": "Started before this instant.",
    "trace": "The submitter's W3C `traceparent`.",
    "next_fire_at": "When its next run is due; null once it has ended.",
    "attempt": "The number of the attempt, counted against `max_attempts`.",
    "attempts": "Attempts that were counted against `max_attempts`.",
    "ended_at": "When it ended.",
    "started_at": "When it started.",
    "last_execution": "Its newest attempt, including one that runs now.",
    "note": "The note of the last status change.",
    "warnings": "Things that were accepted but look wrong.",
    "created": "False if the idempotency key or an equal job already existed.",
    "job_id": "The job it belongs to.",
    "run_id": "The run it belongs to.",
    "worker_id": "The worker that had it.",
    "origin": "The origin of the run.",
    "fire_at": "The nominal time of the fire.",
    "due_at": "The earliest start: the nominal time with its jitter, or the time of a retry.",
    "job_version": "The version of the job that it ran.",
    "reason": "The reason, in one line, if the status does not say enough.",
    "error": "The error that the handler raised.",
    "result": "The return value of the handler; at most 64 KiB.",
    "progress": "The last progress the handler reported.",
    "output": "The log of the handler; at most 64 KiB, the first lines and the newest.",
    "permanent": "Whether another attempt cannot help.",
    "lost_count": "Attempts lost with their worker.",
    "buried_at": "When it went to the dead letters.",
    "replay_at": "When it will be replayed automatically.",
    "dry_run": "Only report what would be done.",
    "keep_key": "Whether the idempotency key still prevents a repeated effect.",
    "next_cursor": "Where the next page begins; null: there is none.",
    "items": "The items that were found.",
    "beat_at": "Its last heartbeat.",
    "silent_s": "Seconds since then.",
    "lost_at": "When it was declared dead.",
    "queues": "The queues it takes from.",
    "tasks": "The tasks it knows.",
    "concurrency": "Runs it executes at once, those in child processes included.",
    "process_slots": "Of these, runs in child processes.",
    "process_running_count": "Of the runs under a lease, those in child processes.",
    "batch_slots": "Of its concurrency, runs of batch tasks.",
    "batch_running_count": "Of the runs under a lease, those of batch tasks.",
    "batch_slot_count": "Runs of batch tasks that the live workers can execute at once.",
    "lacks": "Secrets and settings that jobs needed and this worker does not have.",
    "silent_worker_count": "Workers without a heartbeat for longer than their lease that no scheduler has declared dead yet.",
    "process_slot_count": "Runs that the live workers can execute at once in child processes.",
    "running_count": "Runs under a lease.",
    "refused_count": "Reports that came after the lease was lost.",
    "partitions": "The partitions it leads, of 64.",
    "ready_count": "Runs that are due and wait for a worker.",
    "waiting_count": "Runs that wait for their time.",
    "paused_count": "Runs that a person paused.",
    "parked_count": "Runs that are due and wait for a limit.",
    "quarantined_count": "Runs whose workers were lost twice in a row; a worker in quarantine executes them.",
    "quarantine": "Whether it executes only runs whose workers were lost.",
    "held_count": "Runs that hold it now.",
    "holders": "The runs that hold it, the longest first.",
    "capped": "Whether a count stopped at its limit of 10,000.",
    "ageing_s": "A run that has waited this long moves up one lane, in seconds; null: never.",
    "per_s": "The span that `count` is of, in seconds.",
    "tokens": "Starts that the rate allows at this moment.",
    "made_by": "The caller that set the numbers.",
    "updated_at": "When it was last set; null: never.",
    "since": "When that began.",
    "oldest_ready_s": "For how long the oldest ready run has been due, in seconds.",
    "next_due_at": "When the next waiting run is due.",
    "SubscriptionSettings.url": "Where events are sent: `http://` or `https://`, without user and password.",
    "SubscriptionSettings.kinds": "A run succeeded; an attempt failed; a run went to the dead letters; a fire did not start.",
    "SubscriptionSettings.filter": "Of which runs.",
    "SubscriptionSettings.headers": "Sent with each event: text, or a secret by its name.",
    "SubscriptionSettings.signed_with": "The secrets that sign, by their names; several while one is being replaced.",
    "SubscriptionSettings.queue": "Where the deliveries wait; `default` by default.",
    "SubscriptionSettings.priority": "The lane of the deliveries.",
    "SubscriptionSettings.retry": "How many times a delivery is tried; eight times over about a day by default.",
    "SubscriptionSettings.paused": "While it is paused, events are neither created nor kept for later.",
    "SubscriptionView.name": "As it was set.",
    "SubscriptionView.queue": "Where the deliveries wait.",
    "created_at": "When it was created.",
    "RunFilter.queue": "The queue of the runs.",
    "RunFilter.job_id": "The job whose runs they are.",
    "Delivery.id": "The job that delivers it.",
    "Delivery.kind": "What kind of event it is.",
    "Delivery.execution_id": "The execution that the event is about.",
    "run_job_id": "The job that the event is about.",
    "occurred_at": "When the event happened.",
    "response_status": "The status of the last answer; null: there was none, or it is unknown.",
    "Delivery.error": "The error of the last attempt.",
    "next_try_at": "When it is tried next; null: it has ended.",
    "DeliveriesReplay.status": "Those that ended with this status; null: all that have ended.",
    "DeliveriesReplay.from": "Of events from this instant on.",
    "DeliveriesReplay.until": "Of events before this instant.",
    "DeliveriesReplay.limit": "At most this many, the newest first.",
    "replayed": "The deliveries that are sent again.",
    "has_more": "There are more than the limit.",
    "SubscriptionRemoved.name": "As it was set.",
    "SubscriptionRemoved.removed": "It is deleted.",
    "cancelled_count": "Deliveries that had not arrived, and will not.",
    "BackfillRequest.from": "The first instant of the range.",
    "BackfillRequest.until": "Where the range ends; not included.",
    "BackfillRequest.fires": "`missing`: fires that neither succeeded nor were buried nor live; `all`: all that do not live.",
    "BackfillRequest.spacing": "How long after the previous one each is due.",
    "BackfillRequest.overlap": "`queue`: one at a time; `parallel`: as many at once as the job's own policy allows.",
    "Backfill.from": "The first instant of the range.",
    "Backfill.until": "Where the range ends; not included.",
    "Backfill.fires": "The nominal times of the new runs.",
    "Backfill.version": "The version of the job that they run; send it as `If-Match` to bind a later call to it.",
    "Backfill.last_due_at": "When the last of them is due.",
    "Backfill.already_ran_count": "Left out because they have succeeded.",
    "Backfill.live_count": "Left out because a run of the fire waits or runs.",
    "Backfill.dead_letter_count": "Left out because they are in the dead letters; replay those.",
    "Backfill.undecided_count": "Left out because the schedule will still plan them or record them as missed.",
    "AcquireRequest.worker_id": "The id from the first answer, or your own: random, one for each process.",
    "AcquireRequest.name": "Its name in the list of workers.",
    "AcquireRequest.limit": "How many runs at most.",
    "AcquireRequest.concurrency": "Runs it can have at once, for the list of workers; default: `limit` plus the runs it holds.",
    "AcquireRequest.wait": "How long to wait while no run is ready: at most 30 s and half of `lease`.",
    "AcquireRequest.lease": "How long it may be silent before it is dead: 1 s to 1 h.",
    "AcquireRequest.queues": "The queues it takes from; each is first in turn.",
    "holding": "All runs it holds; those under its lease that are not listed are given back.",
    "AcquiredRun.lease": "The right to this run, signed: send it with every report.",
    "AcquiredRun.handler": "The task.",
    "timeout_s": "How long one attempt may take, in seconds; null: no limit.",
    "progress_within_s": "How often progress must be reported, in seconds; null: never.",
    "AcquiredRun.idempotency_key": "The same for all attempts of this run, different for any other.",
    "target": "The target of the job, if it is not a Python task.",
    "lease_s": "Its lease, in seconds.",
    "stop": "What it must stop. Heartbeats report it soonest.",
    "why": "`cancelled`: end it by any report; `lost`: drop it.",
    "draining": "It takes no more runs.",
    "released_count": "Runs that it held and that other workers may take now.",
    "LeaseRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "RunHeartbeat.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "CompleteRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "CompleteItem.lease": "As it came with the run.",
    "FailRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "ReleaseRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "RunHeartbeat.progress": "Its progress, as any JSON of at most 16 KiB.",
    "RunHeartbeat.output": "Lines to add to its output, of which the newest 16,000 characters are kept until the end.",
    "CompleteRequest.output": "Lines to add to its output.",
    "CompleteItem.output": "Lines to add to its output.",
    "FailRequest.output": "Lines to add to its output.",
    "FailRequest.error": "The error, as text or with a type.",
    "FailRequest.permanent": "Another attempt cannot help: it goes to the dead letters at once.",
    "retry_after": "The next attempt starts no sooner.",
    "ReleaseRequest.delay": "How long until it may start again; default: at once.",
    "cancel_requested": "The job was cancelled: stop, and send any report.",
    "ends_at": "The sweeper ends it then; null: never.",
    "execution_id": "The execution that was recorded.",
    "state": "The current state of the run; null: it has ended.",
    "Execution.payload": "The payload of its run, if it is not the job's; null: it is.",
}


def explained(schema: Any) -> Any:
    """The schema of a struct, with the description of each field before the description of its type."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not properties:
        return schema
    of = schema.get("title")
    return {**schema, "properties": {name: _told(str(of), name, inner) for name, inner in properties.items()}}


def _told(of: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A struct may describe a name in its own way."""
    own = DESCRIPTIONS.get(f"{of}.{name}") or _OF_STRUCTS.get(of, {}).get(name) or DESCRIPTIONS.get(name)
    return schema if own is None else {**schema, "description": " ".join(filter(None, [own, schema.get("description")]))}
