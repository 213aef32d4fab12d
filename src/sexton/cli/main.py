"""The entry point of the command line: the list of commands, and the handling of errors.

The modules of the commands are imported only when they are called, so `--help` and completion import only this file.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from . import bounded_exit
from .exit_codes import NotUnderstood, name_faults_by_options_of, report

_MISTAKE: Any = typer.BadParameter.__base__  # click's UsageError, wherever this version of typer has it
MARKUP = None  # plain help pages: fast, and the same in a pipe

EXIT_CODES = """
Exit codes: 0 done, 1 failed, 2 invalid command or input, 3 cannot reach the API or the database, 4 not found, 5 conflict or
precondition, 7 the awaited job failed, 8 timeout, 130 interrupted.
"""


class Command(NamedTuple):
    module: str
    attribute: str  # a function, or a typer.Typer with subcommands
    about: str


COMMANDS = {
    "dev": Command("dev.command", "dev", "Run everything in one process, for development."),
    "api": Command("commands.services", "api", "Run the HTTP API until SIGTERM."),
    "scheduler": Command("commands.services", "scheduler", "Run a scheduler node until SIGTERM."),
    "worker": Command("commands.services", "worker", "Run a worker for the tasks of an app until SIGTERM."),
    "migrate": Command("commands.migrate", "migrate", "Migrate the database schema to this version."),
    "sync": Command("commands.sync", "sync", "Create and update the schedules that an app's code declares."),
    "submit": Command("commands.submit", "submit", "Submit a job, or a file of jobs."),
    "jobs": Command("commands.jobs", "app", "List, show, watch, edit and cancel jobs."),
    "why": Command("commands.explain", "why", "Explain why a job has or has not run."),
    "cron": Command("commands.cron", "app", "Explain a cron expression: in words, and when it fires."),
    "dead": Command("commands.dead", "app", "List, show, replay and discard dead letters."),
    "workers": Command("commands.fleet", "workers", "List the workers."),
    "nodes": Command("commands.fleet", "nodes", "List the schedulers and their partitions."),
    "queues": Command("commands.queues", "app", "List, set, pause and resume queues."),
    "tenants": Command("commands.tenants", "app", "List, set, pause and resume tenants."),
    "limits": Command("commands.limits", "app", "List, show, set and remove limits by key."),
    "subscriptions": Command("commands.subscriptions", "app", "Manage webhooks about ended runs, their log, and replays."),
    "stats": Command("commands.fleet", "stats", "Show an overview of the cluster."),
    "config": Command("commands.config", "app", "Show every setting and where it comes from."),
    "doctor": Command("doctor.command", "doctor", "Check the database and the cluster for problems."),
    "bench": Command("commands.bench", "bench", "Measure this machine (from a checkout of the repository)."),
}


@contextmanager
def _deadly_interrupt() -> Iterator[None]:
    """A KeyboardInterrupt during an import may be caught by a library's `except`; the signal itself may not."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load(name: str) -> Any:
    """The command, with its options."""
    command = COMMANDS[name]
    with _deadly_interrupt():
        found = getattr(import_module(f"{__package__}.{command.module}"), command.attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
        settings = {"ignore_unknown_options": True, "allow_extra_args": True} if name == "bench" else None
        found.command(name, context_settings=settings)(function)
    return typer.main.get_command(found)


class Commands(TyperGroup):
    """Has the name and the help line of each command; imports only the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: TyperCommand(name, help=command.about) for name, command in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return None, None, rest
        command = load(name)
        name_faults_by_options_of(_called(command, rest))
        return name, command, rest


def _called(command: Any, arguments: list[str]) -> Any:
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    return command


app = typer.Typer(
    name="sexton",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"sexton {version('sexton')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error. Allowed anywhere in the command line.")]


@app.callback(epilog=EXIT_CODES)
def options(debug: Debug = False, version: Version = False) -> None:
    """Sexton runs jobs on time and keeps the dead letters.

    Example: sexton submit demo.echo --payload '{"a": 1}' --wait
    """


def entry_point() -> None:
    """The command in a process of its own: if it is a service, the process ends within a bounded time."""
    bounded_exit.own_process()
    try:
        main()
    except SystemExit as left:
        bounded_exit.leave(left.code)
        raise
    except BaseException:
        if bounded_exit.is_expected():
            traceback.print_exc()
            bounded_exit.leave(1)
        raise


def main() -> NoReturn:
    """Exit codes: `EXIT_CODES`."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    as_json = "--json" in arguments
    try:
        code = app(arguments, prog_name="sexton", standalone_mode=not as_json)  # standalone mode prints usage errors as text
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except _MISTAKE as mistake:
        raise SystemExit(report(NotUnderstood(mistake.format_message()), as_json=as_json)) from None
    except Exception as error:
        if debug:
            raise
        raise SystemExit(report(error, as_json=as_json)) from None
    raise SystemExit(code if isinstance(code, int) else 0)
