"""What each field means, once: a word means the same wherever it stands (DESIGN §1), so the document takes it from here."""

from __future__ import annotations

from typing import Any

MEANINGS = {
    "handler": "What runs: the name of a Python task.",
    "payload": "The handler's arguments, as JSON; at most 256 KiB.",
    "run_at": "When it is due. Without it and without `delay`: now.",
    "delay": "How long from now it is due.",
    "name": "A name of the submitter's choice, to find the job by.",
    "tenant": "Whose it is.",
    "queue": "Where its runs wait; workers subscribe to queues.",
    "priority": "The lane: critical, high, normal, low, strictly in this order within a queue.",
    "retry": "How often it is tried and how long it waits in between.",
    "timeout": "How long one attempt may take; 0 means no limit.",
    "deadline": "How long all attempts together may take, from the due time.",
    "start_within": "The first attempt starts this soon after the due time, or never.",
    "lease": "How long its worker may be silent before the run is taken from it.",
    "progress_within": "A handler that reports no progress for this long counts as stuck.",
    "grace": "How long a handler has between being asked to stop and being forced.",
    "max_lost": "How many workers may die under it before it is buried.",
    "delivery": "`at_least_once`, or `at_most_once`: then a start is the only one.",
    "unique": "Equal jobs are one: `true`, or what must be equal and for how long.",
    "tags": "Words to find it by.",
    "tag": "One of its tags.",
    "idempotency_key": "The same key with the same body gives the first job again; with another body it is refused.",
    "idempotency_ttl": "How long the key is kept; 7 days by default.",
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
    "capped": "Whether a count stopped at its limit of 10,000.",
    "oldest_ready_s": "For how long the oldest ready run has been due, in seconds.",
    "next_due_at": "When the next waiting run is due.",
}


def explained(schema: Any) -> Any:
    """The schema of a struct with the meaning of each field in front of what its type says."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return {**schema, "properties": {name: _told(name, inner) for name, inner in properties.items()}} if properties else schema


def _told(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if name not in MEANINGS:
        return schema
    return {**schema, "description": " ".join(filter(None, [MEANINGS[name], schema.get("description")]))}
