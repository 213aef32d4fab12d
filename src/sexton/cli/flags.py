"""Flags that follow from a description: they stand in the signature that typer reads, in the place of a command's `**given`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from typer.models import ArgumentInfo

F = TypeVar("F", bound=Callable[..., None])


def with_flags(command: F, flags: Mapping[str, Any]) -> F:
    """`flags` has the annotation of each flag by its name; `**given` gets their values. A flag that is not named is none."""
    kinds = get_type_hints(command, include_extras=True)
    own = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kinds[one.name])
        for one in inspect.signature(command).parameters.values()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    put = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in flags.items()
    ]
    first = [one for one in own if _is_first(one)]
    parameters = [*first, *put, *(one for one in own if one not in first)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def is_given(value: Any) -> bool:
    """Whether a flag was named on the command line."""
    return value is not None and value is not False and value != []


def _is_first(parameter: inspect.Parameter) -> bool:
    """An argument comes before the flags, and so does the payload."""
    told = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return parameter.name == "payload" or any(isinstance(one, ArgumentInfo) for one in told)
