"""Runs a job when it is submitted, in the caller's own asyncio task: no database, no worker, no retry.

Use it to test that a job is submitted and what its handler does. To test failures and timing, use the pipeline.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from sexton.client.app import App
from sexton.client.request import Request
from sexton.client.results import Results, Submitted
from sexton.client.schedules import Scheduled, ScheduleRequest
from sexton.clock import Clock
from sexton.domain.duration import Duration
from sexton.errors import UnknownTask
from sexton.handlers.context import Call, Context
from sexton.registry import Registry

_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # the current time, because no database is asked


@contextmanager
def inline(app: App) -> Iterator[Inline]:
    """While open, `submit`, `submit_sync` and similar calls run the handler at once. Its exceptions reach the submitter."""
    stand_in = Inline(app.registry, app.clock)
    app.divert(stand_in)
    try:
        yield stand_in
    finally:
        app.divert(None)


class _Known(Results):
    """A result that is already known."""

    def __init__(self, value: Any) -> None:
        self._value = value

    async def wait(self, job_id: UUID, within: Duration | None) -> Any:
        return self._value

    def wait_sync(self, job_id: UUID, within: Duration | None) -> Any:
        return self._value


class Inline:
    """Replaces the database. `requests` has all submitted jobs in order, and `schedules` all schedules, which do not fire
    here."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry, self._clock = registry, clock
        self.requests: list[Request] = []
        self.schedules: list[ScheduleRequest] = []

    async def submit(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]:
        return [await self._run(request) for request in requests]

    def submit_sync(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]:
        return [_run_to_end(self._run(request)) for request in requests]

    def schedule(self, requests: Sequence[ScheduleRequest]) -> list[Scheduled]:
        self.schedules += requests
        return [Scheduled(uuid4(), True, True) for _ in requests]

    async def _run(self, request: Request) -> Submitted:
        self.requests.append(request)
        definition = self._registry.get(request.submission.task)
        if definition is None:
            raise UnknownTask(f"{request.submission.task} is not a task of this app, so it cannot run inline")
        call = self._call(request)
        answer = definition.fn(Context(call), **call.arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        kept = None if answer is None else msgspec.json.decode(msgspec.json.encode(answer))
        return Submitted(call.job_id, True, _Known(kept))

    def _call(self, request: Request) -> Call:
        submission, job_id = request.submission, uuid4()
        now = request.submission.run_at or self._clock.database_now() or _SOME_TIME
        return Call(
            job_id=job_id,
            run_id=job_id,
            attempt=1,
            task=submission.task,
            name=submission.name,
            tenant=submission.tenant or "default",
            queue=submission.queue or "default",
            fire_at=now,
            due_at=now,
            trace=submission.trace,
            key=submission.key,
            arguments=msgspec.json.decode(submission.payload),
        )


def _run_to_end(work: Coroutine[Any, Any, Submitted]) -> Submitted:
    """Also while a loop runs: a sync task may submit another job, because outside of inline tests it has its own thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
