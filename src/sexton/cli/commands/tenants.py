"""`sexton tenants …`: shares, limits and pauses of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_fields, print_json, print_table, up_to

from .set_options import merged, said

if TYPE_CHECKING:
    from sexton.wire import TenantView

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List, set, pause and resume tenants. Without a command: list.",
)

Name = Annotated[str, typer.Argument(help="The tenant.")]


@app.callback(invoke_without_command=True)
def tenants(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
    """List, set, pause and resume tenants. Without a command: list."""
    if context.invoked_subcommand is None:
        list_(url, as_json)


@app.command("list")
def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that have live work or for which something was set. Counts stop at 10,000.

    Example: sexton tenants list
    """
    found = with_client(url, lambda client: client.tenants())
    if as_json:
        print_json(found)
        return
    rows = (
        (
            t.name,
            up_to(t.ready_count),
            up_to(t.running_count),
            up_to(t.waiting_count),
            up_to(t.parked_count),
            t.weight,
            _limits(t) or None,
            None if t.status == "active" else t.status,
        )
        for t in found
    )
    columns = ("tenant", "ready", "running", "waiting", "parked", "weight", "limits", "status")
    print_table(columns, rows, none="no tenant has live work, and nothing is set for any")


@app.command()
def show(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Show what is set for a tenant, and how much it has going on.

    Example: sexton tenants show acme
    """
    _print(with_client(url, lambda client: client.tenant(name)), as_json)


@app.command("set")
def set_(
    name: Name,
    weight: Annotated[int | None, typer.Option(help="Its share, against the weights of others.")] = None,
    running_max: Annotated[int | None, typer.Option(help="Runs at once; 0: no limit.")] = None,
    waiting_max: Annotated[int | None, typer.Option(help="Runs that have not started; 0: no limit.")] = None,
    submit_rate: Annotated[float | None, typer.Option(help="Jobs per second it may submit; 0: no limit.")] = None,
    submit_burst: Annotated[int | None, typer.Option(help="Jobs it may submit at once after a rest.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Of its schedules that say nothing themselves: 30s; 0: none.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a tenant's share and limits. What is not named stays.

    Example: sexton tenants set acme --weight 3 --running-max 50
    """
    given = said(
        weight=weight,
        running_max=running_max,
        waiting_max=waiting_max,
        submit_rate=submit_rate,
        submit_burst=submit_burst,
        jitter=jitter,
    )

    async def work(client: Any) -> TenantView:
        from sexton.errors import NotFound

        try:
            old = await client.tenant(name)
            before = {field: getattr(old, field) for field in _FIELDS} | {"jitter": old.jitter_s}
        except NotFound:
            before = {}
        after: TenantView = await client.set_tenant(name, **merged(before, given, rate="submit", keeps_zero="weight"))
        return after

    _print(with_client(url, work), as_json)


_FIELDS = ("weight", "running_max", "waiting_max", "submit_rate", "submit_burst")


@app.command()
def pause(
    name: Name,
    note: Annotated[str | None, typer.Option(help="Why, for whoever looks.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Start none of its runs until it is resumed. What runs goes on.

    Example: sexton tenants pause acme --note "unpaid"
    """
    found = with_client(url, lambda client: client.pause_tenant(name, note=note))
    print_json(found) if as_json else typer.echo(f"{name} paused")


@app.command()
def resume(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Let a paused tenant go on.

    Example: sexton tenants resume acme
    """
    found = with_client(url, lambda client: client.resume_tenant(name))
    print_json(found) if as_json else typer.echo(f"{name} goes on")


@app.command()
def remove(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Forget what is set for a tenant: it has the defaults again. Its jobs stay.

    Example: sexton tenants remove acme
    """
    found = with_client(url, lambda client: client.remove_tenant(name))
    print_json(found) if as_json else typer.echo(f"{name} has the defaults again")


def _limits(tenant: TenantView) -> str:
    parts = [
        f"{tenant.running_max:,} at once" if tenant.running_max else "",
        f"{tenant.waiting_max:,} waiting" if tenant.waiting_max else "",
        f"{tenant.submit_rate:g}/s submitted" if tenant.submit_rate else "",
    ]
    return ", ".join(filter(None, parts))


def _print(tenant: TenantView, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
        return
    print_fields(
        [
            ("tenant", tenant.name),
            ("status", tenant.status),
            ("note", tenant.note),
            ("paused at", tenant.paused_at),
            ("paused by", tenant.paused_by),
            ("weight", tenant.weight),
            ("running", f"{up_to(tenant.running_count)}{f' of {tenant.running_max:,}' if tenant.running_max else ''}"),
            ("ready", up_to(tenant.ready_count)),
            ("parked", up_to(tenant.parked_count)),
            ("waiting", up_to(tenant.waiting_count)),
            ("waiting max", tenant.waiting_max),
            ("submit rate", None if tenant.submit_rate is None else f"{tenant.submit_rate:g}/s"),
            ("submit burst", tenant.submit_burst),
            ("jitter", None if tenant.jitter_s is None else f"{tenant.jitter_s:g} s"),
            ("set at", tenant.updated_at),
        ]
    )
