"""The options of a job: those of a decorator, for all jobs of a task, and those of a submission, for one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from sexton.domain.duration import Duration
from sexton.domain.job import Delivery, Priority, Unique
from sexton.domain.limit import Limit
from sexton.domain.retry import Retry
from sexton.domain.schedule.backfill import Fires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap
from sexton.domain.schedule.catch_up import CatchUp
from sexton.domain.schedule.catch_up import Policy as CatchUpPolicy
from sexton.domain.schedule.cron_text import Dialect
from sexton.domain.schedule.overlap import Overlap
from sexton.domain.schedule.overlap import Policy as OverlapPolicy
from sexton.domain.schedule.rule import DstRule, Jitter, Window


class CommonOptions(TypedDict, total=False):
    """For any job. `None` means that the option is not given."""

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
    limit: Limit | Mapping[str, Any] | str | None  # a key, or {"key": "stripe", "running": 5}: docs/how-to/limits.md


class TaskOptions(CommonOptions, total=False):
    """For all jobs of a task; each job may override them."""

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


class RuleOptions(TypedDict, total=False):
    """When a recurring job fires, besides the rule itself, and its policies: docs/schedules.md."""

    timezone: str | None
    dst: DstRule | Mapping[str, Any] | None
    jitter: Jitter | Mapping[str, Any] | Duration | None
    start_at: datetime | str | None
    end_at: datetime | str | None
    max_fires: int | None
    exclude: Sequence[str | Window | Mapping[str, Any]] | None
    dialect: Dialect | None
    anchor_at: datetime | str | None
    overlap: OverlapPolicy | Overlap | Mapping[str, Any] | None
    catch_up: CatchUpPolicy | CatchUp | Mapping[str, Any] | None
    on_resume: CatchUpPolicy | None
    pause_after: int | None


class DeclaredOptions(RuleOptions, CommonOptions, total=False):
    """For a schedule that is declared in code, for the default tenant."""


class Declaration(DeclaredOptions, total=False):
    """For `@app.cron` and similar decorators. `payload` is the payload of each run; `process` as in `@app.task`."""

    name: str | None
    payload: Mapping[str, Any] | None
    process: bool


class ScheduleOptions(DeclaredOptions, total=False):
    """For one recurring job: exactly one of `cron`, `rrule` and `every`."""

    cron: str | None
    rrule: str | None
    every: Duration | None
    tenant: str | None
    name: str | None
    submitted_by: str | None
    trace: str | None


class BackfillOptions(TypedDict, total=False):
    """Which past fires of a recurring job run, and how."""

    fires: Fires  # "missing": fires that have not run; "all": also those that have
    spacing: Duration  # between two fires; 1 s if left out
    overlap: BackfillOverlap  # "parallel" is allowed only if the job's own policy is parallel
    dry_run: bool  # only shows what would run


class TenantOptions(TypedDict, total=False):
    """The settings of a tenant. `None` means no limit."""

    weight: int  # its share relative to other tenants; default 1
    running_max: int | None  # runs at once
    waiting_max: int | None  # runs that have not started; above it submissions are rejected
    submit_rate: float | None  # jobs per second; above it submissions are rejected
    submit_burst: int | None
    jitter: Duration | None


class QueueOptions(TypedDict, total=False):
    """The settings of a queue; from `timeout` on, defaults of its jobs."""

    release_rate: float | None  # runs per second that may start
    release_burst: int | None
    ageing: Duration | None  # after it a run moves up one lane
    timeout: Duration | None
    jitter: Duration | None
    retry: Retry | None


class LimitOptions(TypedDict, total=False):
    """The numbers of a limit."""

    running: int | None  # runs at once
    count: int | None  # starts per `per`
    per: Duration | None
    burst: int | None  # starts that may come at once after an idle time
    ordered: bool  # one at a time, by due time


RESERVED = Options.__optional_keys__ | {"connection"}
OF_A_SCHEDULE = ScheduleOptions.__optional_keys__ | {"connection"}
BEHAVIOUR = frozenset({"overlap", "catch_up", "on_resume", "pause_after"})
RULE_AND_BEHAVIOUR = RuleOptions.__optional_keys__
RULE = (RuleOptions.__optional_keys__ | {"cron", "rrule", "every"}) - BEHAVIOUR
