"""`sexton workers`, `nodes` and `stats`."""

from __future__ import annotations

from sexton import wire
from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_list, print_one, up_to


def workers(url: Url = None, as_json: AsJson = False) -> None:
    """List the workers: what they run, and their last heartbeat.

    Example: sexton workers
    """
    found = with_client(url, lambda client: client.workers())
    rows = (
        (
            w.id,
            f"{w.status}, in quarantine" if w.quarantine else w.status,
            _running(w),
            f"{w.silent_s:.1f} s",
            w.queues,
            w.name,
            len(w.tasks),
            w.started_at,
        )
        for w in found
    )
    columns = ("id", "status", "running", "silent", "queues", "name", "tasks", "started")
    print_list(found, columns, rows, none="no workers; start one: sexton worker module:app", as_json=as_json)


def _running(worker: wire.Worker) -> str:
    """Runs in child processes have slots of their own, and so have those of batch tasks."""
    running = worker.running_count - worker.process_running_count - worker.batch_running_count
    shown = f"{running}/{worker.concurrency - worker.process_slots - worker.batch_slots}"
    if worker.process_slots:
        shown += f" + {worker.process_running_count}/{worker.process_slots}"
    return shown + (f" + {worker.batch_running_count}/{worker.batch_slots} in batches" if worker.batch_slots else "")


def nodes(url: Url = None, as_json: AsJson = False) -> None:
    """List the schedulers and how many of the 64 partitions each leads.

    Example: sexton nodes
    """
    found = with_client(url, lambda client: client.nodes())
    rows = ((n.id, n.name, n.status, len(n.partitions), n.started_at, f"{n.silent_s:.1f} s") for n in found)
    columns = ("id", "name", "status", "partitions", "started", "silent")
    print_list(found, columns, rows, none="no schedulers; start one: sexton scheduler", as_json=as_json)


def stats(url: Url = None, as_json: AsJson = False) -> None:
    """Show an overview of the cluster. Counts stop at 10,000.

    Example: sexton stats --json
    """
    found = with_client(url, lambda client: client.stats())
    print_one(
        found,
        [
            ("ready", up_to(found.ready_count)),
            (
                "running",
                f"{up_to(found.running_count)} of {found.slot_count:,} slots and {found.process_slot_count:,} in processes"
                + (f" and {found.batch_slot_count:,} in batches" if found.batch_slot_count else ""),
            ),
            ("waiting", up_to(found.waiting_count)),
            ("parked", up_to(found.parked_count)),
            ("quarantined", up_to(found.quarantined_count)),
            ("paused", up_to(found.paused_count)),
            ("oldest ready", None if found.oldest_ready_s is None else f"{found.oldest_ready_s:.1f} s"),
            ("next due", found.next_due_at),
            ("dead letters", up_to(found.dead_letter_count)),
            (
                "workers",
                f"{found.worker_count}, {found.silent_worker_count} silent"
                if found.silent_worker_count
                else found.worker_count,
            ),
            ("schedulers", found.node_count),
            (
                "last minute",
                ", ".join(f"{n:,} {status}" for status, n in sorted(found.ended_last_minute.items())) or "nothing ended",
            ),
            ("at", found.at),
        ],
        as_json=as_json,
    )
