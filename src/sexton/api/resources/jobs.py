"""`/v1/jobs`: submit, read, list, edit, pause, cancel, run, retry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import assert_never
from uuid import UUID

from litestar import Response

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.problems import invalid
from sexton.api.answers.responses import answer, expected_version, tagged
from sexton.api.known_tasks import warning
from sexton.api.locked_requests import naming_schedules
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Body, Operation, body, ok
from sexton.api.requests.bodies import JSON, MERGE_PATCH, read, refuse_unkeepable
from sexton.api.requests.edits import changes_of
from sexton.api.requests.faults import checked
from sexton.api.requests.parameters import filter_of, id_of, query_of, span_of
from sexton.api.requests.queries import EditQuery, JobQuery, JobsQuery, StatusQuery, SubmitQuery
from sexton.api.requests.revisions import revision_of
from sexton.api.requests.submissions import check_job, key_of, payload_of, schedule_of, submission_of, trace_of
from sexton.api.state import ApiRequest, ApiState, caller_of, state_of
from sexton.clock import host_now
from sexton.domain.schedule.document import ScheduleDocument, warnings_of
from sexton.operations import jobs, one_time_jobs
from sexton.operations.cancel import CANCELLED
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import forecast, recurring_jobs
from sexton.operations.recurring.recurring_jobs import Pause
from sexton.operations.versions import AtVersion
from sexton.store import clock as database_clock
from sexton.store.uuid7 import is_recurring
from sexton.store.views import search
from sexton.store.work import jobs as store
from sexton.store.work.jobs import JobView

from .pages import newest_first

operation = partial(Operation, tag="jobs")

BODY_LIMIT = 2 * 1024 * 1024  # a payload of 256 KiB may be written with escapes six times as long
WAIT_S_MAX = 60.0
_LOOK_S = 0.1  # between two looks at a job that a caller waits for
_ENDED = ("completed", "failed", "cancelled")
_JOB = ok("The current job.", wire.Job, headers=("ETag",), example=examples.JOB)


@operation(
    "POST /v1/jobs",
    id="submitJob",
    query=SubmitQuery,
    body=body(wire.JobRequest, limit=BODY_LIMIT, **examples.SUBMISSIONS, **examples.RECURRING),
    headers=("Idempotency-Key", "traceparent"),
    answers={
        201: Answer(
            "Submitted, now or by the first request with this key.",
            wire.Submitted,
            headers=("Location", "ETag", "Idempotent-Replayed"),
            example={**examples.JOB, "created": True},
        ),
        200: Answer("The recurring job of that name, updated.", wire.Submitted, headers=("Location", "ETag")),
    },
    problems=(409, 429),
)
async def submit(request: ApiRequest) -> Response[bytes]:
    """Submit a job.

    Answered when durable. A job for a task that no live worker knows is accepted with a warning. If the name of a recurring job
    (`cron`, `rrule` or `every`) already exists, it is refused (409), or with `on_name=update` updated; it takes no idempotency
    key.
    """
    query, state = query_of(request, SubmitQuery), state_of(request)
    asked = await read(request, wire.JobRequest, check=check_job)
    key = key_of(request, asked.idempotency_key)
    if asked.is_recurring:
        async with naming_schedules(state, {"": asked}):
            return await _submit_recurring(request, state, asked, query, key)
    submission = submission_of(asked, submitted_by=caller_of(request).actor, trace=trace_of(request), key=key)
    warnings = await task_warnings(state, asked.task)
    stored = await state.group_commit.submit(submission)
    headers = {"Location": f"/v1/jobs/{stored.job.id}", "ETag": f'"{stored.job.version}"'}
    if not stored.created:
        headers["Idempotent-Replayed"] = "true"
    return answer(views.submitted(stored.job, created=stored.created, warnings=warnings), status=201, headers=headers)


async def _submit_recurring(
    request: ApiRequest, state: ApiState, asked: wire.JobRequest, query: SubmitQuery, key: str | None
) -> Response[bytes]:
    warnings = await task_warnings(state, checked(asked, lambda one: one.task, all_of=check_job))
    caller, trace = caller_of(request), trace_of(request)
    async with state.database.transaction() as connection:
        now = await database_clock.now(connection, now=state.clock.database_now())
        document = schedule_of(asked, now=now, on_name=query.on_name, submitted_by=caller.actor, trace=trace, key=key)
        warnings += warnings_of(document, after=now)
        (written,) = await recurring_jobs.submit(connection, caller, [document], now=state.clock.database_now())
        view = await store.show(connection, written.id)
    headers = {"Location": f"/v1/jobs/{view.id}", "ETag": f'"{view.version}"'}
    shown = views.submitted(view, created=written.created, warnings=warnings)
    return answer(shown, status=201 if written.created else 200, headers=headers)


async def task_warnings(state: ApiState, task: str) -> list[str]:
    if not await state.known_tasks.unknown([task]):
        return []
    if state.settings.strict_tasks:
        raise invalid("/handler", f"no live worker knows the task {task!r}, and strict_tasks is on")
    return [warning(task)]


@operation(
    "GET /v1/jobs",
    id="listJobs",
    query=JobsQuery,
    answers={200: Answer("A page.", wire.Page[wire.Job], example={"items": [examples.JOB], "next_cursor": None})},
)
async def find(request: ApiRequest) -> Response[bytes]:
    """List jobs, newest first."""
    query = query_of(request, JobsQuery)
    return await newest_first(request, query, filter_of(search.JobFilter, query), search.find_jobs, views.job)


@operation(
    "GET /v1/jobs/{job_id:str}",
    id="getJob",
    query=JobQuery,
    headers=("If-None-Match",),
    answers={**_JOB, 304: Answer("Nothing has changed.", headers=("ETag",))},
)
async def show(request: ApiRequest) -> Response[bytes]:
    """Get a job.

    A read after a write sees it. With `wait` the answer comes when the job has ended or time is up.
    """
    wait = query_of(request, JobQuery).wait
    wait_s = 0.0 if wait is None else span_of(wait, "?wait", most_s=WAIT_S_MAX)
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    view = await _show(state, wanted)
    until = state.clock.monotonic() + wait_s
    while view.status not in _ENDED and state.clock.monotonic() < until and not state.live_stream.closed:
        with state.load_shedder.aside():
            await asyncio.sleep(_LOOK_S)
        view = await _show(state, wanted)
    return tagged(request, views.job(view, forecast.doubts(view, after=state.clock.database_now() or host_now())), view.version)


async def _show(state: ApiState, job_id: UUID) -> JobView:
    async with state.database.connection() as connection:
        return await store.show(connection, job_id)


@operation(
    "PATCH /v1/jobs/{job_id:str}",
    id="editJob",
    query=EditQuery,
    body=Body(
        {JSON: wire.JobEdit, MERGE_PATCH: wire.JobEdit}, {**examples.EDITS, **examples.EDITS_OF_RECURRING}, limit=BODY_LIMIT
    ),
    headers=("If-Match",),
    answers=ok(
        "The current job; or what would change.",
        (wire.Job, wire.EditPreview),
        headers=("ETag",),
        example=examples.JOB,
    ),
    problems=(409, 412),
)
async def edit(request: ApiRequest) -> Response[bytes]:
    """Edit a pending or recurring job.

    A one-time job only before its first attempt; a recurring one at any time, from its next fire on. Fields that you leave out
    keep their value; `null` resets to the default. With `preview=true` nothing is changed, and the answer shows which fires of
    the next 30 days the edit adds and removes.
    """
    query = query_of(request, EditQuery)
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    check = None if is_recurring(wanted) else changes_of
    asked, version = await read(request, wire.JobEdit, JSON, MERGE_PATCH, check=check), expected_version(request)
    caller, now = caller_of(request), state.clock.database_now()
    if not is_recurring(wanted):
        if query.preview:
            raise invalid("?preview", "is for recurring jobs; a one-time job has one time")
        changes = checked(asked, changes_of)
        async with state.database.transaction() as connection:
            return _job_answer(await one_time_jobs.edit(connection, caller, AtVersion(wanted, version), changes, now=now))

    warnings: list[str] = []

    def revise(view: JobView, at: datetime) -> ScheduleDocument:
        document = checked(asked, lambda one: revision_of(one, view, now=at))
        warnings.extend(warnings_of(document, after=at))
        return document

    async with state.database.transaction() as connection:
        if query.preview:
            monotonic = state.clock.monotonic
            seen = await forecast.of_edit(connection, caller, wanted, revise, monotonic=monotonic, now=now)
            return answer(wire.EditPreview(**seen._asdict(), warnings=warnings))
        view = await recurring_jobs.revise(connection, caller, AtVersion(wanted, version), revise, now=now)
        return _job_answer(view, warnings)


@operation(
    "PATCH /v1/jobs/{job_id:str}/status",
    id="setJobStatus",
    query=StatusQuery,
    body=body(wire.StatusChange, limit=BODY_LIMIT, **examples.STATUS_CHANGES, **examples.PAUSES_OF_RECURRING),
    answers=ok(
        "The current job; or what would fire.",
        (wire.Job, wire.ResumePreview),
        headers=("ETag",),
        example=examples.JOB,
    ),
    problems=(409,),
)
async def set_status(request: ApiRequest) -> Response[bytes]:
    """Pause, resume or cancel a job.

    `paused` pauses a job that does not run, `active` resumes it, `cancelled` ends it. A paused recurring job does not fire, and
    its running runs continue; with `resume_at` it becomes active by itself at that time. With `preview=true` the answer to
    `active` shows what a resume would fire, and nothing is changed.
    """
    query = query_of(request, StatusQuery)
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    change = await read(request, wire.StatusChange)
    refuse_unkeepable("/note", change.note)
    caller, now = caller_of(request), state.clock.database_now()
    async with state.database.transaction() as connection:
        if query.preview:
            if change.status != "active":
                raise invalid("?preview", "is only for the resume of a recurring job")
            return answer(_resume_preview(await forecast.of_resume(connection, caller, wanted, now=now)))
        if change.resume_at is not None and change.status != "paused":
            raise invalid("/resume_at", "is only for pausing a recurring job; leave it out")
        match change.status:
            case "paused":
                view = await jobs.pause(connection, caller, wanted, Pause(change.note, change.resume_at), now=now)
            case "active":
                view = await jobs.resume(connection, caller, wanted, now=now)
            case "cancelled":
                await cancel_job(connection, caller, wanted, reason=change.note or CANCELLED, now=now)
                view = await store.show(connection, wanted)
            case _:
                assert_never(change.status)
    return _job_answer(view)


def _resume_preview(seen: forecast.ResumeForecast) -> wire.ResumePreview:
    gaps = [wire.FireGap(first=one.first_at, last=one.last_at, count=one.count, reason=one.reason) for one in seen.missed]
    return wire.ResumePreview(fires=seen.fires, missed=gaps)


@operation(
    "DELETE /v1/jobs/{job_id:str}",
    id="cancelJob",
    answers=ok("The number of ended and running runs.", wire.Cancelled),
    problems=(409,),
)
async def cancel(request: ApiRequest) -> Response[bytes]:
    """Cancel a job.

    Waiting runs never start; running ones are asked to stop, then forced. Its history stays.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    async with state.database.transaction() as connection:
        done = await cancel_job(connection, caller_of(request), wanted, now=state.clock.database_now())
        view = await store.show(connection, wanted)
    return answer(wire.Cancelled(job=views.job(view), ended_count=done.ended_count, asked_count=done.asked_count))


