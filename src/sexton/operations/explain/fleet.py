"""Questions about the processes: is a scheduler alive, does a worker know the task?"""

from __future__ import annotations

from sexton.store.views.evidence import Evidence

from .link import Link
from .wording import at_time, counted


def scheduler(seen: Evidence) -> Link:
    fleet = seen.fleet
    facts = {"node_count": fleet.node_count, "leader": fleet.leader, "last_beat_at": fleet.last_node_beat_at}
    if fleet.node_count == 0:
        last = fleet.last_node_beat_at
        when = (
            f"the last heartbeat of one was {at_time(seen, last)}" if last is not None else "none has been seen within an hour"
        )
        return Link("scheduler", False, f"No scheduler is alive; {when}.", facts)
    leads = (
        f"; {fleet.leader} leads its partition"
        if fleet.leader
        else "; no scheduler leads its partition, so any of them handles it"
    )
    return Link("scheduler", True, f"{counted(fleet.node_count, 'scheduler')} alive{leads}.", facts)


def worker(seen: Evidence) -> Link:
    fleet, job = seen.fleet, seen.job
    facts = {
        "queue": job.queue,
        "task": job.task,
        "worker_count": fleet.worker_count,
        "serving_count": fleet.serving_count,
        "knowing_count": fleet.knowing_count,
        "free_slot_count": fleet.free_slot_count,
    }
    if fleet.worker_count == 0:
        return Link("worker", False, "No worker is alive.", facts)
    if fleet.serving_count == 0:
        return Link("worker", False, f"No live worker serves the queue {job.queue!r}.", facts)
    if fleet.knowing_count == 0:
        return Link("worker", False, f"No live worker of the queue {job.queue!r} knows the task {job.task!r}.", facts)
    workers, slots = counted(fleet.knowing_count, "live worker"), counted(fleet.free_slot_count, "free slot")
    return Link("worker", True, f"{workers} of the queue {job.queue!r} may run it, {slots}.", facts)
