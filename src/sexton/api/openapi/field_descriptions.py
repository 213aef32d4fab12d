"""What each field means, once: a word means the same wherever it stands, so the document takes it from here. What the options
of a job mean is in `sexton.domain.job_options`; what is set for tenants, queues and limits, in `sexton.domain.sharing` and
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
MEANINGS = {**_OF_TENANTS, **_OF_QUEUES, **_OF_LIMITS}
MEANINGS |= {option.name: option.means for option in OPTIONS if option.name not in _OTHERWISE}
MEANINGS |= {
    "handler": "What runs: the name of a Python task.",
    "schedule": "The rule of a recurring job; null: it is a one-time job.",
    "schedule_words": "The rule in words.",
    "paused_at": "When it was paused.",
    "paused_by": "Who paused it.",
    "resume_at": "When a paused recurring job becomes active by itself.",
    "over_reason": "Why its schedule is over.",
    "description": "The schedule in words.",
    "fires": "When it is due, earliest first.",
    "after": "Only what comes strictly after this instant; now, if left out.",
    "count": "How many.",
    "added": "Fires that would come.",
    "removed": "Fires that would not come any more.",
    "missed": "Fires that would not run, told together.",
    "answer": "In one sentence.",
    "chain": "The questions that led to it, in order.",
    "check": "What was asked.",
    "ok": "Whether it lets the job run.",
    "evidence": "What the answer rests on.",
    "tag": "One of its tags.",
    "status": "Where it stands.",
    "version": "Grows by one with every edit; the first part of the ETag.",
    "submitted_at": "When it was submitted, by the database's clock.",
    "submitted_by": "Who submitted it.",
    "submitted_from": "Submitted at this instant or later.",
    "submitted_until": "Submitted before this instant.",
    "started_from": "Started at this instant or later.",
    "started_until": "Started before this instant.",
    "trace": "The submitter's W3C `traceparent`.",
    "next_fire_at": "When its next run is due; null once it has ended.",
    "attempt": "The number of the try, counted against `max_attempts`.",
    "attempts": "Tries that were counted against `max_attempts`.",
    "ended_at": "When it ended.",
    "started_at": "When it started.",
    "last_execution": "Its newest try, the one that runs now included.",
    "note": "What a person said when changing its status.",
    "warnings": "What was accepted but looks wrong.",
    "created": "False where an idempotency key or an equal job stood already.",
    "job_id": "The job it belongs to.",
    "run_id": "The run it belongs to.",
    "worker_id": "The worker that had it.",
    "origin": "What made it fire.",
    "fire_at": "The nominal time of the fire.",
    "due_at": "When it might start: the nominal time with its jitter, or the time of a retry.",
    "job_version": "The version of the job that it ran.",
    "reason": "Why, in one line, where the status does not say it all.",
    "error": "What the handler raised.",
    "result": "What the handler returned; at most 64 KiB.",
    "progress": "The last progress the handler reported.",
    "output": "What the handler logged; at most 64 KiB, the first lines and the newest.",
    "permanent": "Whether another attempt cannot help.",
    "lost_count": "Tries that died with their worker.",
    "buried_at": "When it came to the dead letters.",
    "replay_at": "When it will be replayed by itself.",
    "dry_run": "Only say what would be done.",
    "keep_key": "Whether the idempotency key still stands for the effect.",
    "next_cursor": "Where the next page begins; null: there is none.",
    "items": "What was found.",
    "beat_at": "Its last sign of life.",
    "silent_s": "Seconds since then.",
    "lost_at": "When it was declared dead.",
    "queues": "The queues it takes from.",
    "tasks": "The tasks it knows.",
    "concurrency": "Runs it takes at once.",
    "running_count": "Runs under a lease.",
    "refused_count": "Reports that came after the lease was lost.",
    "partitions": "The partitions it leads, of 64.",
    "ready_count": "Runs that are due and wait for a worker.",
    "waiting_count": "Runs that wait for their time.",
    "paused_count": "Runs that a person holds back.",
    "parked_count": "Runs that are due and wait for a limit.",
    "held_count": "Runs that hold it now.",
    "holders": "The runs that hold it, the longest first.",
    "capped": "Whether a count stopped at its limit of 10,000.",
    "ageing_s": "A run that has waited for so long rises one lane, in seconds; null: never.",
    "per_s": "The span that `count` is of, in seconds.",
    "tokens": "Starts that the rate allows at this moment.",
    "made_by": "Who set the numbers.",
    "updated_at": "When it was last set; null: never.",
    "since": "Since when.",
    "oldest_ready_s": "For how long the oldest ready run has been due, in seconds.",
    "next_due_at": "When the next waiting run is due.",
    "SubscriptionSettings.url": "Where events are sent: `http://` or `https://`, without user and password.",
    "SubscriptionSettings.kinds": "A run succeeded; a try of one failed; a run was given up; a fire did not start.",
    "SubscriptionSettings.filter": "Of which runs.",
    "SubscriptionSettings.headers": "Sent with each event: text, or a secret by its name.",
    "SubscriptionSettings.signed_with": "The secrets that sign, by their names; several while one is being replaced.",
    "SubscriptionSettings.queue": "Where the deliveries wait; `default` by default.",
    "SubscriptionSettings.priority": "The lane of the deliveries.",
    "SubscriptionSettings.retry": "How often a delivery is tried; eight times over a good day by default.",
    "SubscriptionSettings.paused": "No event is made while it is, nor made up for later.",
    "SubscriptionView.name": "As it was put.",
    "SubscriptionView.queue": "Where the deliveries wait.",
    "created_at": "When it was made.",
    "RunFilter.queue": "The queue of the runs.",
    "RunFilter.job_id": "The job whose runs they are.",
    "Delivery.id": "The job that delivers it.",
    "Delivery.kind": "What kind of event it is.",
    "Delivery.execution_id": "The execution that the event tells of.",
    "run_job_id": "The job that the event tells of.",
    "occurred_at": "When what it tells of happened.",
    "response_status": "The status of the last answer; null: none came, or it is not told.",
    "Delivery.error": "What went wrong at the last try.",
    "next_try_at": "When it is tried next; null: it has ended.",
    "DeliveriesReplay.status": "Those that ended so; null: all that have ended.",
    "DeliveriesReplay.from": "Of events from here on.",
    "DeliveriesReplay.until": "Of events before this.",
    "DeliveriesReplay.limit": "At most so many, the newest first.",
    "replayed": "The deliveries that are sent again.",
    "has_more": "There are more than the limit.",
    "SubscriptionRemoved.name": "As it was put.",
    "SubscriptionRemoved.removed": "It is gone.",
    "cancelled_count": "Deliveries that had not arrived, and will not.",
    "BackfillRequest.from": "The first instant of the range.",
    "BackfillRequest.until": "Where the range ends; not included.",
    "BackfillRequest.fires": "`missing`: those that neither succeeded nor were buried nor live; `all`: whatever does not live.",
    "BackfillRequest.spacing": "How long after the one before each is due.",
    "BackfillRequest.overlap": "`queue`: one at a time; `parallel`: as many at once as the job's own policy allows.",
    "Backfill.from": "The first instant of the range.",
    "Backfill.until": "Where the range ends; not included.",
    "Backfill.fires": "The nominal times of the new runs.",
    "Backfill.version": "The version of the job that they run; as `If-Match` it holds a later call to it.",
    "Backfill.last_due_at": "When the last of them is due.",
    "Backfill.already_ran_count": "Left out because they have succeeded.",
    "Backfill.live_count": "Left out because a run of them waits or runs.",
    "Backfill.dead_letter_count": "Left out because they lie in the dead letters; replay those.",
    "Backfill.undecided_count": "Left out because the schedule itself will still plan them or write them down as missed.",
    "AcquireRequest.worker_id": "As the first answer made it, or one of your own: random, one for each process.",
    "AcquireRequest.name": "What the list of workers calls it.",
    "AcquireRequest.limit": "How many runs at most.",
    "AcquireRequest.concurrency": "Runs it can have at once, for the list of workers; what it asks for and holds by default.",
    "AcquireRequest.wait": "How long it waits while nothing is ready: at most 30 s and half of `lease`.",
    "AcquireRequest.lease": "How long it may be silent before it is dead: 1 s to 1 h.",
    "AcquireRequest.queues": "Where it takes from, each first in turn.",
    "holding": "All runs it holds; those under its lease that are not listed go back to others.",
    "AcquiredRun.lease": "The right to this run, signed: shown with every report of it.",
    "AcquiredRun.handler": "The task.",
    "timeout_s": "How long one attempt may take, in seconds; null: no limit.",
    "progress_within_s": "How often progress must be reported, in seconds; null: never.",
    "AcquiredRun.idempotency_key": "The same for all attempts of this run, different for any other.",
    "target": "What the job calls, if it is no Python task.",
    "lease_s": "Its lease, in seconds.",
    "stop": "What it should stop. Heartbeats tell it soonest.",
    "why": "`cancelled`: end it by any report; `lost`: drop it.",
    "draining": "It takes no more.",
    "released_count": "Runs that it held and that others may take now.",
    "LeaseRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "RunHeartbeat.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "CompleteRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "CompleteItem.lease": "As it came with the run.",
    "FailRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "ReleaseRequest.lease": "As it came with the run; or send it as `Authorization: Bearer`.",
    "RunHeartbeat.progress": "How far it is, as any JSON of at most 16 KiB.",
    "RunHeartbeat.output": "Lines to add to its output, of which the newest 16,000 characters are kept until the end.",
    "CompleteRequest.output": "Lines to add to its output.",
    "CompleteItem.output": "Lines to add to its output.",
    "FailRequest.output": "Lines to add to its output.",
    "FailRequest.error": "What went wrong, in words or with a type.",
    "FailRequest.permanent": "Another attempt cannot help: to the dead letters at once.",
    "retry_after": "The next attempt comes no sooner.",
    "ReleaseRequest.delay": "How long until it comes again; at once without it.",
    "cancel_requested": "Somebody cancelled the job: stop, and report anything.",
    "ends_at": "It is ended then, whoever works on it; null: never.",
    "execution_id": "The execution that was recorded.",
    "state": "Where the run stands now; null: it has ended.",
    "Execution.payload": "What its run was given instead of the job's payload; null: nothing.",
}


def explained(schema: Any) -> Any:
    """The schema of a struct with the meaning of each field in front of what its type says."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not properties:
        return schema
    of = schema.get("title")
    return {**schema, "properties": {name: _told(str(of), name, inner) for name, inner in properties.items()}}


def _told(of: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A struct may mean something of its own by a word."""
    meaning = MEANINGS.get(f"{of}.{name}") or _OF_STRUCTS.get(of, {}).get(name) or MEANINGS.get(name)
    return (
        schema if meaning is None else {**schema, "description": " ".join(filter(None, [meaning, schema.get("description")]))}
    )
