"""`GET /v1/jobs/{id}/why`: why it has or has not run."""

from __future__ import annotations

from functools import partial

from litestar import Response

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Operation, ok
from sexton.api.requests.parameters import id_of
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.operations.explain import explain

operation = partial(Operation, tag="jobs")


@operation("GET /v1/jobs/{job_id:str}/why", id="explainJob", answers=ok("The answer, and how it was found.", wire.Why))
async def show(request: ApiRequest) -> Response[bytes]:
    """Explain why a job has or has not run.

    An ordered chain of questions, each with the facts behind its answer; the first that finds an obstacle gives the answer. For
    one-time and recurring jobs, in any status.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    async with state.database.connection() as connection:
        found = await explain(connection, caller_of(request), wanted, now=state.clock.database_now())
    chain = [wire.WhyLink(check=one.check, ok=one.ok, detail=one.detail, evidence=one.evidence) for one in found.chain]
    return answer(wire.Why(job_id=found.job.id, status=found.job.status, answer=found.answer, chain=chain))  # type: ignore[arg-type]


HANDLERS = [show]