@operation("POST /v1/jobs/{job_id:str}/retry", id="retryJob", answers=_JOB, problems=(409,))
async def retry(request: ApiRequest) -> Response[bytes]:
    """Try a job again now.

    A failed job is replayed with a fresh budget; one that waits between attempts is due now.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    async with state.database.transaction() as connection:
        view = await one_time_jobs.retry(connection, caller_of(request), wanted, now=state.clock.database_now())
    return _job_answer(view)


@operation(
    "POST /v1/jobs/{job_id:str}/run",
    id="runJob",
    body=Body({JSON: wire.RunRequest}, examples.RUNS, required=False, limit=BODY_LIMIT),
    answers=_JOB,
    problems=(409,),
)
async def run(request: ApiRequest) -> Response[bytes]:
    """Run a job now.

    A recurring job fires once, outside its schedule and under its overlap policy, on request with another payload, which is for
    this run only; a pending one-time job, also between two attempts, is due now.
    """
    state, wanted = state_of(request), id_of(request, "job_id", "job")
    asked = await read(request, wire.RunRequest) if await request.body() else wire.RunRequest()
    payload, now = payload_of(asked), state.clock.database_now()
    async with state.database.transaction() as connection:
        return _job_answer(await jobs.run_now(connection, caller_of(request), wanted, payload=payload, now=now))


def _job_answer(view: JobView, warnings: Sequence[str] = ()) -> Response[bytes]:
    return answer(views.job(view, warnings), headers={"ETag": f'"{view.version}"'})


HANDLERS = [submit, find, show, edit, set_status, cancel, run, retry]
