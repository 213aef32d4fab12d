"""`sexton tenants …`: shares, limits and pauses of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, up_to
from sexton.domain.sharing import TenantOptions

from .named import NamedCommands, standing

if TYPE_CHECKING:
    from sexton.wire import TenantView


def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that have live work or for which something was set. Counts stop at 10,000.

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
    print_list(found, columns, rows, none="no tenant has live work, and nothing is set for any", as_json=as_json)


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
commands.show(lambda client, name: client.tenant(name), _print, "Show what is set for a tenant, and how much it has going on.")


commands.set(
    TenantOptions,
    lambda client, name, settings: client.set_tenant(name, **settings),
    _print,
    "Set a tenant's share and limits. What is not named stays.",
    example="--weight 3 --running-max 50",
    keeps=lambda client, name: client.tenant(name),
)
commands.pause(
    lambda client, name, note: client.pause_tenant(name, note=note),
    "Start none of its runs until it is resumed. What runs goes on.",
    example_note="unpaid",
)
commands.change("resume", lambda client, name: client.resume_tenant(name), "Let a paused tenant go on.", done="goes on")
commands.change(
    "remove",
    lambda client, name: client.remove_tenant(name),
    "Forget what is set for a tenant: it has the defaults again. Its jobs stay.",
    done="has the defaults again",
)
