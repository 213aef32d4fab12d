"""Every option of a job, described once. A new option is added here, and to `Policy` (`domain.job`) if its document keeps it;
then `make docs` writes what follows: docs/adr/026-one-description-of-a-job.md. Only types are imported, because the command
line reads this table each time it starts."""

from __future__ import annotations

from typing import Literal, NamedTuple

# fmt: off
Kind = Literal[
    "catch_up", "choice_of_catch_up", "count", "delivery", "dialect", "dst", "exclude", "handler", "instant", "jitter", "limit",
    "overlap", "payload", "priority", "retry", "rule", "span", "tags", "unique", "word",
]
# fmt: on


class Option(NamedTuple):
    name: str  # in a request, an edit and the SDK
    kind: Kind  # how it is written: one type at each interface
    means: str  # one or two sentences
    kept: str  # `job.COLUMN`, `run.COLUMN`, `policy.KEY`, `schedule.KEY`, `recurrence.KEY`, or `beside` the job
    jobs: Literal["any", "one-time", "recurring"] = "any"  # the kinds of job that may have it
    default: str = "none"  # the value if neither the job nor its task gives one
    by_task: bool = False  # a decorator may give it for all jobs of a task
    bounds: tuple[int, int] = (1, 1)  # of a count
    keyword: str | None = None  # of the SDK, if it differs from the name
    shown: str | None = None  # the field of the answer, if it is not the name (of a span: the name with `_s`)
    unseen: str | None = None  # why the answer does not show it
    always: bool = False  # every job has one, so the answer is never null
    fixed: str | None = None  # why it cannot be edited
    flag: str | None = None  # of the command line, if it is not the name
    flag_means: str | None = None  # if the flag offers less than the option
    example: str | None = None  # for the command line
    no_flag: str | None = None  # why the command line has none
    sql: tuple[str, ...] | None = None  # arguments of `sexton.submit` or `sexton.submit_schedule`, if they differ from the name
    sql_lacks: str | None = None  # what SQL does not offer of it

    @property
    def field(self) -> str | None:
        """Of the answer, or of the schedule in it."""
        if self.unseen is not None:
            return None
        of_rule = self.kept if self.in_schedule else None
        return self.shown or of_rule or (f"{self.name}_s" if self.kind == "span" else self.name)

    @property
    def has_own_field(self) -> bool:
        return self.unseen is None and self.shown is None and not self.in_schedule

    @property
    def in_schedule(self) -> bool:
        return self.kept.startswith("schedule.")

    @property
    def option(self) -> str | None:
        """Of the command line."""
        return None if self.no_flag is not None else self.flag or f"--{self.name.replace('_', '-')}"

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.sql or (self.name,)

    @property
    def in_policy(self) -> str | None:
        """The key of the policy document that keeps it."""
        place, _, key = self.kept.partition(".")
        return key if place == "policy" else None

    @property
    def in_sdk(self) -> str:
        return self.keyword or self.name


_OF_SUBMISSION = "it decides whether a submission creates a job, and is not a part of the job"
_BY_TENANT = "the shares, limits and names of the tenant count the job; cancel it and submit another"
_LIMIT_ARGUMENTS = ("limit_key", "limit_running", "limit_count", "limit_per", "limit_burst", "limit_ordered")

