"""`sexton tenants …`: shares, limits and pauses of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sexton.cli.printing import print_one, up_to
from sexton.domain.sharing import TenantOptions

from .named import ShareCommands, status_fields

if TYPE_CHECKING:
    from sexton.wire import TenantView


def _row(tenant: TenantView) -> dict[str, Any]:
    limits = [
        f"{tenant.running_max:,} at once" if tenant.running_max else "",
        f"{tenant.waiting_max:,} waiting" if tenant.waiting_max else "",
        f"{tenant.submit_rate:g}/s submitted" if tenant.submit_rate else "",
    ]
    return {"weight": tenant.weight, "limits": ", ".join(filter(None, limits)) or None}


def _print(tenant: TenantView, as_json: bool) -> None:
    print_one(
        tenant,
        [
            *status_fields("tenant", tenant),
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


app = ShareCommands("tenant", TenantOptions, _row, _print, example="acme", settings="--weight 3 --running-max 50").app
