"""Checks that a payload matches the arguments of its function. It runs before every start, so it must be cheap."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sexton.errors import ArgumentsMismatch


class ArgumentCheck:
    """The arguments of a function after its context."""

    __slots__ = ("_known", "_name", "_required")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._name = getattr(fn, "__name__", repr(fn))
        named = list(inspect.signature(fn).parameters.values())[1:]
        takes_others = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in named)
        named = [parameter for parameter in named if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        self._known = None if takes_others else {parameter.name: None for parameter in named}  # in their order
        self._required = {parameter.name for parameter in named if parameter.default is inspect.Parameter.empty}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """`ArgumentsMismatch` says what is missing or unknown. It is not a permanent error: in a rolling deploy the next worker
        may know the new argument."""
        if self._known is not None and not arguments.keys() <= self._known.keys():
            unknown = next(name for name in arguments if name not in self._known)
            takes = ", ".join(self._known) or "none"
            raise ArgumentsMismatch(f"{self._name} has no argument {unknown!r}; it takes {takes}")
        if not self._required <= arguments.keys():
            missing = ", ".join(sorted(self._required - arguments.keys()))
            raise ArgumentsMismatch(f"{self._name} needs the argument {missing}")
