"""Questions about the processes: is a scheduler alive, does a worker know the task?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from sexton.domain.run import policy_of
from sexton.domain.targets import needs_of
from sexton.domain.wording import counted
from sexton.store.views.evidence import Evidence, LiveRun

from .link import Link
from .wording import at_time, because


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
        helps = "idle workers plan and promote only what is 5 s overdue"
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
        "draining_count": fleet.draining_count,
        "free_slot_count": fleet.free_slot_count,
        "free_process_slot_count": fleet.free_process_slot_count,
        "is_process": fleet.process_knowing_count > 0,
        "free_batch_slot_count": fleet.free_batch_slot_count,
        "is_batch": fleet.batch_knowing_count > 0,
    }
    silent = ""
    if fleet.silent_since is not None:
        was = f"the last heartbeat was {at_time(seen, fleet.silent_since)}"
        silent = f"; {counted(fleet.silent_count, 'worker')} {'is' if fleet.silent_count == 1 else 'are'} silent, {was}"
    if fleet.worker_count == 0:
        return Link("worker", False, f"No worker is alive{silent}.", facts)
    if fleet.serving_count == 0:
        return Link("worker", False, f"No live worker serves the queue {job.queue!r}{silent}.", facts)
    if fleet.knowing_count == 0 and fleet.draining_count > 0:
        those = "the live worker that knows it is draining"
        if fleet.draining_count > 1:
            those = f"the {fleet.draining_count:,} live workers that know it are draining"
        detail = f"No live worker of the queue {job.queue!r} takes new runs of the task {job.task!r}: {those}{silent}."
        return Link("worker", False, detail, facts)
    if fleet.knowing_count == 0:
        return Link("worker", False, f"No live worker of the queue {job.queue!r} knows the task {job.task!r}{silent}.", facts)
    free = []
    if fleet.process_knowing_count + fleet.batch_knowing_count < fleet.knowing_count:
        plain_count = fleet.free_slot_count - fleet.free_process_slot_count - fleet.free_batch_slot_count
        free.append(counted(plain_count, "free slot"))
    if fleet.process_knowing_count > 0:
        free.append(counted(fleet.free_process_slot_count, "free process slot"))
    if fleet.batch_knowing_count > 0:
        free.append(counted(fleet.free_batch_slot_count, "free batch slot"))
    workers = counted(fleet.knowing_count, "live worker")
    return Link("worker", True, f"{workers} of the queue {job.queue!r} may run it, {' and '.join(free)}.", facts)


def batch(run: LiveRun) -> Link:
    """Of a run whose calls have failed: not charged, and no obstacle."""
    room = run.batch_limit or 1
    beside = "alone" if room == 1 else f"in a call of at most {room:,} runs"
    detail = f"Calls of several runs have failed with it among them; it is next executed {beside}."
    return Link("batch", True, detail, {"batch_limit": room})


def quarantine(seen: Evidence, run: LiveRun) -> Link:
    """Of a suspect: the losses in a row that led there, as far as the history shown goes back."""
    own = (one for one in seen.history if one.run_id == run.id and one.status not in ("released", "snoozed"))
    losses = list(takewhile(lambda one: one.status == "lost", own))
    company = run.company or 1
    last = because(losses[0].reason if losses else None)
    beside = "alone" if company == 1 else f"in a group of at most {company:,} suspects"
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
    silent_count = seen.fleet.knowing_count - len(without)
    told = "; ".join(f"{what} is missing on {', '.join(names)}" for what, names in sorted(where.items()))
    then = "it waits until a worker has it"
    if silent_count == 1:
        then = "1 other live worker has not said that it lacks it; it may have it"
    elif silent_count > 1:
        then = f"{silent_count:,} other live workers have not said that they lack it; one of them may have it"
    yield Link("configuration", silent_count > 0, f"{told[0].upper()}{told[1:]}; {then}.", {"missing": where})
