"""`sexton queues …`: pauses, release rates and defaults of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, up_to

from .named import NamedCommands, standing
from .set_options import merged, said

if TYPE_CHECKING:
    from sexton.wire import QueueView


def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List the queues and their lengths. Counts stop at 10,000.

    Example: sexton queues list
    """
    found = with_client(url, lambda client: client.queues())
    rows = (
        (
            q.name,
            up_to(q.ready_count),
            up_to(q.running_count),
            up_to(q.waiting_count),
            up_to(q.parked_count),
            q.oldest_ready_s,
            q.worker_count,
            None if q.release_rate is None else f"{q.release_rate:g}/s",
            None if q.status == "active" else q.status,
        )
        for q in found
    )
    columns = ("queue", "ready", "running", "waiting", "parked", "oldest s", "workers", "pace", "status")
    print_list(found, columns, rows, none="no queue has live work", as_json=as_json)


def _print(queue: QueueView, as_json: bool) -> None:
    print_one(
        queue,
        [
            *standing("queue", queue),
            ("ready", up_to(queue.ready_count)),
            ("running", up_to(queue.running_count)),
            ("parked", up_to(queue.parked_count)),
            ("waiting", up_to(queue.waiting_count)),
            ("oldest ready", None if queue.oldest_ready_s is None else f"{queue.oldest_ready_s:.1f} s"),
            ("workers", queue.worker_count),
            ("release rate", None if queue.release_rate is None else f"{queue.release_rate:g}/s"),
            ("release burst", queue.release_burst),
            ("ageing", None if queue.ageing_s is None else f"{queue.ageing_s:g} s"),
            ("timeout", None if queue.timeout_s is None else f"{queue.timeout_s:g} s" if queue.timeout_s else "none"),
            ("jitter", None if queue.jitter_s is None else f"{queue.jitter_s:g} s"),
            ("max attempts", None if queue.retry is None else queue.retry.max_attempts),
            ("set at", queue.updated_at),
        ],
        as_json=as_json,
    )


commands = NamedCommands(
    "queues", "List, set, pause and resume queues. Without a command: list.", list_, argument="The queue.", example="mail"
)
app = commands.app

Name = Annotated[str, typer.Argument(help="The queue.")]


commands.show(lambda client, name: client.queue(name), _print, "Show the settings of a queue, and its length.")


@app.command("set")
def set_(
    context: typer.Context,
    name: Name,
    release_rate: Annotated[float | None, typer.Option(help="Runs per second that may start; 0: no limit.")] = None,
    release_burst: Annotated[int | None, typer.Option(help="Runs that may start at once after a pause.")] = None,
    ageing: Annotated[str | None, typer.Option(help="A run that waited this long moves up one lane: 10m; 0: never.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Default for jobs: 30s; 0: no limit.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Default for schedules: 30s; 0: none.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Default for jobs: how many times a run is tried.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a queue's release rate and defaults. Settings that you leave out keep their value.

    Example: sexton queues set mail --release-rate 50 --ageing 10m
    """
    given = said(context)

    async def work(client: Any) -> QueueView:
        from sexton.errors import NotFound
        from sexton.wire import RetryPolicy

        retry = None
        try:
            old = await client.queue(name)
            before = {"release_rate": old.release_rate, "release_burst": old.release_burst}
            before |= {field: getattr(old, f"{field}_s") for field in ("ageing", "timeout", "jitter")}
            retry = old.retry
        except NotFound:
            before = {}
        attempts = given.pop("max_attempts", None)
        if attempts is not None:
            from msgspec.structs import replace

            retry = replace(retry or RetryPolicy(), max_attempts=attempts)
        after: QueueView = await client.set_queue(
            name, **merged(before, given, rate="release", keeps_zero="timeout"), retry=retry
        )
        return after

    _print(with_client(url, work), as_json)


commands.pause(
    lambda client, name, note: client.pause_queue(name, note=note),
    "Start nothing in it until it is resumed. Running runs continue.",
    example_note="the mail server is down",
)
commands.change("resume", lambda client, name: client.resume_queue(name), "Resume a paused queue.", done="resumed")
commands.change(
    "remove",
    lambda client, name: client.remove_queue(name),
    "Reset a queue to the defaults. The runs in it stay.",
    done="has the defaults again",
)
