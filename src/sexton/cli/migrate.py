"""`sexton migrate`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from sexton.settings import Settings
from sexton.store import cluster
from sexton.store import migrate as migrations
from sexton.store.database import Postgres

from .composition import database_url


def migrate(
    show: Annotated[bool, typer.Option("--print", help="Print the SQL that would run, and run nothing.")] = False,
) -> None:
    """Bring the database's schema up to date. Safe from many machines at once."""
    asyncio.run(_migrate(database_url(Settings()), show=show))


async def _migrate(url: str, *, show: bool) -> None:
    database = await Postgres.open(url, size=1)
    try:
        if show:
            typer.echo(await migrations.script(database) or "-- nothing to do")
            return
        applied = await migrations.migrate(database)
        await cluster.require_home(database)
    finally:
        await database.close()
    typer.echo("\n".join(f"applied {title}" for title in applied) or "the schema is current")
