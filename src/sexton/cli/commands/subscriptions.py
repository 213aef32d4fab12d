"""`sexton subscriptions …`: webhooks that report the outcome of runs, their log, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import NotUnderstood
from sexton.cli.inputs import instant, sure
from sexton.cli.printing import print_json, print_list, print_one
from sexton.errors import InvalidSubmission

from .named import NamedCommands

if TYPE_CHECKING:
    from sexton.wire import Delivery, SubscriptionView

Name = Annotated[str, typer.Argument(help="The subscription.")]
Limit = Annotated[int, typer.Option(min=1, help="At most this many.")]


def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List subscriptions, with their URLs and events.

    Example: sexton subscriptions list
    """

    async def found(client: Any) -> list[SubscriptionView]:
        return [one async for one in client.subscriptions()]

    known = with_client(url, found)
    rows = ((one.name, one.url, list(one.kinds), _whose(one), one.status) for one in known)
    columns = ("name", "url", "kinds", "of", "status")
    print_list(known, columns, rows, none="no subscriptions", as_json=as_json)


def _whose(one: SubscriptionView) -> str | None:
    parts = {"tenant": one.filter.tenant, "queue": one.filter.queue, "job": one.filter.job_id}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None) or "all runs"


def _print(one: SubscriptionView, as_json: bool) -> None:
    print_one(
        one,
        [
            ("subscription", one.name),
            ("status", one.status),
            ("url", one.url),
            ("kinds", list(one.kinds)),
            ("of", _whose(one)),
            ("signed with", list(one.signed_with)),
            ("headers", sorted(one.headers)),
            ("queue", one.queue),
            ("priority", one.priority),
            ("max attempts", one.retry.max_attempts),
            ("timeout", f"{one.timeout_s:g} s"),
            ("paused at", one.paused_at),
            ("created at", one.created_at),
            ("set at", one.updated_at),
        ],
        as_json=as_json,
    )


commands = NamedCommands(
    "subscription",
    "List, add and remove subscriptions; their deliveries, and replays. Without a command: list.",
    list_,
    _print,
    argument="The subscription.",
    example="orders",
)
app = commands.app
commands.show("Show a subscription.")


@app.command()
def add(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="The URL that receives the events: https://hooks.example/sexton.")],
    kind: Annotated[list[str] | None, typer.Option(help="completed, failed, dead_lettered or missed; all by default.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant's runs.")] = None,
    run_queue: Annotated[str | None, typer.Option(help="Only of runs in this queue.")] = None,
    job: Annotated[str | None, typer.Option(help="Only of this job's runs.")] = None,
    signed_with: Annotated[
        list[str] | None, typer.Option(help="A secret that signs, by name; several while you replace one.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="'Name: value' or 'Name: secret:name', sent with each.")] = None,
    queue: Annotated[str | None, typer.Option(help="Where deliveries wait.")] = None,
    priority: Annotated[str | None, typer.Option(help="The lane of deliveries: critical, high, normal, low.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="How many times a delivery is tried; eight by default.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Timeout of one attempt: 15s.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create no events for it yet.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send the outcome of runs to a URL. Replaces a subscription of the same name.

    Example: sexton subscriptions add orders https://hooks.example/sexton --kind dead_lettered --signed-with hooks
    """
    fields: dict[str, Any] = {"tenant": tenant, "run_queue": run_queue, "job_id": job, "queue": queue, "priority": priority}
    fields |= {"timeout": timeout, "paused": paused, "kinds": kind or None, "signed_with": signed_with or None}
    fields |= {"headers": _headers(header or ()), "retry": _retry(max_attempts)}
    _print(with_client(url, lambda client: client.set_subscription(name, to, **fields)), as_json)


@app.command()
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove a subscription, and cancel its undelivered events.

    Example: sexton subscriptions remove orders --yes
    """
    sure(f"Remove {name} and cancel its undelivered events?", yes=yes)
    gone = with_client(url, lambda client: client.remove_subscription(name))
    count = gone.cancelled_count
    noun = "delivery" if count == 1 else "deliveries"
    print_json(gone) if as_json else typer.echo(f"{name} removed, {count:,} {noun} cancelled")


@app.command()
def deliveries(
    name: Name,
    status: Annotated[str | None, typer.Option(help="pending, running, completed, failed or cancelled.")] = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first.

    Example: sexton subscriptions deliveries orders --status failed
    """

    async def found(client: Any) -> list[Delivery]:
        return [one async for one in client.deliveries(name, status=status, limit=limit)]

    log = with_client(url, found)
    columns = ("id", "kind", "status", "tries", "answer", "occurred", "next try", "job", "why")
    print_list(log, columns, (_row(one) for one in log), none="no deliveries", as_json=as_json)


@app.command()
def replay(
    name: Name,
    delivery: Annotated[str | None, typer.Argument(metavar="[ID]", help="One delivery; or select by the options.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that failed.")] = False,
    status: Annotated[str | None, typer.Option(help="All with this status: failed, completed, cancelled; or any.")] = None,
    from_at: Annotated[str | None, typer.Option("--from", help="Of events from this instant on.")] = None,
    until: Annotated[str | None, typer.Option(help="Of events before this instant.")] = None,
    limit: Limit = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many it would be.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again, each with the id of its message, to the current URL of the subscription.

    Example: sexton subscriptions replay orders --failed --yes
    """
    chosen = "failed" if failed else status
    if (delivery is None) == (chosen is None) or (failed and status is not None):
        raise NotUnderstood("select in one way: an id, --failed, or --status with --from and --until")
    if delivery is None:
        many: dict[str, Any] = {"status": None if chosen == "any" else chosen, "limit": limit}
        many |= {"from_at": instant(from_at, "--from"), "until": instant(until, "--until")}
        if not dry_run:
            sure(f"Send up to {limit:,} deliveries of {name} again?", yes=yes)
        done = with_client(url, lambda client: client.replay_deliveries(name, dry_run=dry_run, **many))
    else:
        done = with_client(url, lambda client: client.replay_delivery(name, delivery))
    if as_json:
        print_json(done)
        return
    more = "; there are more" if done.has_more else ""
    typer.echo(f"{done.matched_count:,} would be sent again{more}" if dry_run else f"{len(done.replayed):,} sent again{more}")


def _headers(lines: Sequence[str]) -> dict[str, Any] | None:
    """`Name: value`; the worker that sends reads a value `secret:name`."""
    found: dict[str, Any] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidSubmission("--header", "write 'Name: value', or 'Name: secret:name'")
        value = value.strip()
        found[name.strip()] = {"secret": value[7:]} if value.startswith("secret:") else value
    return found or None


def _retry(max_attempts: int | None) -> Any:
    """The given number of attempts, with the waits of deliveries."""
    if max_attempts is None:
        return None
    from msgspec.structs import replace

    from sexton.domain.subscription import RETRY

    return replace(RETRY, max_attempts=max_attempts)


def _row(one: Delivery) -> tuple[Any, ...]:
    why = one.reason or (one.error.message if one.error else None)
    next_try = one.next_try_at if one.status == "pending" else None
    return one.id, one.kind, one.status, one.attempt, one.response_status, one.occurred_at, next_try, one.run_job_id, why
