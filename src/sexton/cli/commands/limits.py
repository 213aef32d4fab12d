"""`sexton limits …`: limits by key, and the runs that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, print_table, up_to
from sexton.domain.limit import LimitOptions

from .named import NamedCommands

if TYPE_CHECKING:
    from sexton.wire import LimitView

KEY = "The key, with the values of its template filled in."


def list_(
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List limits by key, with how many runs hold them and wait for them. Counts stop at 1,000.

    Example: sexton limits list --prefix stripe:
    """

    async def found(client: Any) -> list[LimitView]:
        return [one async for one in client.limits(prefix, limit=limit)]

    limits = with_client(url, found)
    rows = ((one.key, _numbers(one), up_to(one.held_count, 1_000), up_to(one.parked_count, 1_000)) for one in limits)
    print_list(limits, ("key", "limit", "held", "parked"), rows, none="no limits", as_json=as_json)


def _numbers(limit: LimitView) -> str:
    parts = [
        f"{limit.running:,} at once" if limit.running else "",
        f"{limit.count:,} per {limit.per_s:g} s" if limit.count else "",
        "in order" if limit.ordered else "",
    ]
    return ", ".join(filter(None, parts))


def _print(limit: LimitView, as_json: bool) -> None:
    print_one(
        limit,
        [
            ("key", limit.key),
            ("limit", _numbers(limit)),
            ("burst", limit.burst),
            ("held", up_to(limit.held_count)),
            ("parked", up_to(limit.parked_count)),
            ("starts left now", limit.tokens),
            ("set by", limit.made_by),
            ("set at", limit.updated_at),
        ],
        as_json=as_json,
    )
    if limit.holders and not as_json:
        rows = ((one.run_id, one.handler, one.tenant, one.worker, one.since) for one in limit.holders)
        print_table(("run", "handler", "tenant", "worker", "since"), rows, none="")


commands = NamedCommands(
    "limit",
    "List, show, set and remove limits by key. Without a command: list.",
    list_,
    _print,
    argument=KEY,
    metavar="key",
    example="stripe",
)
app = commands.app
commands.show("Show a limit, the runs that hold it, and how many wait.")
commands.set(
    LimitOptions,
    "Create a limit, or replace its numbers, for all jobs that name it.",
    example="--running 5 --count 10 --per 1s",
)
commands.change("remove", "Remove a limit. Rejected while runs wait for it.", done="removed")
