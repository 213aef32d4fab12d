"""Questions about what it shares with others: pauses, limits and its place in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexton.domain.job import Lane
from sexton.domain.wording import counted
from sexton.store.sharing.limits import LimitUse
from sexton.store.sharing.queues import Queue
from sexton.store.sharing.tenants import Tenant
from sexton.store.views.evidence import AHEAD_LIMIT, Ahead, Evidence, LiveRun

from .link import Link
from .wording import at_time, because


def shares(seen: Evidence, run: LiveRun | None) -> Iterator[Link]:
    """Only settings that exist are checked."""
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
    since = "" if by.paused_at is None else f" since {at_time(seen, by.paused_at)}"
    who = f" by {by.paused_by}" if by.paused_by else ""
    facts = {"name": by.name, "paused_at": by.paused_at, "paused_by": by.paused_by, "note": by.note}
    return Link(check, False, f"{what} is paused{since}{who}{because(by.note)}.", facts)


def _release_rate(queue: Queue, tokens: int) -> Link:
    facts = {"queue": queue.name, "release_rate": queue.release_rate, "release_burst": queue.release_burst, "tokens": tokens}
    rate = f"Its queue {queue.name!r} releases {queue.release_rate:g} runs per second"
    return Link(
        "release_rate", tokens > 0, f"{rate}, {'and may release one now' if tokens else 'and has just done so'}.", facts
    )


def _tenant_limit(tenant: Tenant, most: int, held: int) -> Link:
    facts = {"tenant": tenant.name, "running_max": most, "running_count": held}
    full = held >= most
    detail = f"Its tenant {tenant.name!r} has {held:,} of {counted(most, 'run')} at once"
    return Link("tenant_limit", not full, f"{detail}{', which is its limit' if full else ''}.", facts)


def _limit(seen: Evidence, run: LiveRun, key: str, limit: LimitUse | None) -> Link:
    facts: dict[str, Any] = {"key": key, "state": run.state}
    if limit is None:
        return Link("limit", True, f"Its limit {key!r} is no longer set.", facts)
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
    others = f" behind {counted(limit.parked_count - 1, 'other run')}" if limit.parked_count > 1 else ""
    if waits:
        detail = f"It waits for the limit {key!r}, which has room{others}; a scheduler releases the next ones."
        return Link("limit", False, detail, facts)
    return Link("limit", True, f"Its limit {key!r} has room.", facts)


def _held_by(limit: LimitUse) -> str:
    if not limit.holders:
        return ""
    more = limit.held_count - len(limit.holders)
    named = ", ".join(f"{one.run_id}{f' on {one.worker_name}' if one.worker_name else ''}" for one in limit.holders)
    return f", held by {'run' if limit.held_count == 1 else 'runs'} {named}{f' and {more:,} more' if more > 0 else ''}"


def position(run: LiveRun, ahead: Ahead) -> Link:
    """Other tenants take turns with its own, so only earlier runs of its own tenant, and higher lanes, are certain to be
    ahead."""
    lane, count = Lane(run.lane).name.lower(), ahead.above_count + ahead.own_count
    capped = max(ahead) >= AHEAD_LIMIT
    facts = {"queue": run.queue, "lane": lane, "tenant": run.tenant, "ahead_count": count, "capped": capped}
    facts |= ahead._asdict()
    turns = f"; its tenant takes turns with {counted(ahead.others_count, 'other')}" if ahead.others_count else ""
    if count == 0:
        ok = ahead.others_count == 0
        return Link("queue", ok, f"Nothing is ahead of it in the queue {run.queue!r}{turns}.", facts)
    many = counted(count, "run") + (" or more" if capped else "")
    return Link("queue", False, f"It is ready, behind {many} in the queue {run.queue!r}; its lane is {lane}{turns}.", facts)
