"""`/v1/executions` and `/v1/jobs/{id}/executions`: every attempt, with its output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from litestar import Response

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.responses import answer
from sexton.api.openapi.description import Operation, ok
from sexton.api.requests.parameters import filter_of, id_of, query_of
from sexton.api.requests.queries import ExecutionsQuery, JobExecutionsQuery
from sexton.api.state import ApiRequest, state_of
from sexton.store.database import Connection
from sexton.store.views import search
from sexton.store.work import jobs, run_payloads
from sexton.store.work.jobs import Execution

from .pages import Paged, newest_first

operation = partial(Operation, tag="executions")

_PAGE = ok("A page.", wire.Page[wire.Execution])


@operation("GET /v1/executions", id="listExecutions", query=ExecutionsQuery, answers=_PAGE)
async def find(request: ApiRequest) -> Response[bytes]:
    """List executions, newest first.

    Ended ones; with `status=running` those that run now, which have no id yet.
    """
    query = query_of(request, ExecutionsQuery)
    return await _page(request, query, filter_of(search.ExecutionFilter, query))


@operation("GET /v1/jobs/{job_id:str}/executions", id="listJobExecutions", query=JobExecutionsQuery, answers=_PAGE)
async def of_job(request: ApiRequest) -> Response[bytes]:
    """List the executions of a job, newest first.

    Ended ones; the one that runs now is the job's `last_execution`.
    """
    query, wanted = query_of(request, JobExecutionsQuery), id_of(request, "job_id", "job")
    async with state_of(request).database.connection() as connection:
        await jobs.show(connection, wanted)
    return await _page(request, query, search.ExecutionFilter(job_id=wanted))


async def _page(request: ApiRequest, query: Paged, chosen: search.ExecutionFilter) -> Response[bytes]:
    payloads: dict[UUID, str] = {}

    async def find(connection: Connection, chosen: search.ExecutionFilter, **where: Any) -> search.Found[Execution]:
        found = await search.find_executions(connection, chosen, **where)
        payloads.update(await _payloads(connection, found.rows))
        return found

    return await newest_first(request, query, chosen, find, lambda row: views.execution(row, payloads.get(row.run_id)))


@operation("GET /v1/executions/{execution_id:str}", id="getExecution", answers=ok("The execution.", wire.Execution))
async def show(request: ApiRequest) -> Response[bytes]:
    """Get an execution, with its output."""
    wanted = id_of(request, "execution_id", "execution")
    async with state_of(request).database.connection() as connection:
        found = await search.execution(connection, wanted)
        payloads = await _payloads(connection, [found])
    return answer(views.execution(found, payloads.get(found.run_id)))


async def _payloads(connection: Connection, rows: Sequence[Execution]) -> dict[UUID, str]:
    """By run; a page without runs by hand needs no query."""
    by_hand = {row.run_id for row in rows if run_payloads.may_have_one(row.job_id, row.origin)}
    return await run_payloads.of_runs(connection, by_hand)


HANDLERS = [find, of_job, show]
