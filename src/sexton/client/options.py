"""The options of a job: what a decorator may say for all jobs of a task, and what a submission may say for one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from sexton.domain.duration import Duration
from sexton.domain.job import Delivery, Priority, Unique
from sexton.domain.retry import Retry


class TaskOptions(TypedDict, total=False):
    """For all jobs of a task; each job may say otherwise. What is `None` is not said."""

    queue: str | None
    priority: Priority | None
    retry: Retry | None
    timeout: Duration | None  # of one attempt; 0: no limit
    deadline: Duration | None  # for all attempts together
    start_within: Duration | None
    delivery: Delivery | None
    lease: Duration | None
    progress_within: Duration | None
    max_lost: int | None
    grace: Duration | None
    tags: Sequence[str] | None
    unique: Unique | bool | None


class Options(TaskOptions, total=False):
    """For one job."""

    run_at: datetime | None
    delay: Duration | None
    tenant: str | None
    name: str | None
    key: str | None
    key_ttl: Duration | None
    submitted_by: str | None
    trace: str | None


RESERVED = Options.__optional_keys__ | {"connection"}
