"""`/v1/jobs/{id}/backfill`: runs a past range of a recurring job on request, and stops it."""

from __future__ import annotations

from functools import partial

from litestar import Response

from sexton import wire
from sexton.api.answers.responses import answer, expected_version
from sexton.api.openapi import examples
from sexton.api.openapi.description import Operation, body, ok
from sexton.api.requests.bodies import read
from sexton.api.requests.parameters import id_of
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.operations.recurring import backfill
from sexton.operations.versions import AtVersion

operation = partial(Operation, tag="jobs")


@operation(
    "POST /v1/jobs/{job_id:str}/backfill",
    id="backfillJob",
    body=body(wire.BackfillRequest, **examples.BACKFILLS),
    headers=("If-Match",),
    answers=ok("The runs that were written, or would be.", wire.Backfill),
    problems=(409, 412),
)
async def start(request: ApiRequest) -> Response[bytes]:
    """Run the past fires of a recurring job.

    The fires of its schedule from `from` up to, not including, `until`, oldest first, each due `spacing` after the previous
    one. Fires that have succeeded, live, or are in the dead letters are left out; with `fires: all` only those that live. The
    schedule continues: a regular fire waits for at most one run of the backfill, and goes before the rest. At most 1,000 per
    call. With `dry_run` nothing is changed.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    asked, version = await read(request, wire.BackfillRequest), expected_version(request)
    async with state.database.transaction() as connection:
        done = await backfill.start(
            connection,
            caller_of(request),
            AtVersion(wanted, version),
            asked.to_domain(),
            monotonic=state.clock.monotonic,
            now=state.clock.database_now(),
        )
    return answer(wire.Backfill(**done._asdict()))


@operation(
    "DELETE /v1/jobs/{job_id:str}/backfill",
    id="stopBackfill",
    answers=ok("The number of ended and running runs.", wire.BackfillStopped),
)
async def stop(request: ApiRequest) -> Response[bytes]:
    """Stop the backfill of a job.

    Its waiting runs never start, and history records it; running ones continue, and so does the schedule.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    async with state.database.transaction() as connection:
        done = await backfill.stop(connection, caller_of(request), wanted, now=state.clock.database_now())
    return answer(wire.BackfillStopped(job_id=wanted, ended_count=done.ended_count, running_count=done.running_count))


HANDLERS = [start, stop]
