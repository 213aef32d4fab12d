"""How one execution ended: every execution ends with exactly one of these outcomes."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import msgspec

from .states import Status

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 8_000


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as the history stores it. `kinds` are its class and its bases, for the rules of a retry policy."""

    type: str
    message: str
    traceback: str | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        return cls(
            type=_name(type(error)),
            message=storable(_message(error))[:MESSAGE_LIMIT],
            traceback=storable(_traceback(error))[-TRACEBACK_LIMIT:],
            kinds=tuple(_name(kind) for kind in type(error).__mro__ if kind not in (object, BaseException)),
        )

    @classmethod
    def from_json(cls, text: str | None) -> ErrorInfo | None:
        return None if text is None else msgspec.json.decode(text, type=cls)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # `__str__` is the handler's code: an error in it must not break the report
        return f"(its message cannot be read: {type(broken).__name__})"


def _traceback(error: BaseException) -> str:
    """A SyntaxError with details of its own, or a class with notes of its own, can break the formatting too."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as broken:
        frames = "".join(traceback.format_tb(vars(BaseException)["__traceback__"].__get__(error)))
        return f"{frames}{_name(type(error))} (it cannot be formatted: {type(broken).__name__})\n"


def shown(error: BaseException) -> str:
    """As `repr` shows it, if that works: `__repr__` is the handler's code too."""
    try:
        return repr(error)
    except BaseException:
        return type(error).__qualname__


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def storable(text: str) -> str:
    """PostgreSQL stores neither NUL characters nor lone surrogates."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode("utf-8")


class Succeeded(msgspec.Struct, frozen=True):
    result: Any = None
    reason: str | None = None


class Failed(msgspec.Struct, frozen=True):
    error: ErrorInfo
    permanent: bool = False
    retry_after_s: float | None = None  # as the called service asked: a lower bound for the delay


class TimedOut(msgspec.Struct, frozen=True):
    reason: str


class Cancelled(msgspec.Struct, frozen=True):
    reason: str = "cancelled on request"


class Snoozed(msgspec.Struct, frozen=True):
    delay_s: float
    reason: str | None = None


class Released(msgspec.Struct, frozen=True):
    """Returned unfinished by a draining worker, or leased to a worker that never received it."""

    reason: str
    batch_limit: int | None = None  # its call failed together with others: the most runs of its next call
    has_started: bool = True  # false only if it is certain: an at-most-once run may start then


class Lost(msgspec.Struct, frozen=True):
    """Its worker died, or did not end the run in time. The loss is charged to the run only if it is its own: the worker held no
    other run, or named this one as the cause."""

    reason: str
    held: int = 1  # runs that the worker held, this one included; 1 also if the worker named this run
    with_parent: bool = False  # the worker was in quarantine, and the worker that had started it was lost as well


class Missed(msgspec.Struct, frozen=True):
    """It never started: its latest start or its deadline passed."""

    reason: str


Outcome = Succeeded | Failed | TimedOut | Cancelled | Snoozed | Released | Lost | Missed


_STATUSES: Mapping[type, Status] = {
    Succeeded: Status.SUCCEEDED,
    Failed: Status.FAILED,
    TimedOut: Status.TIMED_OUT,
    Cancelled: Status.CANCELLED,
    Snoozed: Status.SNOOZED,
    Released: Status.RELEASED,
    Lost: Status.LOST,
    Missed: Status.MISSED,
}


def status_of(outcome: Outcome) -> Status:
    """Of the execution that ends so."""
    return _STATUSES[type(outcome)]
