"""Batches: one call of a handler for several runs of its task. How they are formed, and how a failed call is divided."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from .duration import Duration, seconds
from .fault import Invalid
from .run import Claimed

SIZE_LIMIT = 1_000
CALLS_LIMIT = 100
WAIT_S_MAX = 1.0
TENANT, LIMIT = "tenant", "limit"

_text_of = msgspec.json.Encoder(order="deterministic").encode
_NO_ARGUMENTS: Mapping[str, Any] = {}


class Batch:
    """`@app.task(batch=Batch(size=500))`: the function takes `(ctx, runs)`, and one call executes up to `size` runs.

    A call starts when it is full, or when its oldest run has waited for `wait`. `by` keeps apart runs that differ in it:
    "tenant", "limit" (the key of their limit), the name of an argument, or several of these. A worker executes `calls` calls
    at once.
    """

    __slots__ = ("by", "calls", "size", "wait_s")

    def __init__(self, size: int, *, wait: Duration = "20ms", by: str | Sequence[str] = (), calls: int = 1) -> None:
        given: tuple[tuple[str, Any, int], ...] = (("size", size, SIZE_LIMIT), ("calls", calls, CALLS_LIMIT))
        for name, value, most in given:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise Invalid(f"batch.{name}", f"{value!r} must be a number between 1 and {most:,}")
        self.size, self.calls = size, calls
        self.wait_s = seconds(wait, field="batch.wait")
        if self.wait_s > WAIT_S_MAX:
            raise Invalid(
                "batch.wait", f"{wait!r} is too long: a worker holds the runs meanwhile; the limit is {WAIT_S_MAX:g} s"
            )
        parts: tuple[Any, ...] = (by,) if isinstance(by, str) else tuple(by)
        self.by: tuple[str, ...] = parts
        if not all(isinstance(part, str) and part for part in parts):
            raise Invalid("batch.by", f"{by!r}: give tenant, limit or the name of an argument, or several of these")

    def __repr__(self) -> str:
        return f"Batch(size={self.size}, wait={self.wait_s:g}, by={self.by}, calls={self.calls})"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that it groups by."""
        return tuple(part for part in self.by if part not in (TENANT, LIMIT))


class Member(Claimed, frozen=True):
    """A run that was claimed for a batch, with what decides which call it is in."""

    batch_limit: int | None = None  # its calls have failed, so it is in a call of at most so many runs
    limit_key: str | None = None


def key_of(batch: Batch, member: Member) -> Hashable:
    """Runs with one key may share a call. The time limits are those of the call. An at-most-once run is always alone: if its
    call fails, it could not be tried again."""
    lease = member.lease
    if lease.at_most_once:
        return lease.run_id
    policy = lease.policy
    given = _arguments(member) if batch.arguments else _NO_ARGUMENTS
    values = values_of(batch, member.tenant, member.limit_key, given)
    return (member.batch_limit, member.timeout_s, policy.progress_within_s, policy.grace_s, *values)


def values_of(batch: Batch, tenant: str, limit_key: str | None, arguments: Mapping[str, Any]) -> tuple[Hashable, ...]:
    """What a run has of the parts that `by` names."""
    known = {TENANT: tenant, LIMIT: limit_key}
    return tuple(
        known[part] if part in known else _text_of(arguments[part]) if part in arguments else None for part in batch.by
    )


def room_of(batch: Batch, member: Member) -> int:
    """How many runs a call with this one may have."""
    if member.lease.at_most_once:
        return 1
    return batch.size if member.batch_limit is None else min(batch.size, member.batch_limit)


def half(count: int) -> int:
    """Rule "a failed call is halved": how many runs may share a call with a run that failed together with others. `count`
    includes the run."""
    return max(1, (count + 1) // 2)


def _arguments(member: Member) -> Mapping[str, Any]:
    given = None if member.payload_json is None else msgspec.json.decode(member.payload_json)
    return given if isinstance(given, dict) else _NO_ARGUMENTS


# The arguments of one run, as the annotation of `runs` names their type.


class Field(NamedTuple):
    name: str
    required: bool


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The type that `runs: list[Run[Args]]` names, and its fields. Without one, a run has the payload as a dict."""

    type: Any = None
    fields: tuple[Field, ...] = ()

    def read(self, payload: dict[str, Any]) -> Any:
        """`msgspec.ValidationError` names the field that does not fit."""
        return payload if self.type is None else msgspec.convert(payload, self.type)


def run_arguments(fn: Callable[..., Any]) -> RunArguments:
    """`TypeError` if the function does not take a context and runs, or its annotation cannot be used."""
    name = getattr(fn, "__qualname__", repr(fn))
    parameters = list(inspect.signature(fn).parameters.values())
    if len(parameters) != 2 or any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        raise TypeError(f"{name}: a batch task takes a context and its runs, as in def {name}(ctx, runs: list[Run[Args]])")
    kind = _args_of(name, fn, parameters[1].annotation)
    if kind is None or kind in (Any, dict) or getattr(kind, "__origin__", None) is dict:
        return RunArguments()
    shape = msgspec.inspect.type_info(kind)
    if not isinstance(shape, msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType):
        raise TypeError(f"{name}: {kind!r} cannot be the arguments of a run; use a msgspec.Struct, a dataclass or a TypedDict")
    return RunArguments(kind, tuple(Field(field.encode_name, field.required) for field in shape.fields))


def _args_of(name: str, fn: Callable[..., Any], annotation: Any) -> Any:
    """Of `list[Run[Args]]`. Only this annotation is evaluated: others may name what is imported for type checkers alone."""
    if annotation is inspect.Parameter.empty:
        return None
    function = inspect.unwrap(fn)
    known = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    holder = SimpleNamespace(__annotations__={"runs": annotation})
    try:
        resolved = get_type_hints(holder, getattr(function, "__globals__", {}), dict(known))["runs"]
    except NameError as error:
        raise TypeError(
            f"{name}: the annotation {annotation!r} cannot be resolved ({error}); define it at the top level of its module"
        ) from None
    (run,) = get_args(resolved) or (None,)
    (kind,) = get_args(run) or (None,)
    return kind
