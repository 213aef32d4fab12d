"""Requests of callers. They can turn into the domain's documents; `Invalid` names the field as it is spelled here."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sexton.domain.fault import Invalid
from sexton.domain.job import Submission, submission
from sexton.domain.job_options import BY_NAME, FIXED, POLICIES, RECURRENCE
from sexton.domain.schedule.backfill import SPACING_S, BackfillSpec
from sexton.domain.schedule.backfill import Fires as BackfillFires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap
from sexton.domain.schedule.check import schedule
from sexton.domain.schedule.document import OnName, ScheduleDocument, document
from sexton.domain.schedule.recurrence import Recurrence, seed_of
from sexton.domain.targets import task_of

from .handlers import Handler, task_or_target
from .job_options import JobOptions
from .kinds import Instant, Request, Span, Word
from .schedules import RULE_FIELDS, Schedule, catch_up_of, overlap_of
from .sharing import LimitRule
from .unique import UniqueRule


class JobRequest(JobOptions, frozen=True, kw_only=True):
    """A job to be submitted: one-time with `run_at`, `delay` or neither (now), recurring with `cron`, `rrule` or `every`."""

    handler: Handler
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))  # a schema cannot hold it as a default

    @property
    def task(self) -> str:
        named = task_or_target(self.handler)
        return named if isinstance(named, str) else task_of(named)

    def to_schedule(
        self, *, now: datetime, on_name: OnName = "refuse", submitted_by: str | None = None, trace: str | None = None
    ) -> ScheduleDocument:
        """The document of `sexton.submit_schedules`, for a recurring job; its rule is checked as of `now`."""
        for field, why in _ONE_TIME.items():
            if getattr(self, field) not in (None, False):
                raise Invalid(field, why)
        job = self._checked(submitted_by, trace)
        rule = schedule(now=now, seed=seed_of(self.tenant or "default", self.name, _NO_ID), **self.rule())
        if self.anchor_at is None:  # left open, so that a repeated submission is the same schedule
            rule = msgspec.structs.replace(rule, anchor_at=None)
        return document(job, rule, self.recurrence(), on_name=on_name)

    def recurrence(self) -> Recurrence:
        return Recurrence(
            overlap=overlap_of(self.overlap),
            catch_up=catch_up_of(self.catch_up),
            on_resume=self.on_resume or "skip",
            pause_after=self.pause_after,
        )

    def to_domain(self, *, submitted_by: str | None = None, trace: str | None = None) -> Submission:
        """The document of `sexton.submit_jobs`; `Invalid` names the field as it is spelled here."""
        for field in _RECURRING:
            if getattr(self, field) is not None:
                raise Invalid(field, "is only for a recurring job; give cron, rrule or every, or leave it out")
        return self._checked(submitted_by, trace)

    def _checked(self, submitted_by: str | None, trace: str | None) -> Submission:
        try:
            return submission(
                task_or_target(self.handler),
                self.payload,
                run_at=self.run_at,
                delay=self.delay,
                name=self.name,
                tenant=self.tenant,
                queue=self.queue,
                priority=self.priority,
                timeout=self.timeout,
                delivery=self.delivery,
                unique=self.unique.to_domain() if isinstance(self.unique, UniqueRule) else self.unique,
                limit=self.limit.to_domain() if isinstance(self.limit, LimitRule) else self.limit,
                tags=self.tags,
                key=self.idempotency_key,
                key_ttl=self.idempotency_ttl,
                submitted_by=submitted_by,
                trace=trace,
                **self._policies(),
            )
        except Invalid as fault:
            raise Invalid(_SPELLED.get(fault.field, fault.field), fault.message) from None

    def _policies(self) -> dict[str, Any]:
        """The options that the policy keeps."""
        given = {name: value for name in POLICIES if (value := getattr(self, name)) is not None}
        if self.retry is not None:
            given["retry"] = self.retry.to_domain()
        return given


_SPELLED = {"task": "handler", "key": "idempotency_key", "key_ttl": "idempotency_ttl"}
_NO_ID = UUID(int=0)
_RECURRING = (*RULE_FIELDS, *RECURRENCE)
_BY_NAME = "a recurring job takes no key; give it a name, and with ?on_name=update a repeated submission is the same schedule"
_ONE_TIME = {
    "run_at": "give exactly one of run_at, delay, cron, rrule and every; a schedule begins at start_at",
    "delay": "give exactly one of run_at, delay, cron, rrule and every; a schedule begins at start_at",
    "unique": "the name identifies a recurring job; leave it out",
    "idempotency_key": _BY_NAME,
    "idempotency_ttl": _BY_NAME,
}


_ABOUT_EDITS = """The changes to a pending or recurring job. Fields that you leave out keep their value, `null` resets to the
               default. The target of a handler may change, but not its kind."""

if TYPE_CHECKING:

    class JobEdit(Request, frozen=True):
        """Every field of `JobRequest` that is not fixed; each may be left out."""

        def __init__(self, **changes: Any) -> None: ...

else:
    _KINDS = get_type_hints(JobRequest, include_extras=True)
    JobEdit = msgspec.defstruct(
        "JobEdit",
        [
            (name, _KINDS[name] | UnsetType, UNSET)
            for name in sorted(JobRequest.__struct_fields__, key=list(BY_NAME).index)
            if name not in FIXED
        ],
        bases=(Request,),
        namespace={"__doc__": _ABOUT_EDITS},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


class StatusChange(Request, frozen=True, kw_only=True):
    """A command to a job: pause it, resume it, or end it. A paused recurring job may resume by itself at `resume_at`."""

    status: Literal["paused", "active", "cancelled"]
    note: Annotated[str, Meta(max_length=500)] | None = None
    resume_at: Instant | None = None


class PreviewRequest(Schedule, frozen=True, kw_only=True):
    """A schedule that need not exist, or a job by its id; the fires strictly after `after` (default: now)."""

    job_id: UUID | None = None
    after: Instant | None = None
    count: Annotated[int, Meta(ge=1, le=1_000)] = 10
    tenant: Word | None = None  # the seed of jitter and H, together with the name
    name: Word | None = None


class RunRequest(Request, frozen=True, kw_only=True):
    """A run by hand. A `payload` is for this run of a recurring job only; without it, the run has the job's."""

    payload: msgspec.Raw | UnsetType = UNSET


class BackfillRequest(Request, frozen=True, kw_only=True):
    """The past fires of a recurring job from `from` up to, not including, `until` (default: now)."""

    from_at: Instant = msgspec.field(name="from")
    until: Instant | None = None
    dry_run: bool = False
    fires: BackfillFires = "missing"
    spacing: Span = SPACING_S
    overlap: BackfillOverlap = "queue"

    def to_domain(self) -> BackfillSpec:
        return BackfillSpec(self.from_at, self.until, self.fires, self.spacing, self.overlap, dry_run=self.dry_run)


class DeadLetterFilter(Request, frozen=True, kw_only=True):
    """Which dead letters; a field that is left out matches all. Give at least one."""

    ids: Annotated[tuple[UUID, ...], Meta(max_length=10_000)] | None = None
    handler: Word | None = None
    tenant: Word | None = None
    queue: Word | None = None
    permanent: bool | None = None


class ReplayRequest(Request, frozen=True, kw_only=True):
    """Runs dead letters again with a fresh budget, each once. `dry_run` only counts; `keep_key: false` lets the effect of an
    idempotency key happen again."""

    filter: DeadLetterFilter
    dry_run: bool = False
    keep_key: bool = True
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class DiscardRequest(Request, frozen=True, kw_only=True):
    filter: DeadLetterFilter
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
