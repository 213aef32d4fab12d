"""How one execution ended: exactly one of these, whatever the handler returned, raised or failed to do."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import msgspec

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 8_000


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as history keeps it. `kinds` are its class and its bases, for the rules of a retry policy."""

    type: str
    message: str
    traceback: str | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        lines = "".join(traceback.format_exception(error))
        return cls(
            type=_name(type(error)),
            message=storable(_words(error))[:MESSAGE_LIMIT],
            traceback=storable(lines)[-TRACEBACK_LIMIT:],
            kinds=tuple(_name(kind) for kind in type(error).__mro__ if kind not in (object, BaseException)),
        )

    @classmethod
    def from_json(cls, text: str | None) -> ErrorInfo | None:
        return None if text is None else msgspec.json.decode(text, type=cls)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as mishap:  # the handler's own code: nothing it does may break its report
        return f"(its message cannot be read: {type(mishap).__name__})"


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def storable(text: str) -> str:
    """PostgreSQL can keep neither NUL characters nor lone surrogates."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    error: ErrorInfo
    permanent: bool = False
    retry_after_s: float | None = None  # the downstream's word: a lower bound for the delay


@dataclass(frozen=True, slots=True)
class TimedOut:
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str = "cancelled on request"


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay_s: float


@dataclass(frozen=True, slots=True)
class Released:
    """Handed back unfinished by a worker that drains, or found leased to a worker that never heard of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Its worker died, or hung beyond the run's end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Missed:
    """It never started: its latest start or its deadline went by."""

    reason: str


Outcome = Succeeded | Failed | TimedOut | Cancelled | Snoozed | Released | Lost | Missed
