"""Checks the arguments of a task's function when a job is submitted, not when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sexton.domain.batch import RunArguments
from sexton.errors import InvalidSubmission

from .error_translation import pointer

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function after its context. A payload has names, so every argument needs one."""

    owner: str
    names: tuple[str, ...]
    positional: tuple[str, ...]
    known: frozenset[str]
    required: frozenset[str]
    takes_others: bool  # it has **kwargs

    @classmethod
    def of(cls, fn: Callable[..., Any], *, reserved: Collection[str]) -> Parameters:
        owner = getattr(fn, "__qualname__", repr(fn))
        parameters = list(inspect.signature(fn).parameters.values())
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise TypeError(f"{owner}: the first parameter of a task must be its context, as in def {owner}(ctx: Context, …)")
        for parameter in parameters[1:]:
            _refuse(owner, parameter, reserved)
        named = [parameter for parameter in parameters[1:] if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        return cls(
            owner,
            names=tuple(parameter.name for parameter in named),
            positional=tuple(parameter.name for parameter in named if parameter.kind in _POSITIONAL),
            known=frozenset(parameter.name for parameter in named),
            required=frozenset(parameter.name for parameter in named if parameter.default is inspect.Parameter.empty),
            takes_others=len(named) < len(parameters) - 1,
        )

    @classmethod
    def of_runs(cls, fn: Callable[..., Any], arguments: RunArguments, *, reserved: Collection[str]) -> Parameters:
        """Of a batch task: the fields of the type that `runs: list[Run[Args]]` names; any keywords without one."""
        owner = getattr(fn, "__qualname__", repr(fn))
        if arguments.type is None:
            return cls(owner, (), (), frozenset(), frozenset(), takes_others=True)
        for field in arguments.fields:
            _refuse_name(owner, field.name, reserved)
        return cls(
            owner,
            names=tuple(field.name for field in arguments.fields),
            positional=(),
            known=frozenset(field.name for field in arguments.fields),
            required=frozenset(field.name for field in arguments.fields if field.required),
            takes_others=False,
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name. Defaults are left out: the function applies them when it runs."""
        if len(args) > len(self.positional):
            raise InvalidSubmission(
                "/payload",
                f"{self.owner} takes {len(self.positional)} positional arguments after its context, but {len(args)} were given",
            )
        bound = dict(zip(self.positional, args, strict=False))
        if kwargs:
            for name in bound.keys() & kwargs.keys():
                raise InvalidSubmission(pointer("payload", name), "is given twice, by position and by name")
            bound.update(kwargs)
        if bound.keys() == self.known:  # as in most bulk submissions
            return bound
        if not self.takes_others:
            for name in bound.keys() - self.known:
                takes = ", ".join(self.names) or "no arguments"
                raise InvalidSubmission(pointer("payload", name), f"{self.owner} has no such argument; it takes {takes}")
        for name in self.required - bound.keys():
            raise InvalidSubmission(pointer("payload", name), f"{self.owner} needs this argument")
        return bound


def _refuse(owner: str, parameter: inspect.Parameter, reserved: Collection[str]) -> None:
    if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
        raise TypeError(f"{owner}: {parameter} has no name that a payload could use; make it an ordinary parameter")
    _refuse_name(owner, parameter.name, reserved)


def _refuse_name(owner: str, name: str, reserved: Collection[str]) -> None:
    if name in reserved:
        raise TypeError(
            f"{owner}: the parameter {name!r} has the name of a submission option, so submit() cannot tell "
            "them apart; rename the parameter"
        )
