"""The composition root: settings are read, parts are put together and run, here and nowhere else."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from sexton.errors import SextonError

from . import migrate, services

app = typer.Typer(name="sexton", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.command("migrate")(migrate.migrate)
app.command("worker")(services.worker)
app.command("scheduler")(services.scheduler)

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@app.callback()
def options(debug: Debug = False) -> None:
    """Sexton rings jobs on time and keeps the dead letters."""


def main() -> None:
    """Exit codes: 0 done, 1 it failed, 2 the command was not understood."""
    try:
        app(standalone_mode=True)
    except (SextonError, ValidationError) as error:
        if "--debug" in sys.argv:
            raise
        typer.secho(f"sexton: {_plain(error)}", fg="red", err=True)
        raise SystemExit(1) from None


def _plain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{_variable(fault['loc'])}{fault['msg']}" for fault in error.errors())
    return str(error)


def _variable(location: tuple[int | str, ...]) -> str:
    return f"SEXTON_{'_'.join(map(str, location)).upper()}: " if location else ""
