"""`sexton sync`: writes the schedules that an app's code declares to the database, without starting a worker."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from sexton.cli.composition import load_registry, open_database, read_settings
from sexton.client.sync import Synced
from sexton.client.sync import sync as bring_in_line
from sexton.registry import Registry
from sexton.store import migrations
from sexton.store.fleet import cluster

_WORDS = {
    "created": "created",
    "updated": "updated",
    "overwritten": "was edited by hand; the changed declaration replaces that",
    "kept": "not changed, because it was edited by hand and its declaration is the same",
    "pruned": "ended, because the code no longer declares it",
    "ended": "not changed, because it has ended; --revive starts it again",
}


def sync(
    app: Annotated[str, typer.Argument(help="Where the app is: module:attribute.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="End schedules that this app declared before and no longer declares.")
    ] = False,
    revive: Annotated[
        bool, typer.Option("--revive", help="Start ended schedules again, also those that a person ended.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The names, by what was done, as JSON.")] = False,
) -> None:
    """Create and update the schedules that an app's code declares. Workers do the same when they start.

    Example: sexton sync shop.tasks:app --prune --dry-run
    """
    registry = load_registry(app)
    done = asyncio.run(_sync(registry, prune=prune, revive=revive, dry_run=dry_run))
    typer.echo(json.dumps(done._asdict()) if as_json else _told(done, dry_run=dry_run))


async def _sync(registry: Registry, *, prune: bool, revive: bool, dry_run: bool) -> Synced:
    database = await open_database(read_settings(), size=1)
    try:
        await migrations.require_current(database)
        await cluster.require_home(database)
        return await bring_in_line(database, registry, registry.owner, prune=prune, revive=revive, dry_run=dry_run)
    finally:
        await database.close()


def _told(done: Synced, *, dry_run: bool) -> str:
    lines = [f"{name}: {words}" for kind, words in _WORDS.items() for name in getattr(done, kind)]
    if done.unchanged:
        lines.append(f"{len(done.unchanged)} unchanged")
    if dry_run:
        lines.append("nothing was changed: this was a dry run")
    return "\n".join(lines) or "the app declares no schedules"
