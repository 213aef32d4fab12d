"""The calls about jobs, schedules and executions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack
from uuid import UUID

from sexton import wire
from sexton.client.error_translation import submission_faults
from sexton.client.options import BackfillOptions, Options, ScheduleOptions
from sexton.domain.duration import Duration
from sexton.domain.job import encoded_payload
from sexton.domain.schedule.document import OnName
from sexton.domain.targets import Target
from sexton.errors import InvalidSubmission

from . import calls
from .call import Call, Pages, encoded, get, part
from .sender import Sender
from .sync_and_async import Operation, Stream, call, pages
from .waiting import ENDED, PAUSE_S, Patience, result_of


class JobFilters(TypedDict, total=False):
    kind: Literal["once", "recurring"] | None
    status: wire.JobStatus | None
    name: str | None
    tag: str | None
    tenant: str | None
    queue: str | None
    handler: str | None
    submitted_from: datetime | None
    submitted_until: datetime | None


class ExecutionFilters(TypedDict, total=False):
    status: wire.ExecutionStatus | None
    tenant: str | None
    queue: str | None
    handler: str | None
    started_from: datetime | None
    started_until: datetime | None


class JobCalls(Sender):
    @call
    def schedule(
        self, handler: str | Target, payload: Any = None, *, on_name: OnName = "refuse", **options: Unpack[ScheduleOptions]
    ) -> Call[wire.Submitted]:
        """A recurring job: `client.schedule("report", cron="0 9 * * MON-FRI", timezone="America/New_York", name="report")`. If
        its name already exists it is rejected (`AlreadyExists`), or with `on_name="update"` updated."""
        return calls.submit(calls.schedule_request(handler, payload, **options), own_key=False, on_name=on_name)

    def schedule_request(
        self, handler: str | Target, payload: Any = None, **options: Unpack[ScheduleOptions]
    ) -> wire.JobRequest:
        """The same, not sent yet: for `submit_many`."""
        return calls.schedule_request(handler, payload, **options)

    def request(self, handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> wire.JobRequest:
        """A one-time job, not sent yet: for `submit_many`."""
        return calls.request(handler, payload, **options)

    @Operation
    async def submit_many(
        self, requests: Iterable[wire.JobRequest], *, partial: bool = False, on_name: OnName = "refuse"
    ) -> list[wire.BatchItem]:
        """In order. All or none for up to 10,000 jobs and 8 MiB; more are split into such chunks. With `partial`, an error
        in one job does not stop the others, and its item contains the error. With `on_name="update"` named schedules are
        created or updated."""
        return [item async for chunk in self._chunks(requests, partial, on_name) for item in chunk]

    @Stream
    def submit_chunks(
        self, requests: Iterable[wire.JobRequest], *, partial: bool = False, on_name: OnName = "refuse"
    ) -> AsyncGenerator[list[wire.BatchItem], None]:
        """As `submit_many`, chunk by chunk, for a caller that shows progress."""
        return self._chunks(requests, partial, on_name)

    @call
    def job(self, job_id: UUID | str) -> Call[wire.Job]:
        return _job(job_id)

    @pages
    def jobs(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Pages[wire.Job]:
        """Newest first, over all pages."""
        return Pages(get("/v1/jobs", wire.Page[wire.Job], **filters), limit)

    @call
    def edit(self, /, job_id: UUID | str, *, version: int | None = None, **changes: Any) -> Call[wire.Job]:
        """Changes a job that has not started. With `version`, only if it was not edited since: `VersionMismatch` otherwise."""
        body = encoded(calls.changes(changes))
        return Call("PATCH", _path(job_id), wire.Job, body=body, headers=_if_match(version))

    @call
    def preview_edit(self, /, job_id: UUID | str, **changes: Any) -> Call[wire.EditPreview]:
        """The fires that this edit of a recurring job would add and remove. Changes nothing."""
        body = encoded(calls.changes(changes))
        return Call("PATCH", _path(job_id), wire.EditPreview, query={"preview": "true"}, body=body, repeatable=True)

    @call
    def pause(self, job_id: UUID | str, *, note: str | None = None, resume_at: datetime | None = None) -> Call[wire.Job]:
        """A recurring job resumes automatically at `resume_at`."""
        change = wire.StatusChange(status="paused", note=note, resume_at=resume_at)
        return Call("PATCH", _path(job_id, "/status"), wire.Job, body=encoded(change))

    @call
    def resume(self, job_id: UUID | str) -> Call[wire.Job]:
        return Call("PATCH", _path(job_id, "/status"), wire.Job, body=encoded(_ACTIVE))

    @call
    def preview_resume(self, job_id: UUID | str) -> Call[wire.ResumePreview]:
        """The fires of a paused recurring job if it were resumed now. Changes nothing."""
        path, query = _path(job_id, "/status"), {"preview": "true"}
        return Call("PATCH", path, wire.ResumePreview, query=query, body=encoded(_ACTIVE), repeatable=True)

    @call
    def cancel(self, job_id: UUID | str) -> Call[wire.Cancelled]:
        return Call("DELETE", _path(job_id), wire.Cancelled)

    @call
    def retry(self, job_id: UUID | str) -> Call[wire.Job]:
        return Call("POST", _path(job_id, "/retry"), wire.Job)

    @call
    def run(self, job_id: UUID | str, payload: Any = None) -> Call[wire.Job]:
        """A recurring job fires now, in addition to its schedule; a pending one-time job is due now. A `payload` applies only
        to this run of a recurring job: to its retries, its dead letter and the replay of that."""
        if payload is None:
            return Call("POST", _path(job_id, "/run"), wire.Job)
        with submission_faults():
            body = encoded(wire.RunRequest(payload=encoded_payload(payload)))
        return Call("POST", _path(job_id, "/run"), wire.Job, body=body)

    @call
    def backfill(
        self,
        job_id: UUID | str,
        from_at: datetime,
        until: datetime | None = None,
        *,
        version: int | None = None,
        **options: Unpack[BackfillOptions],
    ) -> Call[wire.Backfill]:
        """Runs the past fires of a recurring job from `from_at` to before `until` (now, if left out), oldest first, each due
        `spacing` after the one before. With `version`, only if the job was not edited since."""
        given: Mapping[str, Any] = {name: calls.span(value) for name, value in options.items()}
        asked = wire.BackfillRequest(from_at=from_at, until=until, **given)
        path, headers = _path(job_id, "/backfill"), _if_match(version)
        return Call("POST", path, wire.Backfill, body=encoded(asked), headers=headers, repeatable=asked.dry_run)

    @call
    def stop_backfill(self, job_id: UUID | str) -> Call[wire.BackfillStopped]:
        """Its waiting runs never start; running ones continue."""
        return Call("DELETE", _path(job_id, "/backfill"), wire.BackfillStopped)

    @call
    def why(self, job_id: UUID | str) -> Call[wire.Why]:
        """Why it has or has not run."""
        return get(_path(job_id, "/why"), wire.Why)

    @call
    def preview(
        self, /, job_id: UUID | str | None = None, *, after: datetime | None = None, count: int = 10, **schedule: Any
    ) -> Call[wire.Preview]:
        """The next fires of a job, or of a rule without a job: `client.preview(cron="0 9 * * *")`."""
        rule = {name: calls.timing(name, value) for name, value in schedule.items() if value is not None}
        try:
            asked = wire.PreviewRequest(job_id=job_id, after=after, count=count, **rule)  # type: ignore[arg-type]
        except TypeError:
            wrong = next(name for name in rule if name not in wire.PreviewRequest.__struct_fields__)
            raise InvalidSubmission(f"/{wrong}", "is not a field of a schedule") from None
        return Call("POST", "/v1/schedules/preview", wire.Preview, body=encoded(asked), repeatable=True)

    @Operation
    async def result(self, job_id: UUID | str, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109
        """What the handler returned. `JobFailed` if the job ended otherwise, `ResultTimeout` if it has not ended yet."""
        return await self._result(job_id, timeout)

    @Operation
    async def ended(self, job_id: UUID | str, timeout: Duration | None = None) -> wire.Job:  # noqa: ASYNC109
        """Waits until the job has ended, with any status, and returns it."""
        return await self._ended(job_id, timeout)

    @pages
    def executions(
        self, job_id: UUID | str | None = None, *, limit: int | None = None, **filters: Unpack[ExecutionFilters]
    ) -> Pages[wire.Execution]:
        """The executions of one job, or all that match."""
        if job_id is not None:
            return Pages(get(_path(job_id, "/executions"), wire.Page[wire.Execution]), limit)
        return Pages(get("/v1/executions", wire.Page[wire.Execution], **filters), limit)

    @call
    def execution(self, execution_id: UUID | str) -> Call[wire.Execution]:
        return get(f"/v1/executions/{part(execution_id)}", wire.Execution)

    async def _submitted(self, request: wire.JobRequest) -> wire.Submitted:
        return await self._send(calls.submit(request, own_key=self._retries > 0))

    async def _chunks(
        self, requests: Iterable[wire.JobRequest], partial: bool, on_name: OnName
    ) -> AsyncGenerator[list[wire.BatchItem], None]:
        for first, batch in calls.batches(requests, partial=partial, on_name=on_name):
            try:
                yield calls.shifted((await self._send(batch)).items, first)
            except InvalidSubmission as error:
                raise calls.shifted_fault(error, first) from None

    async def _result(self, job_id: UUID | str, within: Duration | None) -> Any:
        return result_of(await self._ended(job_id, within))

    async def _ended(self, job_id: UUID | str, within: Duration | None) -> wire.Job:
        patience = Patience(job_id, within, self._now(), patience_s=self._timeout_s)
        while True:
            job = await self._send(_job(job_id, wait_s=patience.wait_s(self._now())))
            if job.status in ENDED:
                return job
            patience.check(self._now())
            await self._sleep(PAUSE_S)


_ACTIVE = wire.StatusChange(status="active")


def _job(job_id: UUID | str, *, wait_s: float = 0.0) -> Call[wire.Job]:
    """With `wait_s`, the API answers when the job has ended or that time has passed."""
    return get(_path(job_id), wire.Job, wait=f"{wait_s:.3f}s" if wait_s >= 0.001 else None)


def _path(job_id: UUID | str, below: str = "") -> str:
    return f"/v1/jobs/{part(job_id)}{below}"


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
