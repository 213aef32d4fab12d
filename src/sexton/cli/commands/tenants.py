"""`sexton tenants …`: shares, limits and pauses of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, up_to

from .named import NamedCommands, standing
from .set_options import merged, said

if TYPE_CHECKING:
    from sexton.wire import TenantView


def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that have live work or settings. Counts stop at 10,000.

    Example: sexton tenants list
    """
    found = with_client(url, lambda client: client.tenants())
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
    print_list(found, columns, rows, none="no tenant has live work or settings", as_json=as_json)


def _limits(tenant: TenantView) -> str:
    parts = [
        f"{tenant.running_max:,} at once" if tenant.running_max else "",
        f"{tenant.waiting_max:,} waiting" if tenant.waiting_max else "",
        f"{tenant.submit_rate:g}/s submitted" if tenant.submit_rate else "",
    ]
    return ", ".join(filter(None, parts))


def _print(tenant: TenantView, as_json: bool) -> None:
    print_one(
        tenant,
        [
            *standing("tenant", tenant),
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
        ],
        as_json=as_json,
    )


commands = NamedCommands(
    "tenants", "List, set, pause and resume tenants. Without a command: list.", list_, argument="The tenant.", example="acme"
)
app = commands.app

Name = Annotated[str, typer.Argument(help="The tenant.")]


commands.show(lambda client, name: client.tenant(name), _print, "Show the settings of a tenant, and its load.")


@app.command("set")
def set_(
    context: typer.Context,
    name: Name,
    weight: Annotated[int | None, typer.Option(help="Its share, relative to the weights of other tenants.")] = None,
    running_max: Annotated[int | None, typer.Option(help="Runs at once; 0: no limit.")] = None,
    waiting_max: Annotated[int | None, typer.Option(help="Runs that have not started; 0: no limit.")] = None,
    submit_rate: Annotated[float | None, typer.Option(help="Jobs per second it may submit; 0: no limit.")] = None,
    submit_burst: Annotated[int | None, typer.Option(help="Jobs it may submit at once after a pause.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Default for its schedules: 30s; 0: none.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a tenant's share and limits. Settings that you leave out keep their value.

    Example: sexton tenants set acme --weight 3 --running-max 50
    """
    given = said(context)

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


commands.pause(
    lambda client, name, note: client.pause_tenant(name, note=note),
    "Start none of its runs until it is resumed. Running runs continue.",
    example_note="unpaid",
)
commands.change("resume", lambda client, name: client.resume_tenant(name), "Resume a paused tenant.", done="resumed")
commands.change(
    "remove",
    lambda client, name: client.remove_tenant(name),
    "Reset a tenant to the defaults. Its jobs stay.",
    done="has the defaults again",
)
