"""`/v1/executions` and `/v1/jobs/{id}/executions`: every try, with its output."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from litestar import Response, get

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Answer, Call, described
from sexton.api.requests import cursors
from sexton.api.requests.parameters import id_of, no_query, query_of, within_history
from sexton.api.requests.queries import ExecutionsQuery, JobExecutionsQuery
from sexton.api.state import ApiRequest, state_of
from sexton.store.database import Connection
from sexton.store.views import search
from sexton.store.work import jobs, run_payloads
from sexton.store.work.jobs import Execution

_PAGE = {200: Answer("A page.", wire.Page[wire.Execution])}


@get(
    "/v1/executions",
    opt=described(
        Call(
            id="listExecutions",
            tag="executions",
            summary="List executions, newest first",
            description="Those that have ended; with `status=running` those that run now, which have no id yet.",
            query=ExecutionsQuery,
            answers=_PAGE,
        )
    ),
)
async def find(request: ApiRequest) -> Response[bytes]:
    query = query_of(request, ExecutionsQuery)
    chosen = search.ExecutionFilter(
        job_id=query.job_id,
        status=query.status,
        task=query.handler,
        tenant=query.tenant,
        queue=query.queue,
        started_from=within_history(query.started_from),
        started_until=within_history(query.started_until),
    )
    return await _page(request, chosen, query.cursor, query.limit)


@get(
    "/v1/jobs/{job_id:str}/executions",
    opt=described(
        Call(
            id="listJobExecutions",
            tag="executions",
            summary="List the executions of a job, newest first",
            description="Those that have ended; the one that runs now is the job's `last_execution`.",
            query=JobExecutionsQuery,
            answers=_PAGE,
            problems=(404,),
        )
    ),
)
async def of_job(request: ApiRequest) -> Response[bytes]:
    query, wanted = query_of(request, JobExecutionsQuery), id_of(request, "job_id", "job")
    async with state_of(request).database.connection() as connection:
        await jobs.show(connection, wanted)
    return await _page(request, search.ExecutionFilter(job_id=wanted), query.cursor, query.limit)


async def _page(request: ApiRequest, chosen: search.ExecutionFilter, cursor: str | None, limit: int) -> Response[bytes]:
    before = cursors.decode(cursor, chosen)
    async with state_of(request).database.connection() as connection:
        found = await search.find_executions(connection, chosen, before=before, limit=limit)
        payloads = await _payloads(connection, found.rows)
    items = [views.execution(row, payloads.get(row.run_id)) for row in found.rows]
    return answer(wire.Page(items=items, next_cursor=cursors.encode(found.next_before, chosen)))


@get(
    "/v1/executions/{execution_id:str}",
    opt=described(
        Call(
            id="getExecution",
            tag="executions",
            summary="Look at an execution, with its output",
            answers={200: Answer("The execution.", wire.Execution)},
            problems=(404,),
        )
    ),
)
async def show(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    wanted = id_of(request, "execution_id", "execution")
    async with state_of(request).database.connection() as connection:
        found = await search.execution(connection, wanted)
        payloads = await _payloads(connection, [found])
    return answer(views.execution(found, payloads.get(found.run_id)))


async def _payloads(connection: Connection, rows: Sequence[Execution]) -> dict[UUID, str]:
    """By run; a page without runs by hand asks nothing."""
    by_hand = {row.run_id for row in rows if run_payloads.may_have_one(row.job_id, row.origin)}
    return await run_payloads.of_runs(connection, by_hand)


HANDLERS = [find, of_job, show]
