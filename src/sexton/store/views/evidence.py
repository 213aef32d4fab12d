"""The facts about why a job has or has not run: a few bounded queries, each by index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.targets import RESERVED
from sexton.store import clock as database_clock
from sexton.store.database import Connection
from sexton.store.sharing import limits, queues, tenants
from sexton.store.sharing.limits import LimitUse
from sexton.store.sharing.queues import Queue
from sexton.store.sharing.tenants import Tenant
from sexton.store.sql import statements
from sexton.store.work import jobs, run_payloads
from sexton.store.work.jobs import JobView
from sexton.store.work.with_error import WithError

from . import locked_rows
from .locked_rows import HeldKey, LockedRow

HOLDERS = 5  # holders of a limit that are named
AHEAD_LIMIT = 1_000  # runs before it in the queue that are counted

_SQL = statements(__name__)


class LiveRun(NamedTuple):
    id: UUID
    state: str
    origin: str
    fire_at: datetime
    due_at: datetime
    claimed_at: datetime | None
    worker_id: UUID | None
    worker_name: str | None
    token: int
    attempt: int
    lane: int
    queue: str
    task: str
    cancel_requested_at: datetime | None
    partition: int
    tenant: str
    limit_key: str | None
    company: int | None  # of a suspect
    batch_limit: int | None  # its calls have failed: the most runs of its next call
    silent_since: datetime | None  # the last heartbeat of its worker, if that is not alive


class Ahead(NamedTuple):
    """The runs that are served before a ready run, each counted up to `AHEAD_LIMIT`."""

    above_count: int  # in the higher lanes
    own_count: int  # of its own tenant in its lane
    others_count: int  # tenants that share its lane


class Sharing(NamedTuple):
    """The settings of the job's queue and tenant, and the limit of its run."""

    queue: Queue | None
    queue_tokens: int | None  # tokens of its release rate now
    tenant: Tenant | None
    tenant_held_count: int  # if the tenant has a limit of runs at once
    limit: LimitUse | None


class Plan(NamedTuple):
    plan_at: datetime | None
    cursor_at: datetime | None
    over_at: datetime | None
    over_as: str | None


class Fleet(NamedTuple):
    worker_count: int  # live ones
    silent_count: int  # without a heartbeat for longer than their lease, and not declared dead yet
    silent_since: datetime | None  # the last heartbeat of these
    serving_count: int  # of those, on the job's queue
    knowing_count: int  # of those, with its task
    draining_count: int  # workers of the queue that know its task, and take no more runs
    free_slot_count: int  # of those that know it, of the kind that each of them needs for its task
    process_knowing_count: int  # those that run its task in child processes, which have slots of their own
    free_process_slot_count: int  # of these
    batch_knowing_count: int  # those that run it in batches, which have slots of their own
    free_batch_slot_count: int  # of these, for the runs of all their batch tasks
    node_count: int
    last_node_beat_at: datetime | None
    leader: str | None


class Lacking(NamedTuple):
    """A live worker that could run it, but for these secrets and settings."""

    name: str
    lacks: list[str]


class Past(WithError, msgspec.Struct, frozen=True):
    """A row of history: an attempt, or fires that did not start."""

    id: UUID
    run_id: UUID
    status: str
    origin: str
    fire_at: datetime
    started_at: datetime | None
    ended_at: datetime
    attempt: int
    reason: str | None
    error_json: str | None
    result_json: str | None

    @property
    def gap(self) -> dict[str, Any]:
        """First, last and count, of fires that share a row."""
        return {} if self.result_json is None else msgspec.json.decode(self.result_json)


class Letter(NamedTuple):
    id: UUID
    buried_at: datetime
    status: str
    reason: str
    permanent: bool
    attempts: int
    replay_at: datetime | None


class Evidence(NamedTuple):
    now: datetime
    job: JobView
    plan: Plan | None  # of a recurring job
    live: Sequence[LiveRun]  # the running ones first, then by due time
    history: Sequence[Past]  # newest first
    fleet: Fleet
    letter: Letter | None
    sharing: Sharing
    ahead: Ahead | None  # of a ready run
    locked: Sequence[LockedRow]  # its rows that other sessions have locked
    keys: Sequence[HeldKey]  # advisory locks of its partition that the services leave to another session
    lacking: Sequence[Lacking]  # of a job that calls a target
    own_payloads: Collection[UUID]  # runs of these that were fired with another payload than the job's


async def gather(connection: Connection, job_id: UUID, *, now: datetime | None = None) -> Evidence:
    job = await jobs.show(connection, job_id)
    moment = await database_clock.now(connection, now=now)
    plans = await connection.fetch(_SQL["plan"], job_id)
    live = [LiveRun(*row) for row in await connection.fetch(_SQL["live"], moment, job_id)]
    history = await connection.fetch(_SQL["history"], job_id, jobs.oldest_execution(job_id), 5)
    past = [Past(*row) for row in history]
    fleet = await connection.fetch(_SQL["fleet"], moment, job.queue, job.task, live[0].partition if live else job_id.int & 63)
    letters = await connection.fetch(_SQL["letter"], job_id)
    ready = next((run for run in live if run.state == "ready"), None)
    ahead = None
    if ready is not None:
        at = (ready.queue, ready.lane, ready.tenant, ready.due_at, ready.id)
        ahead = Ahead(*(await connection.fetch(_SQL["ahead"], *at, AHEAD_LIMIT))[0])
    return Evidence(
        now=moment,
        job=job,
        plan=Plan(*plans[0]) if plans else None,
        live=live,
        history=past,
        fleet=Fleet(*fleet[0]),
        letter=Letter(*letters[0]) if letters else None,
        sharing=await _sharing(connection, job, live[0] if live else None, moment),
        ahead=ahead,
        locked=await locked_rows.of_job(connection, job_id, queue=job.queue, limit_key=live[0].limit_key if live else None),
        keys=await locked_rows.keys_of(connection, job_id.int & 63) if job.schedule_json is not None else [],
        lacking=[Lacking(*row) for row in await connection.fetch(_SQL["lacking"], moment, job.queue, job.task)]
        if job.task.startswith(RESERVED)
        else [],
        own_payloads=await run_payloads.of_runs(connection, _by_hand(job_id, live, past)),
    )


async def _sharing(connection: Connection, job: JobView, run: LiveRun | None, now: datetime) -> Sharing:
    queue = await queues.get(connection, job.queue)
    rate = await connection.fetch(_SQL["queue_rate"], now, job.queue) if queue is not None else []
    tenant = await tenants.get(connection, job.tenant)
    held_count = 0
    if tenant is not None and tenant.running_max is not None:
        held_count = (await connection.fetch(_SQL["tenant_slots"], job.tenant, tenant.running_max))[0]["held_count"]
    key = None if run is None else run.limit_key
    limit = None if key is None else await limits.get(connection, key, holders=HOLDERS, now=now)
    return Sharing(queue, rate[0]["tokens"] if rate else None, tenant, held_count, limit)


def _by_hand(job_id: UUID, live: Sequence[LiveRun], past: Sequence[Past]) -> set[UUID]:
    runs = [(run.id, run.origin) for run in live] + [(one.run_id, one.origin) for one in past]
    return {run_id for run_id, origin in runs if run_payloads.may_have_one(job_id, origin)}
