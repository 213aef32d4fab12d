"""Why a job has or has not run: the questions somebody on call would ask, in order, each with what its answer rests on.

The first question whose answer stands in the way gives the answer in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.job import Lane
from sexton.domain.schedule.zone import names, zone
from sexton.store.database import Connection
from sexton.store.sharing.limits import Standing
from sexton.store.sharing.queues import Queue
from sexton.store.sharing.tenants import Tenant
from sexton.store.work.jobs import JobView

from . import evidence
from .evidence import AHEAD_LIMIT, Ahead, Evidence, LiveRun, Past

_BLOCKER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_LATE = timedelta(seconds=5)  # rule "overdue work is anyone's": beyond it a node should have promoted what is due
_DID_NOT_START = ("skipped", "missed", "paused")
_WENT_WRONG = ("failed", "timed_out", "lost", "cancelled")


class Link(NamedTuple):
    check: str
    ok: bool  # it does not stand in the way
    detail: str
    evidence: dict[str, Any]


class Explanation(NamedTuple):
    job: JobView
    answer: str
    chain: list[Link]


async def explain(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> Explanation:
    seen = await evidence.gather(connection, job_id, now=now)
    chain = list(_chain(seen))
    return Explanation(seen.job, _answer(chain), chain)


def _answer(chain: list[Link]) -> str:
    running = [link for link in chain if link.check == "running"]
    return next((link.detail for link in [*running, *chain] if link.check == "running" or not link.ok), chain[-1].detail)


def _chain(seen: Evidence) -> Iterator[Link]:
    job = seen.job
    yield _exists(seen)
    if job.ended_at is not None and not seen.live:
        yield _ended(seen)
        if seen.plan is not None and seen.history:
            yield _last_fire(seen, seen.history[0])
        return
    if seen.plan is not None:
        yield _schedule(seen)
    yield _active(seen)
    if seen.plan is not None and seen.history:
        yield _last_fire(seen, seen.history[0])
    if job.status == "paused":
        return
    run = seen.live[0] if seen.live else None
    if run is not None and run.state == "running":
        yield _running(seen, run)
        return
    yield _due(seen, run)
    if run is not None and run.state == "blocked":
        yield _overlap(seen, run)
    if run is None or run.state != "ready":
        yield _scheduler(seen)
    yield from _shares(seen, run)
    yield _worker(seen)
    if run is not None and seen.ahead is not None:
        yield _position(run, seen.ahead)


def _exists(seen: Evidence) -> Link:
    job, kind = seen.job, "one-time" if seen.plan is None else "recurring"
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    facts = {"kind": kind, "version": job.version, "submitted_at": job.submitted_at, "submitted_by": job.submitted_by}
    return Link("exists", True, f"It is a {kind} job, submitted {_at(seen, job.submitted_at)}{by}.", facts)


def _ended(seen: Evidence) -> Link:
    job, letter = seen.job, seen.letter
    ended = "" if job.ended_at is None else _at(seen, job.ended_at)
    facts: dict[str, Any] = {"status": job.status, "ended_at": job.ended_at}
    if seen.plan is not None:
        return Link(
            "schedule", False, f"Its schedule is over since {ended}: {_over(seen)}.", {**facts, "reason": job.over_reason}
        )
    if job.status == "completed":
        return Link("ended", True, f"It completed {ended}.", {**facts, "execution_id": job.execution_id})
    if job.status == "cancelled":
        reason = seen.history[0].reason if seen.history else None
        return Link("ended", False, f"It was cancelled {ended}{_because(reason)}.", {**facts, "reason": reason})
    if letter is None:
        return Link("dead_letter", False, f"It failed {ended}; its dead letter was discarded or has expired.", facts)
    again = f"; it will be replayed {_at(seen, letter.replay_at)}" if letter.replay_at else ""
    detail = f"It lies in the dead letters since {_at(seen, letter.buried_at)}, after {_tries(letter.attempts)}"
    facts |= {"dead_letter_id": letter.id, "reason": letter.reason, "permanent": letter.permanent, "attempts": letter.attempts}
    if seen.history:
        facts |= _error(seen.history[0])
    return Link("dead_letter", False, f"{detail}{_because(letter.reason)}{again}.", facts)


def _over(seen: Evidence) -> str:
    match seen.plan and seen.plan.over_as:
        case "completed":
            return "nothing fires after that"
        case other:
            return (
                f"it was {other}{_because(seen.job.over_reason)}"
                if other == "cancelled"
                else seen.job.over_reason or "it failed"
            )


def _schedule(seen: Evidence) -> Link:
    plan = seen.plan
    if plan is not None and plan.over_at is not None:
        detail = f"Its schedule is over since {_at(seen, plan.over_at)}: {_over(seen)}; what was planned before goes on."
        return Link(
            "schedule", True, detail, {"over_at": plan.over_at, "over_as": plan.over_as, "reason": seen.job.over_reason}
        )
    return Link(
        "schedule", True, "Its schedule goes on.", {"planned_until": plan and plan.cursor_at, "plan_at": plan and plan.plan_at}
    )


def _active(seen: Evidence) -> Link:
    job = seen.job
    if job.status != "paused" and (job.paused_at is None or seen.plan is None):
        return Link("active", True, "It is not paused.", {})
    since = f" since {_at(seen, job.paused_at)}" if job.paused_at else ""
    by = f" by {job.paused_by}" if job.paused_by else ""
    until = f"; it goes on by itself {_at(seen, job.resume_at)}" if job.resume_at else ""
    facts = {"paused_at": job.paused_at, "paused_by": job.paused_by, "note": job.note, "resume_at": job.resume_at}
    return Link("active", False, f"It is paused{since}{by}{_because(job.note)}{until}.", facts)


def _last_fire(seen: Evidence, last: Past) -> Link:
    facts = {"status": last.status, "fire_at": last.fire_at, "reason": last.reason, "execution_id": last.id}
    if last.status in _DID_NOT_START:
        return _did_not_start(seen, last, facts)
    facts |= _error(last)
    facts["origin"] = last.origin
    what = f"Its last try, of the fire of {_at(seen, last.fire_at)}{_beside(seen, last.run_id, last.origin)},"
    if last.status not in _WENT_WRONG:
        return Link("last_fire", True, f"{what} {last.status} {_at(seen, last.ended_at)}.", facts)
    buried = ""
    if seen.letter is not None and seen.letter.id == last.id:
        facts["dead_letter_id"], buried = seen.letter.id, "; it lies in the dead letters"
    how = "was cancelled" if last.status == "cancelled" else last.status.replace("_", " ")
    return Link("last_fire", last.status == "cancelled", f"{what} {how}{_because(_said(last))}{buried}.", facts)


def _did_not_start(seen: Evidence, last: Past, facts: dict[str, Any]) -> Link:
    gap, when = last.gap, _at(seen, last.fire_at)
    facts = facts | gap
    blocker = _BLOCKER.search(last.reason or "")
    if blocker is not None:
        facts["run_in_the_way"] = blocker[0]
    if not gap:
        return Link("last_fire", False, f"Its fire of {when} was {last.status}{_because(last.reason)}.", facts)
    until = _at(seen, msgspec.convert(gap["last"], datetime))
    which = f"fires from {when} to {until}" if gap["count"] > 1 else f"fire of {when}"
    told = f"; it was noticed {_at(seen, last.ended_at)}, when planning went on" if last.status == "missed" else ""
    return Link("last_fire", False, f"Its {which} did not run{_because(last.reason)}{told}.", facts)


def _running(seen: Evidence, run: LiveRun) -> Link:
    where = run.worker_name or str(run.worker_id)
    facts = {
        "run_id": run.id,
        "worker_id": run.worker_id,
        "worker": run.worker_name,
        "started_at": run.claimed_at,
        "attempt": run.attempt,
    }
    since = "" if run.claimed_at is None else f" since {_at(seen, run.claimed_at)}"
    detail = f"It runs{since} on {where}, attempt {run.attempt}{_beside(seen, run.id, run.origin)}"
    if run.cancel_requested_at is not None:
        detail += f"; it was asked to stop {_at(seen, run.cancel_requested_at)}"
    return Link("running", True, f"{detail}.", {**facts, "cancel_requested_at": run.cancel_requested_at})


def _due(seen: Evidence, run: LiveRun | None) -> Link:
    if run is None:
        plan_at = seen.plan and seen.plan.plan_at
        if plan_at is None:
            return Link(
                "due", False, "No fire of it is planned, and nobody is asked to; the guardian repairs that every minute.", {}
            )
        late = "should have been planned" if plan_at < seen.now - _LATE else "is to be planned"
        return Link("due", False, f"No fire of it is planned; it {late} {_at(seen, plan_at)}.", {"plan_at": plan_at})
    facts: dict[str, Any] = {
        "run_id": run.id,
        "state": run.state,
        "fire_at": run.fire_at,
        "due_at": run.due_at,
        "origin": run.origin,
    }
    beside = _beside(seen, run.id, run.origin)
    if run.state == "waiting" and run.token > 0:
        last = next((one for one in seen.history if one.run_id == run.id), None)
        facts |= {"attempt": run.attempt} | ({} if last is None else _error(last))
        how = "snoozed" if last is not None and last.status == "snoozed" else f"failed{_because(_said(last))}"
        return Link(
            "due",
            False,
            f"Attempt {run.attempt}{beside} {how}; it is tried again {_at(seen, run.due_at)}{_in(seen, run.due_at)}.",
            facts,
        )
    if run.due_at > seen.now:
        what = "It is" if seen.plan is None else f"Its next fire{beside} is"
        return Link("due", False, f"{what} due {_at(seen, run.due_at)}{_in(seen, run.due_at)}.", facts)
    return Link("due", True, f"It{beside} has been due since {_at(seen, run.due_at)}.", facts)


def _overlap(seen: Evidence, run: LiveRun) -> Link:
    others = [one for one in seen.live if one.id != run.id and (one.state in ("ready", "running") or one.token > 0)]
    which = f": {others[0].id}, {others[0].state}" if others else ""
    detail = f"It waits for an earlier run of the same job to end{which}."
    return Link("overlap", False, detail, {"runs_in_the_way": [one.id for one in others]})


def _scheduler(seen: Evidence) -> Link:
    fleet = seen.fleet
    facts = {"node_count": fleet.node_count, "leader": fleet.leader, "last_beat_at": fleet.last_node_beat_at}
    if fleet.node_count == 0:
        last = fleet.last_node_beat_at
        when = f"the last sign of one was {_at(seen, last)}" if last is not None else "none has been seen within an hour"
        return Link("scheduler", False, f"No scheduler is alive; {when}.", facts)
    leads = f"; {fleet.leader} leads its partition" if fleet.leader else "; nobody leads its partition, so any may see to it"
    return Link("scheduler", True, f"{_count(fleet.node_count, 'scheduler')} alive{leads}.", facts)


def _shares(seen: Evidence, run: LiveRun | None) -> Iterator[Link]:
    """Only what is set is asked."""
    sharing = seen.sharing
    if sharing.queue is not None and sharing.queue.paused_at is not None:
        yield _paused(seen, "queue_pause", f"Its queue {sharing.queue.name!r}", sharing.queue)
    if sharing.queue is not None and sharing.queue_tokens is not None:
        yield _release_rate(sharing.queue, sharing.queue_tokens)
    if sharing.tenant is not None and sharing.tenant.paused_at is not None:
        yield _paused(seen, "tenant_pause", f"Its tenant {sharing.tenant.name!r}", sharing.tenant)
    if sharing.tenant is not None and sharing.tenant.running_max is not None:
        yield _tenant_limit(sharing.tenant, sharing.tenant.running_max, sharing.tenant_held_count)
    if run is not None and run.limit_key is not None:
        yield _limit(seen, run, run.limit_key, sharing.limit)


def _paused(seen: Evidence, check: str, what: str, by: Queue | Tenant) -> Link:
    since = "" if by.paused_at is None else f" since {_at(seen, by.paused_at)}"
    who = f" by {by.paused_by}" if by.paused_by else ""
    facts = {"name": by.name, "paused_at": by.paused_at, "paused_by": by.paused_by, "note": by.note}
    return Link(check, False, f"{what} is paused{since}{who}{_because(by.note)}.", facts)


def _release_rate(queue: Queue, tokens: int) -> Link:
    facts = {"queue": queue.name, "release_rate": queue.release_rate, "release_burst": queue.release_burst, "tokens": tokens}
    rate = f"Its queue {queue.name!r} releases {queue.release_rate:g} runs per second"
    return Link(
        "release_rate", tokens > 0, f"{rate}, {'and may release one now' if tokens else 'and has just done so'}.", facts
    )


def _tenant_limit(tenant: Tenant, most: int, held: int) -> Link:
    facts = {"tenant": tenant.name, "running_max": most, "running_count": held}
    full = held >= most
    detail = f"Its tenant {tenant.name!r} has {held:,} of {_count(most, 'run')} at once"
    return Link("tenant_limit", not full, f"{detail}{', which is its limit' if full else ''}.", facts)


def _limit(seen: Evidence, run: LiveRun, key: str, limit: Standing | None) -> Link:
    facts: dict[str, Any] = {"key": key, "state": run.state}
    if limit is None:
        return Link("limit", True, f"Its limit {key!r} is not set any more.", facts)
    facts |= {
        name: getattr(limit, name) for name in ("running", "count", "per_s", "burst", "ordered", "held_count", "parked_count")
    }
    facts["holders"] = [
        {"run_id": one.run_id, "job_id": one.job_id, "tenant": one.tenant, "worker": one.worker_name, "since": one.since}
        for one in limit.holders
    ]
    waits = run.state == "parked"
    if limit.running is not None and limit.held_count >= limit.running:
        detail = f"It waits for the limit {key!r} of {limit.running:,} at once{_held_by(limit)}."
        return Link("limit", False, detail, facts)
    if limit.count is not None and not limit.tokens:
        rate = f"{limit.count:,} per {limit.per_s:g} s"
        return Link(
            "limit",
            False,
            f"It waits for the limit {key!r} of {rate}; the next start is in {limit.next_token_s or 0:.3g} s.",
            facts,
        )
    others = f" behind {_count(limit.parked_count - 1, 'other run')}" if limit.parked_count > 1 else ""
    if waits:
        detail = f"It waits for the limit {key!r}, which has room{others}; a scheduler lets the next ones through."
        return Link("limit", False, detail, facts)
    return Link("limit", True, f"Its limit {key!r} has room.", facts)


def _held_by(limit: Standing) -> str:
    if not limit.holders:
        return ""
    more = limit.held_count - len(limit.holders)
    named = ", ".join(f"{one.run_id}{f' on {one.worker_name}' if one.worker_name else ''}" for one in limit.holders)
    return f", held by {'run' if limit.held_count == 1 else 'runs'} {named}{f' and {more:,} more' if more > 0 else ''}"


def _worker(seen: Evidence) -> Link:
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
    workers, slots = _count(fleet.knowing_count, "live worker"), _count(fleet.free_slot_count, "free slot")
    return Link("worker", True, f"{workers} of the queue {job.queue!r} may run it, {slots}.", facts)


def _position(run: LiveRun, ahead: Ahead) -> Link:
    """Other tenants take turns with its own, so only what its own has before it, and the lanes above, are ahead for certain."""
    lane, count = Lane(run.lane).name.lower(), ahead.above_count + ahead.own_count
    capped = max(ahead) >= AHEAD_LIMIT
    facts = {"queue": run.queue, "lane": lane, "tenant": run.tenant, "ahead_count": count, "capped": capped}
    facts |= ahead._asdict()
    turns = f"; its tenant takes turns with {_count(ahead.others_count, 'other')}" if ahead.others_count else ""
    if count == 0:
        ok = ahead.others_count == 0
        return Link("queue", ok, f"Nothing is ahead of it in the queue {run.queue!r}{turns}.", facts)
    many = _count(count, "run") + (" or more" if capped else "")
    return Link("queue", False, f"It is ready, behind {many} in the queue {run.queue!r}; its lane is {lane}{turns}.", facts)


def _beside(seen: Evidence, run_id: UUID, origin: str) -> str:
    """How a run of a recurring job came about, if not by its schedule."""
    how = {"now": "run by hand", "backfill": "a backfill", "replay": "a replay"}.get(origin)
    if seen.plan is None or how is None:
        return ""
    return f" ({how} with another payload)" if run_id in seen.own_payloads else f" ({how})"


def _error(past: Past) -> dict[str, Any]:
    error = past.error
    return {} if error is None else {"error": {"type": error.type, "message": error.message}}


def _said(past: Past | None) -> str | None:
    if past is None:
        return None
    return past.reason or (f"{past.error.type}: {past.error.message}" if past.error else past.status)


def _because(reason: str | None) -> str:
    return f": {reason.rstrip('.')}" if reason else ""


def _tries(count: int) -> str:
    return _count(count, "attempt")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _at(seen: Evidence, at: datetime) -> str:
    """In the zone of its schedule, and in UTC."""
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    name = _zone_name(seen.job.schedule_json)
    if name is None:
        return utc
    return f"{at.astimezone(zone(name)):%Y-%m-%d %H:%M:%S %Z} ({utc})"


def _zone_name(schedule_json: str | None) -> str | None:
    if schedule_json is None:
        return None
    fields = msgspec.json.decode(schedule_json)
    name = fields.get("timezone") if isinstance(fields, dict) else None
    return name if name != "UTC" and name in names() else None


def _in(seen: Evidence, at: datetime) -> str:
    left = at - seen.now
    if left <= timedelta(0):
        return ""
    seconds = int(left.total_seconds())
    days, hours, minutes = seconds // 86_400, seconds % 86_400 // 3600, seconds % 3600 // 60
    parts = [f"{days} d"] * (days > 0) + [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0 and days == 0)
    return f", in {' '.join(parts) or f'{seconds} s'}"
