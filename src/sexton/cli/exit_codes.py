"""How the command line reports an error: one line that says what to do, and an exit code that scripts can check."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

import typer

from sexton import errors

from .printing import is_colourless, safe


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    CONFLICT = 5
    JOB_FAILED = 7
    TIMEOUT = 8
    INTERRUPTED = 130


class NotUnderstood(errors.SextonError):
    """The command line is not valid; the message says how to write it."""

    code = "usage"


_CODES: dict[type[errors.SextonError], Exit] = {
    errors.ApiUnavailable: Exit.UNREACHABLE,
    errors.DatabaseUnavailable: Exit.UNREACHABLE,
    errors.EmbeddedUnavailable: Exit.UNREACHABLE,
    errors.InvalidSubmission: Exit.USAGE,
    errors.InvalidSetting: Exit.USAGE,
    NotUnderstood: Exit.USAGE,
    errors.NotFound: Exit.NOT_FOUND,
    errors.UnknownTask: Exit.NOT_FOUND,
    errors.NotAllowedIn: Exit.CONFLICT,
    errors.AlreadyExists: Exit.CONFLICT,
    errors.KeyReused: Exit.CONFLICT,
    errors.LimitExceeded: Exit.CONFLICT,
    errors.KeyBusy: Exit.CONFLICT,
    errors.Contention: Exit.CONFLICT,
    errors.VersionMismatch: Exit.CONFLICT,
    errors.SchemaMismatch: Exit.CONFLICT,
    errors.ForeignDatabase: Exit.CONFLICT,
    errors.UnsupportedServer: Exit.CONFLICT,
    errors.JobFailed: Exit.JOB_FAILED,
    errors.ResultTimeout: Exit.TIMEOUT,
}


_POINTER = re.compile(r"[/?](\w+)")
_options: dict[str, str] = {}  # of the command that runs, by the names of its parameters
_OF_SETTINGS = {  # pydantic's kinds of errors; only of numbers and booleans, because other values may be secret
    "int_parsing": "{given!r} is not a whole number",
    "int_from_float": "{given!r} is not a whole number",
    "int_type": "{given!r} is not a whole number",
    "float_parsing": "{given!r} is not a number",
    "float_type": "{given!r} is not a number",
    "bool_parsing": "{given!r} is neither true nor false",
    "bool_type": "{given!r} is neither true nor false",
    "greater_than": "{given} must be greater than {gt:g}",
    "greater_than_equal": "{given} must be {ge:g} or more",
    "less_than": "{given} must be less than {lt:g}",
    "less_than_equal": "{given} must be {le:g} or less",
}


def exit_code(error: Exception) -> Exit:
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.FAILED)


def report(error: Exception, *, as_json: bool) -> Exit:
    """Prints the error to stderr; with `--json` in the format of the API."""
    error = _ours(error)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(_problem(error)).decode(), err=True)
    else:
        typer.secho(safe(f"sexton: {plain(error)}"), fg=None if is_colourless() else "red", err=True)
    return exit_code(error)


def name_faults_by_options_of(command: Any) -> None:
    """The user of a command knows its options, not the fields of the API. Most parameters have the name of their field."""
    _options.clear()
    for one in command.params:
        if flag := next((flag for flag in one.opts if flag.startswith("--")), None):
            _options[one.name] = flag


def plain(error: Exception) -> str:
    if isinstance(error, errors.SextonError):
        faults = getattr(error.problem, "errors", ())
        if len(faults) > 1:
            return "; ".join(f"{_named(fault.pointer)}{fault.detail}" for fault in faults)
        return f"{_named(error.field)}{error.message}" if isinstance(error, errors.InvalidSubmission) else str(error)
    return f"{type(error).__name__}: {error} (unexpected error; add --debug to see the traceback)"


def _named(field: str) -> str:
    """The option, if the field is a pointer to what one of the command's options gave."""
    pointed = _POINTER.match(field)
    name = field if pointed is None else _options.get(pointed[1], field)
    return f"{name}: " if name else ""


def _problem(error: Exception) -> Any:
    from sexton.wire import Problem

    return getattr(error, "problem", None) or Problem(
        type="about:blank",
        title=type(error).__name__,
        status=getattr(error, "status_code", 0),
        detail=plain(error),
        code=getattr(error, "code", "error"),
    )


def _ours(error: Exception) -> Exception:
    """Turns a validation error of settings into `InvalidSetting`. It checks the class name: importing pydantic costs 300 ms."""
    if type(error).__name__ != "ValidationError" or not type(error).__module__.startswith("pydantic"):
        return error
    faults = error.errors()  # type: ignore[attr-defined]
    return errors.InvalidSetting("; ".join(f"{_variable(fault['loc'])}{_in_words(fault)}" for fault in faults))


def _variable(location: tuple[int | str, ...]) -> str:
    return f"SEXTON_{str(location[0]).upper()}: " if location else ""


def _in_words(fault: Any) -> str:
    words = _OF_SETTINGS.get(fault["type"])
    if words is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    return words.format(given=fault["input"], **fault.get("ctx", {}))
