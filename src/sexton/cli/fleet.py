"""`sexton workers`, `nodes`, `queues`, `tenants` and `stats`."""

from __future__ import annotations

from .printing import print_fields, print_json, print_table
from .reach import AsJson, Url, reaching


def workers(url: Url = None, as_json: AsJson = False) -> None:
    """List the workers: what they run and when they last gave a sign of life.

    Example: sexton workers
    """
    found = reaching(url, lambda client: client.workers())
    if as_json:
        print_json(found)
        return
    rows = (
        (
            w.id,
            w.status,
            f"{w.running_count}/{w.concurrency}",
            f"{w.silent_s:.1f} s",
            w.queues,
            w.name,
            len(w.tasks),
            w.started_at,
        )
        for w in found
    )
    columns = ("id", "status", "running", "silent", "queues", "name", "tasks", "started")
    print_table(columns, rows, none="no workers; start one: sexton worker module:app")


def nodes(url: Url = None, as_json: AsJson = False) -> None:
    """List the schedulers and how many of the 64 partitions each leads.

    Example: sexton nodes
    """
    found = reaching(url, lambda client: client.nodes())
    if as_json:
        print_json(found)
        return
    rows = ((n.id, n.name, n.status, len(n.partitions), n.started_at, f"{n.silent_s:.1f} s") for n in found)
    columns = ("id", "name", "status", "partitions", "started", "silent")
    print_table(columns, rows, none="no schedulers; start one: sexton scheduler")


def queues(url: Url = None, as_json: AsJson = False) -> None:
    """List the queues and how long they are. Counts stop at 10,000.

    Example: sexton queues
    """
    found = reaching(url, lambda client: client.queues())
    if as_json:
        print_json(found)
        return
    rows = (
        (q.name, _up_to(q.ready_count), _up_to(q.running_count), _up_to(q.waiting_count), q.oldest_ready_s, q.worker_count)
        for q in found
    )
    print_table(("queue", "ready", "running", "waiting", "oldest s", "workers"), rows, none="no queue has live work")


def tenants(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that have live work. Counts stop at 10,000.

    Example: sexton tenants
    """
    found = reaching(url, lambda client: client.tenants())
    if as_json:
        print_json(found)
        return
    rows = ((t.name, _up_to(t.ready_count), _up_to(t.running_count), _up_to(t.waiting_count)) for t in found)
    print_table(("tenant", "ready", "running", "waiting"), rows, none="no tenant has live work")


def stats(url: Url = None, as_json: AsJson = False) -> None:
    """The whole cluster at a glance. Counts stop at 10,000.

    Example: sexton stats --json
    """
    found = reaching(url, lambda client: client.stats())
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("ready", _up_to(found.ready_count)),
            ("running", f"{_up_to(found.running_count)} of {found.slot_count:,} slots"),
            ("waiting", _up_to(found.waiting_count)),
            ("paused", _up_to(found.paused_count)),
            ("oldest ready", None if found.oldest_ready_s is None else f"{found.oldest_ready_s:.1f} s"),
            ("next due", found.next_due_at),
            ("dead letters", _up_to(found.dead_letter_count)),
            ("workers", found.worker_count),
            ("schedulers", found.node_count),
            (
                "last minute",
                ", ".join(f"{n:,} {status}" for status, n in sorted(found.ended_last_minute.items())) or "nothing ended",
            ),
            ("at", found.at),
        ]
    )


def _up_to(count: int) -> str:
    return f"{count:,}+" if count >= 10_000 else f"{count:,}"
