"""Why a job has or has not run: the questions that an operator would ask, in order, each with the facts behind its answer.

The first question that finds an obstacle gives the answer, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.errors import Contention
from sexton.operations.caller import Caller
from sexton.store.database import Connection
from sexton.store.views import evidence, locked_tables
from sexton.store.views.evidence import Evidence, LiveRun
from sexton.store.work.jobs import JobView

from . import fires, fleet, job, locks, sharing
from .link import Link


class Explanation(NamedTuple):
    job: JobView
    answer: str
    chain: list[Link]


async def explain(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> Explanation:
    tables = await locked_tables.lasting(connection)
    if (stopped := next((one for one in tables if one.stops_reading), None)) is not None:
        raise Contention(f"{stopped.said}; {stopped.advice}", waits_for="table")
    seen = await evidence.gather(connection, job_id, now=now)
    held = [locks.locked_tables(one) for one in tables]
    chain = list(_chain(seen))
    return Explanation(seen.job, (held[0].detail if held and seen.job.ended_at is None else _answer(chain)), [*held, *chain])


def _answer(chain: list[Link]) -> str:
    running = [link for link in chain if link.check == "running"]
    return next((link.detail for link in [*running, *chain] if link.check == "running" or not link.ok), chain[-1].detail)


def _chain(seen: Evidence) -> Iterator[Link]:
    view = seen.job
    yield job.exists(seen)
    if view.ended_at is not None and not seen.live:
        yield job.ended(seen)
        if seen.plan is not None and seen.history:
            yield fires.last_fire(seen, seen.history[0])
        return
    if seen.plan is not None:
        yield job.schedule(seen)
        yield from job.doubts(seen)
    yield job.active(seen)
    run = seen.live[0] if seen.live else None
    yield from locks.locked(seen, run)
    if seen.plan is not None and seen.history:
        yield fires.last_fire(seen, seen.history[0])
    if view.status == "paused":
        return
    if run is not None and run.state == "running":
        yield fires.running(seen, run)
        return
    yield from _to_start(seen, run)


def _to_start(seen: Evidence, run: LiveRun | None) -> Iterator[Link]:
    """What a run that no worker executes needs."""
    yield fires.due(seen, run)
    if run is not None and run.state == "blocked":
        yield fires.overlap(seen, run)
    if run is None or run.state not in ("ready", "quarantined"):
        yield fleet.scheduler(seen)
    yield from sharing.shares(seen, run)
    yield fleet.worker(seen)
    yield from fleet.missing(seen)
    if run is not None and seen.ahead is not None:
        yield sharing.position(run, seen.ahead)
    if run is not None and run.batch_limit is not None:
        yield fleet.batch(run)
    if run is not None and run.state == "quarantined":
        yield fleet.quarantine(seen, run)
