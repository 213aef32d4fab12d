"""Questions about the processes: is a scheduler alive, does a worker know the task?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from sexton.domain.run import policy_of
from sexton.domain.targets import needs_of
from sexton.store.views.evidence import Evidence, LiveRun

from .link import Link
from .wording import at_time, because, counted


def scheduler(seen: Evidence) -> Link:
    fleet = seen.fleet
    facts = {"node_count": fleet.node_count, "leader": fleet.leader, "last_beat_at": fleet.last_node_beat_at}
    if fleet.node_count == 0:
        last = fleet.last_node_beat_at
        when = (
            f"the last heartbeat of one was {at_time(seen, last)}" if last is not None else "none has been seen within an hour"
        )
        if fleet.worker_count == 0:
            return Link(
                "scheduler", False, f"No scheduler and no worker is alive, so nothing is planned or promoted; {when}.", facts
            )
        helps = "only idle workers plan and promote, what is 5 s overdue"
        return Link("scheduler", False, f"No scheduler is alive, so {helps}; {when}.", facts)
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
        "silent_count": fleet.silent_count,
        "silent_since": fleet.silent_since,
        "serving_count": fleet.serving_count,
        "knowing_count": fleet.knowing_count,
        "free_slot_count": fleet.free_slot_count,
        "is_process": fleet.is_process,
    }
    silent = ""
    if fleet.silent_since is not None:
        was = f"the last heartbeat was {at_time(seen, fleet.silent_since)}"
        silent = f"; {counted(fleet.silent_count, 'worker')} {'is' if fleet.silent_count == 1 else 'are'} silent, {was}"
    if fleet.worker_count == 0:
        return Link("worker", False, f"No worker is alive{silent}.", facts)
    if fleet.serving_count == 0:
        return Link("worker", False, f"No live worker serves the queue {job.queue!r}{silent}.", facts)
    if fleet.knowing_count == 0:
        return Link("worker", False, f"No live worker of the queue {job.queue!r} knows the task {job.task!r}{silent}.", facts)
    kind = "free process slot" if fleet.is_process else "free slot"
    workers, slots = counted(fleet.knowing_count, "live worker"), counted(fleet.free_slot_count, kind)
    return Link("worker", True, f"{workers} of the queue {job.queue!r} may run it, {slots}.", facts)


def quarantine(seen: Evidence, run: LiveRun) -> Link:
    """Of a suspect: the losses in a row that led there, as far as the history shown goes back."""
    own = (one for one in seen.history if one.run_id == run.id and one.status not in ("released", "snoozed"))
    losses = list(takewhile(lambda one: one.status == "lost", own))
    company = run.company or 1
    last = because(losses[0].reason if losses else None)
    beside = "alone" if company == 1 else f"in a company of at most {company:,} suspects"
    detail = f"It waits in quarantine, because it was lost {counted(len(losses), 'time')} in a row{last}"
    facts = {"company": company, "loss_count": len(losses), "reasons": [one.reason for one in losses]}
    return Link("quarantine", False, f"{detail}. A worker in quarantine executes it {beside}.", facts)


def missing(seen: Evidence) -> Iterator[Link]:
    """What it needs and workers have said that they lack."""
    needed = needs_of(policy_of(seen.job.policy_json).target)
    where = {what: [one.name for one in seen.lacking if what in one.lacks] for what in needed}
    where = {what: names for what, names in where.items() if names}
    if not where:
        return
    without = {name for names in where.values() for name in names}
    is_nowhere = len(without) >= seen.fleet.knowing_count
    told = "; ".join(f"{what} is missing on {', '.join(names)}" for what, names in sorted(where.items()))
    then = "it waits until a worker has it" if is_nowhere else "other live workers can run it"
    yield Link("configuration", not is_nowhere, f"{told[0].upper()}{told[1:]}; {then}.", {"missing": where})