OPTIONS: tuple[Option, ...] = (
    Option(
        "handler",
        "handler",
        "What runs: the name of a Python task, or an object that describes the target to call.",
        "job.task",
        always=True,
        no_flag="it is the first argument of the command; edit it over HTTP",
        sql=("task",),
        sql_lacks="a target to call (a URL, a gRPC method, a command): only a task by its name",
    ),
    Option(
        "payload", "payload", "The handler's arguments, as JSON; at most 256 KiB.", "job.payload", default="{}", always=True
    ),
    Option(
        "run_at",
        "instant",
        "When it is due. Without it and without `delay`: now.",
        "run.fire_at",
        jobs="one-time",
        default="now",
        example="2026-03-01T09:00:00Z",
    ),
    Option(
        "delay",
        "span",
        "How long from now it is due.",
        "run.fire_at",
        jobs="one-time",
        default="now",
        shown="run_at",
        example="24h",
    ),
    Option("tenant", "word", "The tenant that owns the job.", "job.tenant", default="default", always=True, fixed=_BY_TENANT),
    Option(
        "queue",
        "word",
        "Where its runs wait; workers subscribe to queues.",
        "job.queue",
        default="default",
        by_task=True,
        always=True,
    ),
    Option(
        "priority",
        "priority",
        "The lane: critical, high, normal, low, strictly in this order within a queue.",
        "job.lane",
        default="normal",
        by_task=True,
        always=True,
    ),
    Option(
        "delivery",
        "delivery",
        "`at_least_once`, or `at_most_once`: then it starts at most once.",
        "job.at_most_once",
        default="at_least_once",
        by_task=True,
        always=True,
    ),
    Option("name", "word", "A name of the submitter's choice, to find the job by.", "job.name"),
    Option(
        "tags",
        "tags",
        "Words to find it by.",
        "job.tags",
        by_task=True,
        flag="--tag",
        flag_means="A word to find it by; may be repeated.",
    ),
    Option(
        "retry",
        "retry",
        "How many times it is tried, and how long it waits in between.",
        "policy.retry",
        default="five attempts, 30 s to 30 min apart",
        by_task=True,
        flag="--max-attempts",
        flag_means="How many times it is tried.",
        sql=("max_attempts",),
        sql_lacks="backoff, delays, jitter and replays: with `max_attempts`, their defaults",
    ),
    Option(
        "timeout",
        "span",
        "How long one attempt may take; 0 means no limit.",
        "job.timeout_s",
        default="30s",
        by_task=True,
        example="5m",
    ),
    Option(
        "deadline",
        "span",
        "How long all attempts together may take, from the due time.",
        "policy.deadline_s",
        by_task=True,
        example="1h",
    ),
    Option(
        "start_within",
        "span",
        "The first attempt starts within this time after the due time, or never.",
        "policy.start_within_s",
        by_task=True,
        example="5m",
    ),
    Option(
        "lease",
        "span",
        "How long its worker may send no heartbeat before the run is taken from it.",
        "policy.lease_s",
        default="the worker's, 4.5s",
        by_task=True,
        example="30s",
    ),
    Option(
        "progress_within",
        "span",
        "A handler that reports no progress for this long counts as stuck.",
        "policy.progress_within_s",
        by_task=True,
        example="5m",
    ),
    Option(
        "grace",
        "span",
        "How long a handler has between the request to stop and the kill.",
        "policy.grace_s",
        default="the worker's, 10s",
        by_task=True,
        example="20s",
    ),
    Option(
        "max_lost",
        "count",
        "How many workers may die while they run it before it is buried.",
        "policy.max_lost",
        default="3",
        by_task=True,
        bounds=(1, 1000),
    ),
    Option(
        "limit",
        "limit",
        "The limit of its runs: a key alone, or with the numbers that create it.",
        "policy.limit",
        by_task=True,
        flag_means="The key of the limit of its runs; see sexton limits.",
        sql=_LIMIT_ARGUMENTS,
    ),
    Option(
        "unique",
        "unique",
        "Equal jobs are one: `true`, or what must be equal and for how long.",
        "beside",
        jobs="one-time",
        by_task=True,
        unseen=_OF_SUBMISSION,
        fixed=_OF_SUBMISSION,
        flag_means="Submit nothing if an equal job is pending.",
        sql=("unique_by", "unique_for"),
        sql_lacks="what to do with an equal job (`on_conflict`): the equal job is returned",
    ),
    Option(
        "idempotency_key",
        "word",
        "The same key with the same body returns the first job again; with another body it is rejected.",
        "job.idempotency_key",
        jobs="one-time",
        keyword="key",
        fixed=_OF_SUBMISSION,
        flag="--key",
        sql=("key",),
    ),
    Option(
        "idempotency_ttl",
        "span",
        "How long the key is kept.",
        "beside",
        jobs="one-time",
        default="7d",
        keyword="key_ttl",
        unseen=_OF_SUBMISSION,
        fixed=_OF_SUBMISSION,
        flag="--key-ttl",
        example="24h",
        sql=("key_ttl",),
    ),
    Option(
        "cron",
        "rule",
        "When it fires: five fields, six or seven with seconds first and a year last; names, `L`, `W`, `#`, `H`, `@daily`.",
        "schedule.cron",
        jobs="recurring",
        example='"0 9 * * MON-FRI"',
    ),
    Option(
        "rrule",
        "rule",
        "When it fires, in the form of RFC 5545: `FREQ=…`, or lines with `DTSTART`, `RRULE`, `EXDATE`, `RDATE`.",
        "schedule.rrule",
        jobs="recurring",
        example='"FREQ=WEEKLY;BYDAY=MO"',
    ),
    Option(
        "every",
        "span",
        "When it fires: at `anchor_at` and then once per such span.",
        "schedule.every",
        jobs="recurring",
        example="15m",
    ),
    Option(
        "timezone",
        "word",
        "The IANA name of the time zone of its wall times.",
        "schedule.timezone",
        jobs="recurring",
        default="UTC",
        example="America/New_York",
    ),
    Option(
        "dst",
        "dst",
        "How to treat a wall time that does not exist or exists twice.",
        "schedule.dst",
        jobs="recurring",
        default="after the gap, and the first of two",
        no_flag="the rule is written as one object; give it in a file, with --file",
        sql=("dst_gap", "dst_overlap"),
    ),
    Option(
        "jitter",
        "jitter",
        "How far its fires are moved: each job by its own span, which never changes. At most 30 minutes.",
        "schedule.jitter",
        jobs="recurring",
        default="of its queue, then of its tenant",
        example="30s",
        sql_lacks="a shift to both sides (`both`): later only",
    ),
    Option("start_at", "instant", "It does not fire before this.", "schedule.start_at", jobs="recurring"),
    Option("end_at", "instant", "It does not fire after this.", "schedule.end_at", jobs="recurring"),
    Option(
        "max_fires",
        "count",
        "It ends after this many fires; missed ones do not count.",
        "schedule.max_fires",
        jobs="recurring",
        bounds=(1, 2**31 - 1),
    ),
    Option(
        "exclude",
        "exclude",
        "When it does not fire: dates, daily windows such as `22:00-06:00`, ranges between instants.",
        "schedule.exclude",
        jobs="recurring",
        flag_means="When it does not fire: a date, or a daily window such as 22:00-06:00; may be repeated.",
        sql_lacks="ranges between instants: only dates and daily windows",
    ),
    Option(
        "dialect",
        "dialect",
        "How its cron line is read: `cron`; `quartz`: weekdays count from Sunday = 1, and seconds are required; `strict`: as "
        "`cron`, but a line that other programs read differently is refused. Without it, such a line has a warning.",
        "schedule.dialect",
        jobs="recurring",
        default="not named: as `cron`",
        example="quartz",
    ),
    Option(
        "anchor_at",
        "instant",
        "What `every` counts from, and where an rrule without `DTSTART` begins.",
        "schedule.anchor_at",
        jobs="recurring",
        default="the submission",
    ),
    Option(
        "overlap",
        "overlap",
        "What to do with a fire while an earlier run is alive: `skip`, `queue`, `parallel`, `replace`.",
        "recurrence.overlap",
        jobs="recurring",
        default="skip",
        sql_lacks="`max_queued` and `max_parallel`: their defaults",
    ),
    Option(
        "catch_up",
        "catch_up",
        "What to do with fires that were not planned in time: `latest`, `skip`, `all`.",
        "recurrence.catch_up",
        jobs="recurring",
        default="latest, within 30 minutes",
        sql=("catch_up", "catch_up_window"),
        sql_lacks="`max_catch_up`: its default",
    ),
    Option(
        "on_resume",
        "choice_of_catch_up",
        "What to do with the fires of a pause: `skip`, `latest`, `all`.",
        "recurrence.on_resume",
        jobs="recurring",
        default="skip",
    ),
    Option(
        "pause_after",
        "count",
        "It pauses after this many fires in a row that failed for good, until it is resumed.",
        "recurrence.pause_after",
        jobs="recurring",
        bounds=(1, 10_000),
    ),
)

BY_NAME = {option.name: option for option in OPTIONS}
FIXED = {option.name: option.fixed for option in OPTIONS if option.fixed is not None}
IN_POLICY = {option.name: option.in_policy for option in OPTIONS if option.in_policy is not None}
POLICIES = {name: key for name, key in IN_POLICY.items() if name != "limit"}  # a limit joins the policy when it is stored
RECURRENCE = tuple(option.name for option in OPTIONS if option.kept.startswith("recurrence."))
