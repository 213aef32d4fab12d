"""`sexton migrate`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sexton.cli.composition import open_database, read_settings
from sexton.cli.exit_codes import NotUnderstood
from sexton.cli.printing import print_json, say
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster


def migrate(
    show: Annotated[bool, typer.Option("--print", help="Print the SQL that would run, and run nothing.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be done, what it locks and what cannot be undone, and do nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document: the plan, or what was applied.")] = False,
) -> None:
    """Bring the database's schema up to date. Safe from many machines at once, and while services run.

    Behind a pooler, SEXTON_DIRECT_URL is used if it is set: some steps need a direct connection.

    Example: sexton migrate --plan
    """
    if show and (plan or as_json):
        raise NotUnderstood("--print prints SQL; give it without --plan and --json")
    asyncio.run(_migrate(_direct(read_settings()), show=show, plan=plan, as_json=as_json))


def _direct(settings: Settings) -> Settings:
    if settings.direct_url is None:
        return settings
    return settings.model_copy(update={"database_url": settings.direct_url})


async def _migrate(settings: Settings, *, show: bool, plan: bool, as_json: bool) -> None:
    database = await open_database(settings, size=1)
    try:
        if show:
            typer.echo(await migrations.script(database) or "-- nothing to do")
        elif plan:
            await _tell_plan(database, as_json=as_json)
        else:
            await _apply(database, as_json=as_json)
    finally:
        await database.close()


async def _tell_plan(database: Postgres, *, as_json: bool) -> None:
    planned = migrations.describe(await migrations.outstanding(database), migrations.PACE)
    if as_json:
        print_json(planned)
    else:
        typer.echo(migrations.as_text(planned, migrations.PACE))


async def _apply(database: Postgres, *, as_json: bool) -> None:
    with telling() as tell:
        applied = await migrations.migrate(database, tell=tell)
    await cluster.require_home(database)
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo("\n".join(f"applied {title}" for title in migrations.summary(applied)) or "the schema is current")


@contextmanager
def telling() -> Iterator[migrations.Tell]:
    """A bar per long step on a terminal, a line per report in a pipe: both on standard error."""
    if not sys.stderr.isatty():
        yield lambda report: say(report.line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def tell(report: migrations.Report) -> None:
            if not isinstance(report, migrations.Progressed):
                bars.console.print(report.line, markup=False, highlight=False)
                return
            if report.step not in tasks:
                tasks[report.step] = bars.add_task(report.step, total=report.total)
            bars.update(tasks[report.step], completed=report.done)

        yield tell
