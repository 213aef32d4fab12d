"""`/v1/runs/…`: a caller that presents the lease of a run keeps it alive and ends it: a remote worker, or a target that was
called, answered 202 and calls back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from sexton.api.answers.problems import Refused, document, refusal
from sexton.api.answers.responses import answer
from sexton.api.openapi import worker_examples as examples
from sexton.api.openapi.description import Operation, body, ok
from sexton.api.requests.bodies import read
from sexton.api.requests.parameters import id_of
from sexton.api.requests.submissions import check_payload
from sexton.api.state import ApiRequest, ApiState, caller_of, state_of
from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.outcome import Succeeded, storable
from sexton.domain.signed_lease import SignedLease
from sexton.operations.remote.reports import Item
from sexton.operations.remote.reports import Reported as ReportedRun
from sexton.wire.remote import (
    CompletedItem,
    CompletedMany,
    CompleteItem,
    CompleteMany,
    CompleteRequest,
    FailRequest,
    LeaseRequest,
    ReleaseRequest,
    Reported,
    RunHeard,
    RunHeartbeat,
)

from .leases import shown

operation = partial(Operation, tag="remote workers")

BODY_LIMIT = 1024 * 1024  # a result of 64 KiB may be written with escapes six times as long
BATCH_BODY_LIMIT = 8 * 1024 * 1024
PROGRESS_BYTES_LIMIT = 16 * 1024
_AGAIN = "The same report again with the same lease gives the same answer; anything else is a 409, `lease_lost`."
_PROBLEMS = (401, 409)

R = TypeVar("R", bound=LeaseRequest)
Ending = CompleteRequest | FailRequest | ReleaseRequest


@operation(
    "POST /v1/runs/{run_id:str}/heartbeat",
    id="beatRun",
    body=body(RunHeartbeat, limit=BODY_LIMIT, **examples.RUN_HEARTBEATS),
    headers=("Authorization",),
    answers=ok("The run continues.", RunHeard),
    problems=_PROBLEMS,
)
async def heartbeat(request: ApiRequest) -> Response[bytes]:
    """Send a heartbeat of a run.

    With `progress` and lines of `output` to show. The answer says whether the job was cancelled, and when the sweeper will end
    the run. A job with `progress_within` must report that often once its target has answered 202.
    """
    state, asked, lease = await _asked(request, RunHeartbeat)
    progress = kept("/progress", asked.progress, PROGRESS_BYTES_LIMIT)
    output = None if asked.output is None else storable(asked.output)
    heard = await state.remote_reports.hear(caller_of(request), lease, progress=progress, output=output)
    return answer(RunHeard(run_id=lease.run_id, cancel_requested=heard.cancel_requested, ends_at=heard.ends_at))


def _ending(verb: str, kind: type[Ending], examples: Mapping[str, Any], summary: str, more: str = "") -> HTTPRouteHandler:
    """The call that ends a run, or one attempt of it."""

    @operation(
        f"POST /v1/runs/{{run_id:str}}/{verb}",
        id=f"{verb}Run",
        summary=summary,
        description=f"{more} {_AGAIN}".lstrip(),
        body=body(kind, limit=BODY_LIMIT, **examples),
        headers=("Authorization",),
        answers=ok("It is recorded.", Reported),
        problems=_PROBLEMS,
    )
    async def end(request: ApiRequest) -> Response[bytes]:
        state, asked, lease = await _asked(request, kind)
        return answer(_reported(await state.remote_reports.settle(caller_of(request), _item_of(lease, asked))))

    return end


def _item_of(lease: SignedLease, asked: Ending) -> Item:
    match asked:
        case CompleteRequest():
            return Item(lease, Succeeded(), kept("/result", asked.result), asked.output)
        case FailRequest():
            return Item(lease, asked.to_outcome(), output=asked.output)
        case ReleaseRequest():
            return Item(lease, asked.to_outcome())


complete = _ending("complete", CompleteRequest, examples.COMPLETING, "End a run: it succeeded")

_FAIL = (
    "The job's retry policy decides what follows; `permanent` sends it to the dead letters at once, `retry_after` is "
    "a lower bound for the wait."
)
fail = _ending("fail", FailRequest, examples.FAILING, "End an attempt: it failed", _FAIL)

_RELEASE = (
    "For another worker, at once or after `delay`; it uses no attempt. A run whose job was cancelled ends as "
    "cancelled, and an at-most-once run goes to the dead letters."
)
release = _ending("release", ReleaseRequest, examples.RELEASING, "Give a run back unfinished", _RELEASE)


@operation(
    "POST /v1/runs/complete",
    id="completeRuns",
    body=body(CompleteMany, limit=BATCH_BODY_LIMIT, **examples.COMPLETING_MANY),
    answers=ok("The result of each, in the order given.", CompletedMany),
)
async def complete_many(request: ApiRequest) -> Response[bytes]:
    """End many runs: they succeeded.

    Each item contains its own lease. A rejected item does not affect the others.
    """
    state, asked = state_of(request), await read(request, CompleteMany)
    refused: dict[int, Refused] = {}
    items: dict[int, Item] = {}
    for index, one in enumerate(asked.items):
        try:
            items[index] = await _item(state, one, f"/items/{index}")
        except Refused as problem:
            refused[index] = problem
    settled = await state.remote_reports.settle_all(caller_of(request), list(items.values())) if items else []
    became: dict[int, ReportedRun | Exception] = {**refused, **dict(zip(items, settled, strict=True))}
    answers = [_completed(one, became[index]) for index, one in enumerate(asked.items)]
    return answer(CompletedMany(items=answers, refused_count=sum(one.problem is not None for one in answers)))


async def _item(state: ApiState, asked: CompleteItem, at: str) -> Item:
    if asked.lease is None:
        raise Refused("lease_invalid", f"{at}/lease: send the `lease` that came with the run")
    lease = await state.leases.read(asked.run_id, asked.lease)
    return Item(lease, Succeeded(), kept(f"{at}/result", asked.result), asked.output)


def _completed(asked: CompleteItem, became: ReportedRun | Exception) -> CompletedItem:
    if isinstance(became, Exception):
        problem = document(refusal(became) or Refused("invalid", "PostgreSQL cannot store this"))
        return CompletedItem(run_id=asked.run_id, problem=problem)
    return CompletedItem(run_id=asked.run_id, reported=_reported(became))


def _reported(settled: ReportedRun) -> Reported:
    return Reported(**settled._asdict())


def kept(at: str, given: msgspec.Raw, bytes_limit: int = RESULT_BYTES_LIMIT) -> msgspec.Raw | None:
    """JSON that history can store; `null` is none."""
    check_payload(given, at, bytes_limit)
    return None if bytes(given) == b"null" else given


async def _asked(request: ApiRequest, kind: type[R]) -> tuple[ApiState, R, SignedLease]:
    """The request of a call about one run, from a caller that presents its lease."""
    state, run_id = state_of(request), id_of(request, "run_id", "run")
    asked = await read(request, kind)
    return state, asked, await state.leases.read(run_id, shown(request, asked.lease))


HANDLERS = [heartbeat, complete, fail, release, complete_many]
