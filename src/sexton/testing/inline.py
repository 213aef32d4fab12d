"""Runs a job when it is submitted, in the caller's own asyncio task: no database, no worker, no retry.

Use it to test that a job is submitted and what its handler does. To test failures and timing, use the pipeline.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Hashable, Iterator, Sequence
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
from sexton.domain.batch import values_of
from sexton.domain.duration import Duration
from sexton.errors import UnknownTask
from sexton.handlers.context import Call, Context
from sexton.registry import Definition, Registry

from .inline_batch import run_batch

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
        """Jobs of a batch task that are submitted together share a call, as far as it allows that."""
        answers: dict[int, Submitted] = {}
        for definition, numbers in self._calls(requests):
            given = [requests[number] for number in numbers]
            if definition is None or definition.batch is None:
                answers[numbers[0]] = await self._run(given[0])
            else:
                answers |= zip(numbers, await self._run_batch(definition, given), strict=True)
        return [answers[number] for number in range(len(requests))]

    def submit_sync(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]:
        return _run_to_end(self.submit(requests))

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
        return Submitted(call.job_id, True, _Known(_kept(answer)))

    def _calls(self, requests: Sequence[Request]) -> list[tuple[Definition | None, list[int]]]:
        """Which of the requests share a call, by number."""
        calls: list[tuple[Definition | None, list[int]]] = []
        open_calls: dict[Hashable, list[int]] = {}
        for number, request in enumerate(requests):
            submission = request.submission
            definition = self._registry.get(submission.task)
            if definition is None or definition.batch is None:
                calls.append((definition, [number]))
                continue
            limit_key = None if submission.limit is None else submission.limit.key
            arguments = msgspec.json.decode(submission.payload)
            key = (submission.task, *values_of(definition.batch, submission.tenant or "default", limit_key, arguments))
            shared = open_calls.get(key)
            if shared is None or len(shared) >= definition.batch.size:
                shared = open_calls[key] = []
                calls.append((definition, shared))
            shared.append(number)
        return calls

    async def _run_batch(self, definition: Definition, requests: Sequence[Request]) -> list[Submitted]:
        self.requests += requests
        calls = [self._call(request) for request in requests]
        results = await run_batch(definition, calls)
        return [Submitted(call.job_id, True, _Known(_kept(result))) for call, result in zip(calls, results, strict=True)]

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


def _kept(answer: Any) -> Any:
    return None if answer is None else msgspec.json.decode(msgspec.json.encode(answer))


def _run_to_end(work: Coroutine[Any, Any, list[Submitted]]) -> list[Submitted]:
    """Also while a loop runs: a sync task may submit another job, because outside of inline tests it has its own thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
