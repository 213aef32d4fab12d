"""`/v1/workers/…`: the worker protocol for other languages. A remote worker is like any other, but has its own lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC
from functools import partial

import msgspec
from litestar import Response

from sexton.api.answers.problems import Refused
from sexton.api.answers.responses import answer
from sexton.api.openapi import worker_examples as examples
from sexton.api.openapi.description import Operation, body, ok
from sexton.api.requests.bodies import read, refuse_unkeepable
from sexton.api.requests.parameters import id_of
from sexton.api.state import ApiRequest, ApiState, caller_of, state_of
from sexton.domain.job import Lane
from sexton.domain.run import Claimed
from sexton.ids import process_id
from sexton.operations.remote import claims as remote_claims
from sexton.operations.remote.claims import refuse_reserved
from sexton.store.fleet.remote_workers import RemoteWorker
from sexton.wire.remote import Acquired, AcquiredRun, AcquireRequest, StopRun, WorkerGone, WorkerHeard, WorkerHeartbeat

from . import claims

operation = partial(Operation, tag="remote workers")

BODY_LIMIT = 256 * 1024  # 1,000 ids of its runs, and the names of its tasks; it stays in memory for as long as the caller waits
_STOPPING = {"Retry-After": "1"}


@operation(
    "POST /v1/workers/acquire",
    id="acquireRuns",
    body=body(AcquireRequest, limit=BODY_LIMIT, **examples.ACQUIRING),
    answers=ok("The runs that it may start now, each with its lease.", Acquired),
    problems=(409,),
)
async def acquire(request: ApiRequest) -> Response[bytes]:
    """Take runs as a worker.

    Returns up to `limit` runs under a lease: at once if some are ready, else within `wait`, maybe with none. The first call
    without `worker_id` creates one; send it from then on. Make a call at least every third of `lease`: a worker that is silent
    for a whole one is dead, and its runs go to others. With `holding`, runs under its lease that it does not list are given
    back and use no attempt: send it only while no other acquire of this worker is running.
    """
    state, asked = state_of(request), await read(request, AcquireRequest)
    for field in ("tasks", "queues"):
        for index, name in enumerate(getattr(asked, field)):
            refuse_unkeepable(f"/{field}/{index}", name)
    refuse_unkeepable("/name", asked.name)
    refuse_reserved(asked.worker_id)
    if state.long_polling.closed:
        raise Refused("overloaded", "this process is stopping; try another", headers=_STOPPING)
    worker = _worker(asked)
    async with _until_gone(request) as gone:
        claimed, stop = await claims.acquire(state, caller_of(request), worker, asked.wait_s, gone)
        runs = [await _acquired(state, one) for one in claimed]
    return answer(Acquired(worker_id=worker.id, lease_s=asked.lease_s, runs=runs, stop=_stop(stop)))


def _worker(asked: AcquireRequest) -> RemoteWorker:
    return RemoteWorker(
        id=asked.worker_id or process_id(),
        name=asked.name,
        queues=asked.queues,
        tasks=asked.tasks,
        limit=asked.limit,
        concurrency=asked.concurrency or asked.limit + len(asked.holding or ()),
        lease_s=asked.lease_s,
        holding=asked.holding,
    )


def _stop(found: Sequence[remote_claims.StopRun]) -> list[StopRun]:
    return [StopRun(run_id=one.run_id, why=one.why) for one in found]


@asynccontextmanager
async def _until_gone(request: ApiRequest) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done once the caller has closed the connection."""

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(hung_up(), name="api caller")
    try:
        yield gone
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


@operation(
    "POST /v1/workers/{worker_id:str}/heartbeat",
    id="beatWorker",
    body=body(WorkerHeartbeat, limit=BODY_LIMIT, **examples.WORKER_HEARTBEATS),
    answers=ok("The worker is alive.", WorkerHeard),
    problems=(409,),
)
async def heartbeat(request: ApiRequest) -> Response[bytes]:
    """Send a heartbeat of a worker.

    For the worker and all its runs. `stop` lists what it must stop: runs whose job was cancelled, and those of `holding`
    that it no longer has. Runs that are under its lease for more than 10 s and not in `holding` are given back and use no
    attempt.
    """
    state, worker_id = state_of(request), id_of(request, "worker_id", "worker")
    asked = await read(request, WorkerHeartbeat)
    lease_s, stop = await state.remote_claims.beat(caller_of(request), worker_id, asked.holding, draining=asked.draining)
    return answer(WorkerHeard(worker_id=worker_id, lease_s=lease_s, stop=_stop(stop)))


@operation(
    "DELETE /v1/workers/{worker_id:str}",
    id="leaveWorker",
    answers=ok("The worker is removed.", WorkerGone),
    problems=(409, 422),
)
async def leave(request: ApiRequest) -> Response[bytes]:
    """Leave as a worker.

    Gives its runs back, which uses no attempt, and removes it from the list. Remote workers only.
    """
    worker_id = id_of(request, "worker_id", "worker")
    released = await state_of(request).remote_claims.leave(caller_of(request), worker_id)
    return answer(WorkerGone(worker_id=worker_id, released_count=released))


async def _acquired(state: ApiState, claimed: Claimed) -> AcquiredRun:
    lease, policy = claimed.lease, claimed.lease.policy
    own_key = f"{lease.job_id}:{claimed.fire_at.astimezone(UTC).isoformat()}"  # as ctx.idempotency_key
    return AcquiredRun(
        run_id=lease.run_id,
        job_id=lease.job_id,
        lease=await state.leases.written(lease),
        handler=claimed.task,
        payload=msgspec.Raw((claimed.payload_json or "null").encode()),
        attempt=lease.attempt,
        origin=lease.origin,  # type: ignore[arg-type]
        name=claimed.name,
        tenant=claimed.tenant,
        queue=claimed.queue,
        priority=Lane(claimed.lane).name.lower(),  # type: ignore[arg-type]
        job_version=claimed.job_version,
        fire_at=claimed.fire_at,
        due_at=claimed.due_at,
        timeout_s=claimed.timeout_s,
        progress_within_s=policy.progress_within_s,
        idempotency_key=claimed.idempotency_key or own_key,
        trace=claimed.trace,
        target=policy.target,
    )


HANDLERS = [acquire, heartbeat, leave]
