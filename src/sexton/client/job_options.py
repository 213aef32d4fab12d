"""The options of a job as keywords of the SDK.

Made by `make docs` from `sexton.domain.job_options`; edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from sexton.domain.duration import Duration
from sexton.domain.job import Delivery, Priority, Unique
from sexton.domain.limit import Limit
from sexton.domain.retry import Retry
from sexton.domain.schedule.catch_up import CatchUp
from sexton.domain.schedule.catch_up import Policy as CatchUpPolicy
from sexton.domain.schedule.dialects import NamedDialect
from sexton.domain.schedule.overlap import Overlap
from sexton.domain.schedule.overlap import Policy as OverlapPolicy
from sexton.domain.schedule.rule import DstRule, Jitter, Window


class CommonOptions(TypedDict, total=False):
    """For any job, or for all jobs of a task. `None` means that the option is not given."""

    queue: str | None
    priority: Priority | None
    delivery: Delivery | None
    tags: Sequence[str] | None
    retry: Retry | None
    timeout: Duration | None
    deadline: Duration | None
    start_within: Duration | None
    lease: Duration | None
    progress_within: Duration | None
    grace: Duration | None
    max_lost: int | None
    limit: Limit | Mapping[str, Any] | str | None


class TaskOptions(CommonOptions, total=False):
    """For all jobs of a task; each job may override them."""

    unique: Unique | bool | None


class OwnOptions(TaskOptions, total=False):
    """For one job alone."""

    run_at: datetime | None
    delay: Duration | None
    tenant: str | None
    name: str | None
    key: str | None
    key_ttl: Duration | None


class RuleOptions(TypedDict, total=False):
    """When a recurring job fires, besides the rule itself, and its policies: docs/schedules.md."""

    timezone: str | None
    dst: DstRule | Mapping[str, Any] | None
    jitter: Jitter | Mapping[str, Any] | Duration | None
    start_at: datetime | str | None
    end_at: datetime | str | None
    max_fires: int | None
    exclude: Sequence[str | Window | Mapping[str, Any]] | None
    dialect: NamedDialect | None
    anchor_at: datetime | str | None
    overlap: OverlapPolicy | Overlap | Mapping[str, Any] | None
    catch_up: CatchUpPolicy | CatchUp | Mapping[str, Any] | None
    on_resume: CatchUpPolicy | None
    pause_after: int | None
