"""The flags of `sexton submit` and `sexton jobs edit`, and what `sexton jobs show` prints of the options: all from
`sexton.domain.job_options`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.domain.job_options import BY_NAME, OPTIONS, Option
from sexton.errors import InvalidSubmission

from .flags import F, is_given, with_flags
from .inputs import instant
from .printing import as_json_text

if TYPE_CHECKING:
    from sexton.wire import Job

_TYPES: Mapping[str, Any] = {
    "count": int | None,
    "exclude": list[str] | None,
    "retry": int | None,
    "tags": list[str] | None,
    "unique": bool | None,
}
_ALIASES = {"timezone": "--tz"}
_OF_THE_COMMAND = ("handler", "payload")  # each command has its own help text for them


def takes_job_options(*, edits: bool = False) -> Callable[[F], F]:
    """Replaces `**given` with one flag per option; the function gets them by the names of the options. With `edits`, only those
    that can be edited."""

    def taking(command: F) -> F:
        flags = {
            one.name: _annotation(one, one.option)
            for one in OPTIONS
            if one.option is not None and one.name not in _OF_THE_COMMAND and not (edits and one.fixed)
        }
        return with_flags(command, flags)

    return taking


def given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options given on the command line, in the form of the SDK, by their names."""
    return {name: _value(BY_NAME[name], value) for name, value in given.items() if is_given(value)}


def of_jobs(given: Mapping[str, Any], jobs: str) -> dict[str, Any]:
    """Those that only such jobs may have."""
    return {name: value for name, value in given.items() if BY_NAME[name].jobs == jobs}


def in_sdk(given: Mapping[str, Any]) -> dict[str, Any]:
    return {BY_NAME[name].in_sdk: value for name, value in given.items()}


def options_of(job: Job) -> Iterator[tuple[str, Any]]:
    """Every option that the answer shows, one fact each; null where the job has none."""
    for option in OPTIONS:
        if option.has_own_field:
            yield option.name.replace("_", " "), _shown(option, getattr(job, str(option.field)))
        elif option.in_schedule:
            yield option.name.replace("_", " "), _shown(option, getattr(job.schedule, option.name, None))


def _annotation(option: Option, flag: str | None) -> Any:
    words = (option.flag_means or option.means).replace("`", "")
    flags = [one for one in (flag, _ALIASES.get(option.name)) if one is not None]
    example = "" if option.example is None else f" For example {option.example}."
    return Annotated[_TYPES.get(option.kind, str | None), typer.Option(*flags, help=words + example)]


def _value(option: Option, value: Any) -> Any:
    match option.kind:
        case "instant":
            return instant(value, str(option.option))
        case "retry":
            return _retry(value)
        case _:
            return value


def _retry(max_attempts: int) -> Any:
    from sexton.domain.fault import Invalid
    from sexton.domain.retry import Retry

    try:
        return Retry(max_attempts=max_attempts)
    except Invalid as fault:
        raise InvalidSubmission("--max-attempts", fault.message) from None


def _shown(option: Option, value: Any) -> Any:
    match option.kind, value:
        case _, None:
            return None
        case "handler", _:
            from sexton.wire import words_of

            return words_of(value)
        case "payload", _:
            return bytes(value)
        case "span", int() | float():
            return f"{value:g} s"
        case _, str() | int() | datetime():
            return value
        case (("tags" | "exclude"), _):
            return [one if isinstance(one, str) else as_json_text(one) for one in value]
        case _:
            return as_json_text(value)
