"""`sexton migrate`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from sexton.cli.composition import open_database, read_settings
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.fleet import cluster


def migrate(
    show: Annotated[bool, typer.Option("--print", help="Print the SQL that would run, and run nothing.")] = False,
) -> None:
    """Bring the database's schema up to date. Safe from many machines at once.

    Example: sexton migrate --print
    """
    asyncio.run(_migrate(read_settings(), show=show))


async def _migrate(settings: Settings, *, show: bool) -> None:
    database = await open_database(settings, size=1)
    try:
        if show:
            typer.echo(await migrations.script(database) or "-- nothing to do")
            return
        applied = await migrations.migrate(database)
        await cluster.require_home(database)
    finally:
        await database.close()
    typer.echo("\n".join(f"applied {title}" for title in migrations.summary(applied)) or "the schema is current")
