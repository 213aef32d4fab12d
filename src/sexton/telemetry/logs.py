"""Writes events as log lines: one line each, at the level an operator expects. Payloads and results must never appear here."""

from __future__ import annotations

import logging
import re
import sys
from functools import cache
from typing import Any, TextIO

import structlog

from . import events

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_WARNINGS = (
    events.LeaseLost,
    events.ReportHeldUp,
    events.WorkerLost,
    events.DeclaredLost,
    events.Reconciled,
    events.FiresMissed,
    events.Repaired,
    events.SlotsRepaired,
    events.PausedAfterFailures,
    events.ZonesOlder,
    events.DatabaseLost,
    events.DatabaseAwaited,
    events.Contended,
    events.RunsLost,
    events.RowLocked,
    events.TableLocked,
    events.AdvisoryLockTaken,
    events.EmbeddedRestarted,
    events.LoopStalled,
    events.StallHandedBack,
    events.CallDivided,
    events.StallFound,
    events.QuarantineStarted,
    events.QuarantineLost,
    events.LoopInterrupted,
    events.LoopCallRefused,
    events.WorkerDisabled,
    events.ProcessChanged,
    events.ExitForced,
    events.SettingMissing,
    events.EditsOverwritten,
    events.ApiExposed,
)
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


def configure(*, level: str = "INFO", json: bool = False) -> None:
    """For the command line: structured log lines on standard error."""
    if level not in LEVELS:
        raise ValueError(f"level: {level!r} is unknown; use {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(_StandardError(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    _logger.cache_clear()


class _StandardError:
    """A handler that closes `sys.stderr` must not silence the worker. Its descriptor stays open."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if self._stream.closed:
            self._stream = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def write(event: events.Event) -> None:
    """The event subscriber. An event below the log level is not formatted: formatting would cost 11 µs per job."""
    level = _level(event)
    logger = _logger()
    if not logger.is_enabled_for(level):
        return
    name = name_of(type(event))
    if isinstance(event, events.ServiceFailed):
        logger.log(level, name, service=event.service, exc_info=event.error)
    else:
        logger.log(level, name, **_fields(event))


def name_of(kind: type[events.Event]) -> str:
    """What its line begins with."""
    return _WORDS.sub(" ", kind.__name__).lower()


@cache
def _logger() -> Any:
    return structlog.get_logger("sexton").bind()


def _level(event: events.Event) -> int:
    match event:
        case events.Ended(status="succeeded") | events.HandedOver() | events.Claimed() | events.Promoted() | events.Planned():
            return logging.DEBUG
        case events.ServiceFailed():
            return logging.ERROR
        case _:
            return logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO


def _fields(event: events.Event) -> dict[str, Any]:
    values = ((name, getattr(event, name)) for name in event.__struct_fields__)
    return {name: _plain(value) for name, value in values if value is not None}


def _plain(value: object) -> object:
    return (
        value
        if isinstance(value, int | float | bool)
        else ",".join(map(str, value))
        if isinstance(value, tuple)
        else str(value)
    )
