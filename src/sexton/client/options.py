"""The keyword options of the SDK: for jobs, schedules and backfills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from sexton.domain.duration import Duration
from sexton.domain.job_options import RECURRENCE
from sexton.domain.schedule.backfill import Fires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap

from .job_options import CommonOptions, OwnOptions, RuleOptions


class Options(OwnOptions, total=False):
    """For one job."""

    submitted_by: str | None
    trace: str | None


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


RESERVED = Options.__optional_keys__ | {"connection"}
OF_A_SCHEDULE = ScheduleOptions.__optional_keys__ | {"connection"}
BEHAVIOUR = frozenset(RECURRENCE)
RULE_AND_BEHAVIOUR = RuleOptions.__optional_keys__
RULE = (RuleOptions.__optional_keys__ | {"cron", "rrule", "every"}) - BEHAVIOUR
