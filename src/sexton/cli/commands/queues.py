"""`sexton queues …`: pauses, pace and defaults of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, up_to
from sexton.domain.sharing import QueueOptions

from .named import NamedCommands, standing

if TYPE_CHECKING:
    from sexton.wire import QueueView


def list_(url: Url = None, as_json: AsJson = False) -> None:
    """List the queues and how long they are. Counts stop at 10,000.

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
commands.show(lambda client, name: client.queue(name), _print, "Show what is set for a queue, and how long it is.")


commands.set(
    QueueOptions,
    lambda client, name, settings: client.set_queue(name, **settings),
    _print,
    "Set a queue's pace and defaults. What is not named stays.",
    example="--release-rate 50 --ageing 10m",
    keeps=lambda client, name: client.queue(name),
)
commands.pause(
    lambda client, name, note: client.pause_queue(name, note=note),
    "Start nothing in it until it is resumed. What runs goes on.",
    example_note="the mail server is down",
)
commands.change("resume", lambda client, name: client.resume_queue(name), "Let a paused queue go on.", done="goes on")
commands.change(
    "remove",
    lambda client, name: client.remove_queue(name),
    "Forget what is set for a queue: it has the defaults again. The runs in it stay.",
    done="has the defaults again",
)
