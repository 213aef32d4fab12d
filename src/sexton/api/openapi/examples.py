"""Examples for the OpenAPI document; a test sends each of them."""

from __future__ import annotations

from typing import Any

JOB_ID = "01890a5d-ac96-774b-bcce-b302099a8057"

SUBMISSIONS: dict[str, Any] = {
    "now": {"handler": "demo.echo", "payload": {"user_id": 42}},
    "later": {"handler": "demo.echo", "payload": {"user_id": 42}, "delay": "24h", "idempotency_key": "invoice-42"},
    "in_full": {
        "handler": {"type": "python", "task": "demo.echo"},
        "payload": {"user_id": 42},
        "run_at": "2030-01-01T09:00:00Z",
        "name": "send-invoice",
        "tenant": "acme",
        "queue": "default",
        "priority": "high",
        "retry": {"max_attempts": 5, "backoff": "exponential", "base": "30s", "max": "30m", "jitter": 0.25},
        "timeout": "30s",
        "deadline": "1h",
        "start_within": "10m",
        "lease": "30s",
        "progress_within": "20s",
        "grace": "10s",
        "max_lost": 2,
        "delivery": "at_least_once",
        "unique": {"by": ["handler", "payload.user_id"], "on_conflict": "keep"},
        "limit": {"key": "mailer:{payload.user_id}", "running": 5, "count": 10, "per": "1s"},
        "tags": ["billing"],
    },
}
RECURRING: dict[str, Any] = {
    "weekdays": {"handler": "demo.echo", "cron": "0 9 * * MON-FRI", "timezone": "America/New_York", "jitter": "30s"},
    "recurring_in_full": {
        "handler": "demo.echo",
        "name": "monthly-invoices",
        "rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0",
        "timezone": "Europe/Berlin",
        "dst": {"gap": "after", "overlap": "first"},
        "jitter": {"max": "5m", "both": True},
        "start_at": "2030-01-01T00:00:00Z",
        "end_at": "2040-01-01T00:00:00Z",
        "max_fires": 100,
        "exclude": ["2030-12-25", "22:00-06:00", {"from": "2031-08-01T00:00:00Z", "to": "2031-09-01T00:00:00Z"}],
        "overlap": {"policy": "queue", "max_queued": 3},
        "catch_up": {"policy": "all", "window": "2h", "max_catch_up": 10},
        "on_resume": "latest",
        "pause_after": 5,
    },
}
PREVIEWS: dict[str, Any] = {
    "a_schedule": {"cron": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T00:00:00Z", "count": 3},
    "an_interval": {"every": "15m", "anchor_at": "2026-03-01T00:00:00Z"},
}
RUNS: dict[str, Any] = {"as_it_is": {}, "another_payload": {"payload": {"user_id": 7}}}
BACKFILLS: dict[str, Any] = {
    "what_is_missing": {"from": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "dry_run": True},
    "all_of_it": {"from": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "fires": "all", "spacing": "30s"},
}
BATCH: dict[str, Any] = {"two_jobs": [{"handler": "demo.echo", "payload": {"n": 1}}, {"handler": "demo.noop", "delay": "1h"}]}
EDITS: dict[str, Any] = {
    "another_time": {"run_at": "2030-01-01T10:00:00Z"},
    "more_patience": {"retry": {"max_attempts": 10}, "timeout": "5m", "name": None},
}
EDITS_OF_RECURRING: dict[str, Any] = {
    "another_schedule": {"cron": "0 10 * * MON-FRI", "timezone": "Europe/Berlin", "overlap": "queue"},
}
PAUSES_OF_RECURRING: dict[str, Any] = {"pause_until": {"status": "paused", "resume_at": "2030-01-01T00:00:00Z"}}
STATUS_CHANGES: dict[str, Any] = {
    "pause": {"status": "paused", "note": "the mail server is down"},
    "resume": {"status": "active"},
    "cancel": {"status": "cancelled"},
}
TENANTS: dict[str, Any] = {
    "in_full": {
        "weight": 3,
        "running_max": 50,
        "waiting_max": 10_000,
        "submit_rate": 100,
        "submit_burst": 500,
        "jitter": "30s",
    },
}
QUEUES: dict[str, Any] = {
    "in_full": {
        "release_rate": 50,
        "release_burst": 10,
        "ageing": "10m",
        "timeout": "2m",
        "jitter": "30s",
        "retry": {"max_attempts": 3, "base": "10s"},
    },
}
LIMITS: dict[str, Any] = {
    "at_once": {"running": 5},
    "a_rate": {"count": 10, "per": "1s", "burst": 5},
    "in_order": {"ordered": True},
}
SHARE_STATUS_CHANGES: dict[str, Any] = {
    "pause": {"status": "paused", "note": "the mail server is down"},
    "resume": {"status": "active"},
}
REPLAYS: dict[str, Any] = {
    "by_task": {"filter": {"handler": "demo.fail", "permanent": False}, "dry_run": True},
    "by_id": {"filter": {"ids": [JOB_ID]}},
}
SUBSCRIPTIONS: dict[str, Any] = {
    "everything": {"url": "https://hooks.example/sexton", "signed_with": ["hooks"]},
    "in_full": {
        "url": "https://hooks.example/sexton",
        "kinds": ["completed", "dead_lettered", "missed"],
        "filter": {"tenant": "acme", "queue": "default"},
        "headers": {"Authorization": {"secret": "hooks_login", "prefix": "Bearer "}},
        "signed_with": ["hooks", "hooks_next"],
        "queue": "default",
        "priority": "low",
        "retry": {"max_attempts": 8, "base": "10s", "max": "6h"},
        "timeout": "15s",
        "paused": False,
    },
}
DELIVERIES_REPLAYS: dict[str, Any] = {
    "all_that_failed": {},
    "a_range": {"status": None, "from": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "dry_run": True},
}
DISCARDS: dict[str, Any] = {"by_tenant": {"filter": {"tenant": "acme"}, "dry_run": True}}
JOB: dict[str, Any] = {
    "id": JOB_ID,
    "status": "pending",
    "version": 1,
    "handler": "demo.echo",
    "payload": {"user_id": 42},
    "tenant": "default",
    "queue": "default",
    "priority": "normal",
    "delivery": "at_least_once",
    "name": None,
    "tags": [],
    "retry": None,
    "timeout_s": 30.0,
    "deadline_s": None,
    "start_within_s": None,
    "lease_s": None,
    "progress_within_s": None,
    "grace_s": None,
    "max_lost": None,
    "limit": None,
    "idempotency_key": None,
    "overlap": None,
    "catch_up": None,
    "on_resume": None,
    "pause_after": None,
    "submitted_at": "2026-03-01T09:00:00Z",
    "submitted_by": "api",
    "trace": None,
    "run_at": "2026-03-01T09:00:00Z",
    "next_fire_at": "2026-03-01T09:00:00Z",
    "attempt": 0,
    "ended_at": None,
    "last_execution": None,
    "note": None,
    "warnings": [],
    "schedule": None,
    "schedule_words": None,
    "paused_at": None,
    "paused_by": None,
    "resume_at": None,
    "over_reason": None,
}
