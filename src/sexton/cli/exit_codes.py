"""How the command line reports an error: one line that says what to do, and an exit code that scripts can check."""

from __future__ import annotations

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


def plain(error: Exception) -> str:
    if isinstance(error, errors.SextonError):
        faults = getattr(error.problem, "errors", ())
        return str(error) if len(faults) < 2 else "; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults)
    return f"{type(error).__name__}: {error} (unexpected error; add --debug to see the traceback)"


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
    return errors.InvalidSetting("; ".join(f"{_variable(fault['loc'])}{fault['msg']}" for fault in faults))


def _variable(location: tuple[int | str, ...]) -> str:
    return f"SEXTON_{'_'.join(map(str, location)).upper()}: " if location else ""
