"""Writes the modules derived from `sexton.domain.job_options`: structs and keywords that a type checker needs as code. `make
docs` runs it; a test fails if a committed module differs from its output."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

from sexton.domain.job_options import OPTIONS, Kind, Option

SOURCE = Path(__file__).parents[1] / "src" / "sexton"
MADE = "Made by `make docs` from `sexton.domain.job_options`; edit that instead."

# The type of each kind at each edge: in a request, in an answer, as a keyword of the SDK.
REQUEST: dict[Kind, str] = {
    "catch_up": "CatchUpPolicy | CatchUpRule",
    "choice_of_catch_up": "CatchUpPolicy",
    "delivery": "Delivery",
    "instant": "Instant",
    "limit": "Word | LimitRule",
    "overlap": "OverlapPolicy | OverlapRule",
    "priority": "Priority",
    "retry": "RetryPolicy",
    "span": "Span",
    "tags": "Annotated[tuple[Word, ...], Meta(max_length=TAG_LIMIT)]",
    "unique": "bool | UniqueRule",
    "word": "Word",
}
ANSWER: dict[Kind, str] = {
    "catch_up": "CatchUpRule",
    "choice_of_catch_up": "CatchUpPolicy",
    "count": "int",
    "delivery": "Delivery",
    "handler": "str | TargetHandler",
    "instant": "Moment",
    "limit": "LimitRule",
    "overlap": "OverlapRule",
    "payload": "msgspec.Raw",
    "priority": "Priority",
    "retry": "RetryPolicy",
    "span": "float",
    "word": "str",
}
KEYWORD: dict[Kind, str] = {
    "catch_up": "CatchUpPolicy | CatchUp | Mapping[str, Any]",
    "choice_of_catch_up": "CatchUpPolicy",
    "count": "int",
    "delivery": "Delivery",
    "dialect": "NamedDialect",
    "dst": "DstRule | Mapping[str, Any]",
    "exclude": "Sequence[str | Window | Mapping[str, Any]]",
    "instant": "datetime",
    "jitter": "Jitter | Mapping[str, Any] | Duration",
    "limit": "Limit | Mapping[str, Any] | str",
    "overlap": "OverlapPolicy | Overlap | Mapping[str, Any]",
    "priority": "Priority",
    "retry": "Retry",
    "rule": "str",
    "span": "Duration",
    "tags": "Sequence[str]",
    "unique": "Unique | bool",
    "word": "str",
}
_OVERLOAD = "@overload\n    def __call__(self, *args: Any, {}: {}, **more: Any) -> Answer: ..."
_WORDS: dict[Kind, str] = {"choice_of_catch_up": "choice", "delivery": "choice", "dialect": "choice", "priority": "choice"}
RULES = ("cron", "rrule", "every")
# Options of a single SDK call that an HTTP request does not have: there the credentials say who submits.
OF_A_CALL = {"connection": "object", "submitted_by": "str | None", "trace": "str | None"}


def main() -> None:
    for name, text in modules().items():
        (SOURCE / name).write_text(text, encoding="utf-8")


def modules() -> dict[str, str]:
    return {"wire/job_options.py": wire(), "client/job_options.py": keywords(), "client/calls.py": calls()}


def wire() -> str:
    head = f'''\
        """The options of a job as requests and answers spell them.

        {MADE}
        """

        from __future__ import annotations

        from collections.abc import Sequence
        from typing import Annotated
        from uuid import UUID

        import msgspec
        from msgspec import Meta

        from sexton.domain.job import TAG_LIMIT, Delivery, Priority
        from sexton.domain.schedule.catch_up import Policy as CatchUpPolicy
        from sexton.domain.schedule.overlap import Policy as OverlapPolicy

        from .handlers import TargetHandler
        from .kinds import Answer, Instant, JobStatus, Moment, Span, Word
        from .retrying import RetryPolicy
        from .schedules import CatchUpRule, OverlapRule, Schedule
        from .sharing import LimitRule
        from .unique import UniqueRule


        class JobOptions(Schedule, frozen=True, kw_only=True):
            """What a request may set for a job, beside its handler and its payload."""

        '''
    requested = [one for one in OPTIONS if one.kind not in ("handler", "payload") and not one.in_schedule]
    answer = '''

        class ShownOptions(Answer, frozen=True, kw_only=True):
            """What an answer about a job begins with: which job it is, and its options."""

            id: UUID
            status: JobStatus
            version: int
        '''
    shown = [one for one in OPTIONS if one.has_own_field]
    return "".join(
        [
            dedent(head),
            _lines(f"{one.name}: {_requested(one)} | None = None" for one in requested),
            dedent(answer),
            _lines(map(_shown, shown)),
        ]
    )


def keywords() -> str:
    head = f'''\
        """The options of a job as keywords of the SDK.

        {MADE}
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

        '''
    of_one = '''

        class TaskOptions(CommonOptions, total=False):
            """For all jobs of a task; each job may override them."""

        '''
    of_one_time = '''

        class OwnOptions(TaskOptions, total=False):
            """For one job alone."""

        '''
    of_rules = '''

        class RuleOptions(TypedDict, total=False):
            """When a recurring job fires, besides the rule itself, and its policies: docs/schedules.md."""

        '''
    options = [one for one in OPTIONS if one.kind not in ("handler", "payload") and one.name not in RULES]
    once = [one for one in options if one.jobs != "recurring"]
    return "".join(
        [
            dedent(head),
            _lines(_keyword(one) for one in once if one.by_task and one.jobs == "any"),
            dedent(of_one),
            _lines(_keyword(one) for one in once if one.by_task and one.jobs != "any"),
            dedent(of_one_time),
            _lines(_keyword(one) for one in once if not one.by_task),
            dedent(of_rules),
            _lines(_keyword(one) for one in options if one.jobs == "recurring"),
        ]
    )


def calls() -> str:
    head = f'''\
        """The type of `task.submit`, `task.submit_sync` and `task.request`.

        Arguments and options share one keyword space, which a `ParamSpec` cannot express. So type checkers check a call with
        only arguments against the function's signature, but not a call with an option. `task.options(…)` allows both.
        {MADE}
        """

        from __future__ import annotations

        from collections.abc import Mapping, Sequence
        from datetime import datetime
        from typing import Any, ParamSpec, Protocol, TypeVar, overload

        from sexton.domain.duration import Duration
        from sexton.domain.job import Delivery, Priority, Unique
        from sexton.domain.limit import Limit
        from sexton.domain.retry import Retry

        P = ParamSpec("P")
        Answer = TypeVar("Answer", covariant=True)


        class Call(Protocol[P, Answer]):
            @overload
            def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Answer: ...
        '''
    once = [one for one in OPTIONS if one.kind not in ("handler", "payload") and one.jobs != "recurring"]
    named = {one.in_sdk: f"{KEYWORD[one.kind]} | None" for one in once} | OF_A_CALL
    return dedent(head) + _lines(_OVERLOAD.format(name, kind) for name, kind in named.items())


def page() -> list[str]:
    """The reference page of all options."""
    lines = [
        "The caller sets an option in the request, the SDK, on the command line or in SQL; most can be edited later. If the",
        "caller leaves it out, it comes from the task's decorator, if that can set it, then the queue, then the default.\n",
        "| option | SDK | jobs | kind | default | task may set it | shown as | edit | command line | SQL argument |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cells(one))} |" for one in OPTIONS]
    lines += ["", "## Meanings", "| option | means |", "|---|---|"]
    lines += [f"| `{one.name}` | {one.means} |" for one in OPTIONS]
    reasons: dict[str, list[str]] = {}
    for one in OPTIONS:
        for edge, why in (
            ("not shown", one.unseen),
            ("fixed", one.fixed),
            ("no flag", one.no_flag),
            ("of it not in SQL", one.sql_lacks),
        ):
            if why is not None:
                reasons.setdefault(f"{edge} | {why}", []).append(f"`{one.name}`")
    lines += ["", "## What an edge leaves out", "| | because | options |", "|---|---|---|"]
    return lines + [f"| {why} | {', '.join(names)} |" for why, names in sorted(reasons.items())]


def _cells(one: Option) -> list[str]:
    return [
        f"`{one.name}`",
        "first argument" if one.kind == "handler" else "arguments" if one.kind == "payload" else f"`{one.in_sdk}`",
        one.jobs,
        _WORDS.get(one.kind, one.kind),
        one.default,
        "yes" if one.by_task else "",
        "" if one.field is None else f"`{one.field}`",
        "fixed" if one.fixed else "yes",
        "" if one.option is None else f"`{one.option}`",
        ", ".join(f"`{argument}`" for argument in one.arguments),
    ]


def _requested(one: Option) -> str:
    if one.kind == "count":
        return f"Annotated[int, Meta(ge={one.bounds[0]}, le={one.bounds[1]:_})]"
    return REQUEST[one.kind]


def _shown(one: Option) -> str:
    if one.kind == "tags":
        return f"{one.field}: Sequence[str] = ()"
    return f"{one.field}: {ANSWER[one.kind]}{'' if one.always else ' | None = None'}"


def _keyword(one: Option) -> str:
    kind = "datetime | str" if one.kind == "instant" and one.jobs == "recurring" else KEYWORD[one.kind]
    return f"{one.in_sdk}: {kind} | None"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


if __name__ == "__main__":
    main()
