"""The flags of the `set` commands, one for each setting that the domain describes. Only given settings are changed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_args, get_type_hints

import typer

from sexton.cli.exit_codes import NotUnderstood
from sexton.cli.flags import F, is_given, with_flags
from sexton.domain.duration import Duration
from sexton.domain.retry import Retry

_ZERO_IS_A_VALUE = {"timeout", "weight"}  # no limit; or a mistake, which the API reports
_FLAGS = {"retry": "--max-attempts"}


def takes_settings(options: type, *, keeps: bool) -> Callable[[F], F]:
    """Replaces `**given` with one flag per setting; `options` is a TypedDict with the meaning of each. With `keeps`, a setting
    that is not given keeps its value, and zero removes it."""
    described = get_type_hints(options, include_extras=True)

    def taking(command: F) -> F:
        return with_flags(command, {name: _flag(name, kind, keeps) for name, kind in described.items()})

    return taking


def given_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The settings given on the command line, at least one of them."""
    named = {name: value for name, value in given.items() if is_given(value)}
    if not named:
        raise NotUnderstood(f"give at least one setting: {', '.join(map(_option, given))}")
    return named


async def with_present(read: Awaitable[Any], given: dict[str, Any], options: type) -> dict[str, Any]:
    """The current settings with the given ones."""
    from sexton.errors import NotFound

    try:
        present = await read
    except NotFound:
        before = {}
    else:
        before = {field: _present(present, field) for field in get_type_hints(options)}
    if "retry" in given:
        given = {**given, "retry": _retry(before.get("retry"), given["retry"])}
    return merged(before, given)


def merged(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The current settings with the given ones. Zero removes a setting, except where zero is a value. A new rate resets its
    burst, unless that is given as well, and without a rate there is no burst."""
    after = {**before, **given}
    zero = {field for field, value in after.items() if value in (0, "0")}
    for rate in [field for field in given if field.endswith("_rate")]:
        burst = f"{rate.removesuffix('_rate')}_burst"
        if burst not in given or rate in zero:
            after[burst] = None
    return {field: value if field not in zero else 0 if field in _ZERO_IS_A_VALUE else None for field, value in after.items()}


def _flag(name: str, described: Any, keeps: bool) -> Any:
    kind, means = get_args(described)
    parts = get_args(kind) or (kind,)
    is_span = set(get_args(Duration)) <= set(parts)
    flag: Any = str if is_span else int if Retry in parts else parts[0]
    words = re.sub(r"`(\w+)`", lambda field: _option(field[1]), means) + (" For example 30s." if is_span else "")
    if keeps and name not in _ZERO_IS_A_VALUE and Retry not in parts:
        words = f"{words} 0 removes it."
    return Annotated[flag | None, typer.Option(_option(name), help=words)]


def _option(name: str) -> str:
    return _FLAGS.get(name) or f"--{name.replace('_', '-')}"


def _present(view: Any, field: str) -> Any:
    return getattr(view, field) if hasattr(view, field) else getattr(view, f"{field}_s")


def _retry(present: Any, max_attempts: int) -> Any:
    from msgspec.structs import replace

    from sexton.wire import RetryPolicy

    return replace(present or RetryPolicy(), max_attempts=max_attempts)
