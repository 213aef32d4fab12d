"""Who is measured, and with which settings: the best that each documents, and one set of them for every phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["ours", "postgres", "redis", "node"]  # whose environment it runs in


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    family: Family
    driver: str  # the module that drives it
    packages: tuple[str, ...]  # whose versions are told
    is_idle: str  # a query: no job is waiting or running. For Redis: the keys that must be gone
    settings: Mapping[str, Any] = field(default_factory=dict)
    companions: tuple[str, ...] = ()  # what else must run for jobs that are due later
    remark: str = ""

    @property
    def store(self) -> Literal["postgres", "redis"]:
        return "redis" if self.family == "redis" else "postgres"


ALL: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "sexton",
            "Sexton",
            "ours",
            "ours",
            ("sexton",),
            "SELECT NOT EXISTS (SELECT FROM sexton.runs)",
            companions=("schedule",),
            remark="its defaults; drains need no scheduler and have none",
        ),
        Peer(
            "graphile-worker",
            "Graphile Worker",
            "node",
            "graphile",
            ("graphile-worker", "node"),
            "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)",
            {
                "concurrentJobs": 24,
                "maxPoolSize": 25,
                "localQueue": {"size": 500},
                "completeJobBatchDelay": 0,
                "failJobBatchDelay": 0,
                "pollInterval": 100,  # ms; only what is due later waits for it
            },
            remark="the preset of its performance page, polling every 0.1 s; deletes what ended",
        ),
        Peer(
            "pg-boss",
            "pg-boss",
            "node",
            "pgboss",
            ("pg-boss", "node"),
            "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE name = 'bench' AND state < 'completed')",
            {
                "batchSize": 1000,
                "burstWhenBatchFull": True,
                "pollingIntervalSeconds": 0.5,
                "notifyPollingIntervalSeconds": 0.5,  # the least it takes; only what is due later waits for it
            },
            remark="a handler gets arrays of 1,000, and ends each as one",
        ),
        Peer(
            "pgqueuer",
            "PgQueuer",
            "postgres",
            "pgqueuer",
            ("pgqueuer", "asyncpg", "uvloop"),
            "SELECT NOT EXISTS (SELECT FROM pgqueuer)",
            {"batch_size": 1000},
        ),
        Peer(
            "chancy",
            "Chancy",
            "postgres",
            "chancy",
            ("chancy", "psycopg", "uvloop"),
            "SELECT NOT EXISTS (SELECT FROM chancy_jobs WHERE state IN ('pending', 'running'))",
            {"concurrency": 1000, "eager_polling": True, "polling_interval": 1},
        ),
        Peer(
            "procrastinate",
            "Procrastinate",
            "postgres",
            "procrastinate",
            ("procrastinate", "psycopg"),
            "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
            {"concurrency": 10, "pool_size": 20, "fetch_job_polling_interval": 0.1},
        ),
        Peer(
            "celery",
            "Celery + Redis",
            "redis",
            "celery",
            ("celery", "redis"),
            "celery unacked",
            {"pool": "prefork", "concurrency": 2, "worker_prefetch_multiplier": 64},
            remark="Redis as it comes: in memory, saved now and then, no job durable when submitted",
        ),
    )
}
