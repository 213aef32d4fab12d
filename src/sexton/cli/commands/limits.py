"""`sexton limits …`: limits by key, and who holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_fields, print_json, print_table, up_to

from .set_options import said

if TYPE_CHECKING:
    from sexton.wire import LimitView

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List, show, set and remove limits by key. Without a command: list.",
)

Key = Annotated[str, typer.Argument(help="The key, as it comes out of a template.")]


@app.callback(invoke_without_command=True)
def limits(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
    """List, show, set and remove limits by key. Without a command: list."""
    if context.invoked_subcommand is None:
        list_(None, 50, url, as_json)


@app.command("list")
def list_(
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List limits by key, with how many runs hold them and wait for them. Counts stop at 1,000.

    Example: sexton limits list --prefix stripe:
    """

    async def found(client: Any) -> list[LimitView]:
        return [one async for one in client.limits(prefix, limit=limit)]

    limits = with_client(url, found)
    if as_json:
        print_json(limits)
        return
    rows = ((one.key, _numbers(one), up_to(one.held_count, 1_000), up_to(one.parked_count, 1_000)) for one in limits)
    print_table(("key", "limit", "held", "parked"), rows, none="no limits")


@app.command()
def show(key: Key, url: Url = None, as_json: AsJson = False) -> None:
    """Show a limit, the runs that hold it, and how many wait.

    Example: sexton limits show stripe
    """
    _print(with_client(url, lambda client: client.limit(key)), as_json)


@app.command("set")
def set_(
    key: Key,
    running: Annotated[int | None, typer.Option(help="Runs at once.")] = None,
    count: Annotated[int | None, typer.Option(help="Starts per --per.")] = None,
    per: Annotated[str | None, typer.Option(help="The span that --count is of: 1s.")] = None,
    burst: Annotated[int | None, typer.Option(help="Starts that may come at once after a rest.")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="One at a time, by due time.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a limit, or replace its numbers, for all jobs that name it.

    Example: sexton limits set stripe --running 5 --count 10 --per 1s
    """
    numbers = said(running=running, count=count, per=per, burst=burst, ordered=ordered or None)
    _print(with_client(url, lambda client: client.set_limit(key, **numbers)), as_json)


@app.command()
def remove(key: Key, url: Url = None, as_json: AsJson = False) -> None:
    """Remove a limit. Refused while runs wait for it.

    Example: sexton limits remove stripe
    """
    found = with_client(url, lambda client: client.remove_limit(key))
    print_json(found) if as_json else typer.echo(f"{key} removed")


def _numbers(limit: LimitView) -> str:
    parts = [
        f"{limit.running:,} at once" if limit.running else "",
        f"{limit.count:,} per {limit.per_s:g} s" if limit.count else "",
        "in order" if limit.ordered else "",
    ]
    return ", ".join(filter(None, parts))


def _print(limit: LimitView, as_json: bool) -> None:
    if as_json:
        print_json(limit)
        return
    print_fields(
        [
            ("key", limit.key),
            ("limit", _numbers(limit)),
            ("burst", limit.burst),
            ("held", up_to(limit.held_count)),
            ("parked", up_to(limit.parked_count)),
            ("starts left now", limit.tokens),
            ("set by", limit.made_by),
            ("set at", limit.updated_at),
        ]
    )
    if limit.holders:
        rows = ((one.run_id, one.handler, one.tenant, one.worker, one.since) for one in limit.holders)
        print_table(("run", "handler", "tenant", "worker", "since"), rows, none="")
