"""The keywords of the SDK: of a job, of a schedule, of a backfill, of tenants, queues and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from sexton.domain.duration import Duration
from sexton.domain.job_options import RECURRENCE
from sexton.domain.retry import Retry
from sexton.domain.schedule.backfill import Fires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap

from .job_options import CommonOptions, OwnOptions, RuleOptions


class Options(OwnOptions, total=False):
    """For one job."""

    submitted_by: str | None
    trace: str | None


class DeclaredOptions(RuleOptions, CommonOptions, total=False):
    """For a schedule that is declared in code; it is the default tenant's."""


class Declaration(DeclaredOptions, total=False):
    """Of `@app.cron` and its like. `payload` is what each run gets; `process` as in `@app.task`."""

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

    fires: Fires  # "missing": those that have not run; "all": these too
    spacing: Duration  # between two fires; 1 s if left out
    overlap: BackfillOverlap  # "parallel" only where the job's own policy is
    dry_run: bool  # only says what would run


class TenantOptions(TypedDict, total=False):
    """What may be set for a tenant. What is `None` is not limited."""

    weight: int  # its share against other tenants; 1 if left out
    running_max: int | None  # runs at once
    waiting_max: int | None  # runs that have not started; beyond it submissions are refused
    submit_rate: float | None  # jobs per second; beyond it submissions are refused
    submit_burst: int | None
    jitter: Duration | None


class QueueOptions(TypedDict, total=False):
    """What may be set for a queue; from `timeout` on, defaults of its jobs."""

    release_rate: float | None  # runs per second that may start
    release_burst: int | None
    ageing: Duration | None  # after it a run rises one lane
    timeout: Duration | None
    jitter: Duration | None
    retry: Retry | None


RESERVED = Options.__optional_keys__ | {"connection"}
OF_A_SCHEDULE = ScheduleOptions.__optional_keys__ | {"connection"}
BEHAVIOUR = frozenset(RECURRENCE)
RULE_AND_BEHAVIOUR = RuleOptions.__optional_keys__
RULE = (RuleOptions.__optional_keys__ | {"cron", "rrule", "every"}) - BEHAVIOUR
