"""The peers and their settings: the best that each documents, and the same settings for every phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["ours", "postgres", "redis", "node"]  # which environment it runs in


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    family: Family
    driver: str  # the module in `drivers`
    packages: tuple[str, ...]  # the packages whose versions are reported
    is_idle: str  # a query that is true if no job is waiting or running. For Redis: the keys that must be gone
    settings: Mapping[str, Any] = field(default_factory=dict)
    companions: tuple[str, ...] = ()  # other processes that it needs for jobs that are due later
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
            remark="its defaults; no scheduler in drains, which need none",
        ),
        Peer(
            "sexton-batch",
            "Sexton, batch handler",
            "ours",
            "ours_batch",
            ("sexton",),
            "SELECT NOT EXISTS (SELECT FROM sexton.runs)",
            companions=("schedule",),
            remark="a handler gets up to 500 runs; each keeps its own lease, outcome and history",
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
                "pollInterval": 100,  # ms; only jobs that are due later wait for it
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
                "notifyPollingIntervalSeconds": 0.5,  # the smallest allowed value; only jobs that are due later wait for it
            },
            remark="a handler gets arrays of 1,000 and completes each array at once",
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
            remark="Redis with its defaults: in memory, saved from time to time; a submitted job is not durable",
        ),
    )
}
