"""`App`: the tasks of a program and its connection to the database. It reads and connects only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload
from uuid import UUID

from sexton.clock import Clock, SwitchableClock, SystemClock
from sexton.domain.batch import Batch, run_arguments
from sexton.domain.duration import Duration
from sexton.domain.targets import Target
from sexton.errors import InvalidSubmission
from sexton.operations.cancel import Cancellation, cancel
from sexton.operations.recurring.backfill import Backfill, Stopped
from sexton.registry import Definition, Registry
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.work import jobs
from sexton.store.work.jobs import Execution, JobView

from .arguments import Parameters
from .background import Background
from .caller import APP
from .dead_letters import DeadLetters
from .job_control import JobControl
from .job_options import TaskOptions
from .location import open_database
from .options import (
    RESERVED,
    RULE_AND_BEHAVIOUR,
    BackfillOptions,
    Declaration,
    DeclaredOptions,
    Options,
    ScheduleOptions,
)
from .pools import Pools
from .request import DEFAULT_QUEUE, Request, Template
from .results import Results, Submitted
from .schedules import Scheduled, ScheduleRequest, Schedules, ScheduleWay
from .sharing import Sharing
from .submitter import Submitter, Way
from .task import Task

P = ParamSpec("P")
R = TypeVar("R")


class Scheduling(Protocol):
    """The type of `@app.cron` and similar decorators: they turn a function into a task, or take an existing task."""

    def __call__(self, fn: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class Elsewhere(Way, ScheduleWay, Protocol):
    """A replacement for the database."""


class App(Sharing):
    """Safe to share between threads and event loops. `async with app:` closes its connections at the end.

    Without a URL, here or in the settings, it uses the embedded PostgreSQL and starts it if needed. That server stops a few
    seconds after the last process that uses it has ended. Submitted jobs stay, and `sexton dev` runs them.
    """

    def __init__(
        self, database_url: str | None = None, *, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.registry = Registry()
        self.clock = SwitchableClock(clock or SystemClock())
        self._database_url, self._given_settings = database_url, settings
        self._pools = Pools(self._open_pool)
        self._background = Background()
        self._results = Results(self._pools, self._background)
        self._submitter = Submitter(self._pools, self._background, self._results, lambda: self.settings, self.clock)
        self._schedules = Schedules(self._pools, self._background, self.clock)
        self._known: dict[str, tuple[Parameters, Template]] = {}
        self._control = JobControl(self._pools, self.clock)
        self.dead_letters = DeadLetters(self._pools, self.clock)

    @cached_property
    def settings(self) -> Settings:
        return self._given_settings or Settings()

    @overload
    def task(self, fn: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, fn: None = None, /, *, name: str | None = None, process: bool = False, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...

    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        batch: Batch,
        name: str | None = None,
        process: bool = False,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[[Any, Any], R]], Task[..., R]]: ...

    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        process: bool = False,
        batch: Batch | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Makes a function a task, with the function's name by default. `process=True` runs it in a process that can be
        killed. With `batch`, one call of it executes several runs. The other options are the defaults of its jobs."""
        if fn is not None:
            return self._define(fn, name, process, options, batch)
        return lambda fn: self._define(fn, name, process, options, batch)

    def cron(self, expression: str, /, **options: Unpack[Declaration]) -> Scheduling:
        """Declares a schedule, by default with the name of its task. Workers and `sexton sync` write it to the database.

        On a plain function it also makes the task, with these options. On a task, the options are only for this schedule.
        """
        return self._declaring({"cron": expression}, **options)

    def every(self, interval: Duration, /, **options: Unpack[Declaration]) -> Scheduling:
        """As `cron`, at a fixed interval that never drifts."""
        return self._declaring({"every": interval}, **options)

    def rrule(self, rule: str, /, **options: Unpack[Declaration]) -> Scheduling:
        """As `cron`, by a recurrence rule of RFC 5545."""
        return self._declaring({"rrule": rule}, **options)

    def request(self, task: str | Target, payload: Any = None, **options: Unpack[Options]) -> Request:
        """A job for a task that may be defined in another program, for `submit_many`."""
        template, payload = self._bound(task, payload)
        return template.request(payload, options)

    async def submit(
        self, task: str | Target, payload: Any = None, *, connection: object | None = None, **options: Unpack[Options]
    ) -> Submitted:
        """Submits by name, for tasks that are defined in another program. For tasks of this program use `task.submit`."""
        return (await self._submitter.submit([self.request(task, payload, **options)], connection))[0]

    def schedule_request(self, task: str | Target, payload: Any = None, **options: Unpack[ScheduleOptions]) -> ScheduleRequest:
        """A recurring job, for `schedule_many`."""
        template, payload = self._bound(task, payload)
        return self._schedules.request(template, payload, cast(Mapping[str, Any], options))

    async def schedule(
        self, task: str | Target, payload: Any = None, *, connection: object | None = None, **options: Unpack[ScheduleOptions]
    ) -> Scheduled:
        """A recurring job: exactly one of `cron`, `rrule` and `every`. If the name already exists, that schedule is updated."""
        return (await self._schedules.write([self.schedule_request(task, payload, **options)], connection))[0]

    async def submit_many(self, requests: Iterable[Request], *, connection: object | None = None) -> list[Submitted]:
        """All of them or none, in any number; on your own connection at most 10,000 per call. They may come from a generator:
        jobs are sent while it makes the next ones."""
        return await self._submitter.submit(requests, connection)

    async def schedule_many(self, requests: Iterable[ScheduleRequest], *, connection: object | None = None) -> list[Scheduled]:
        """All of them or none, in any number; on your own connection at most 10,000 per call."""
        return await self._schedules.write(list(requests), connection)

    def submit_sync(
        self, task: str | Target, payload: Any = None, *, connection: object | None = None, **options: Unpack[Options]
    ) -> Submitted:
        return self._submitter.submit_sync([self.request(task, payload, **options)], connection)[0]

    def schedule_sync(
        self, task: str | Target, payload: Any = None, *, connection: object | None = None, **options: Unpack[ScheduleOptions]
    ) -> Scheduled:
        return self._schedules.write_sync([self.schedule_request(task, payload, **options)], connection)[0]

    def submit_many_sync(self, requests: Iterable[Request], *, connection: object | None = None) -> list[Submitted]:
        return self._submitter.submit_sync(list(requests), connection)

    def schedule_many_sync(self, requests: Iterable[ScheduleRequest], *, connection: object | None = None) -> list[Scheduled]:
        return self._schedules.write_sync(list(requests), connection)

    async def result(self, job_id: UUID, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  (as in Submitted.result)
        """What the job's handler returned, as `Submitted.result`, by the job's id."""
        return await self._results.wait(job_id, timeout)

    async def job(self, job_id: UUID) -> JobView:
        async with (await self._pools.here()).connection() as connection:
            return await jobs.show(connection, job_id)

    async def executions(self, job_id: UUID) -> list[Execution]:
        """Every try so far, oldest first."""
        async with (await self._pools.here()).connection() as connection:
            return await jobs.executions(connection, job_id)

    async def cancel(self, job_id: UUID) -> Cancellation:
        """Runs that have not started never start; running ones are asked to stop. `NotAllowedIn` if the job has ended."""
        async with (await self._pools.here()).transaction() as connection:
            return await cancel(connection, APP, job_id, now=self.clock.database_now())

    async def pause(self, job_id: UUID, *, note: str | None = None, until: datetime | None = None) -> JobView:
        """No run of it starts until it is resumed; running ones continue. A recurring job resumes automatically at `until`."""
        return await self._control.pause(job_id, note=note, until=until)

    async def resume(self, job_id: UUID) -> JobView:
        """`on_resume` decides about the fires that a recurring job missed during the pause."""
        return await self._control.resume(job_id)

    async def run(self, job_id: UUID, payload: Any = None) -> JobView:
        """A recurring job fires once now, in addition to its schedule; a one-time job is due now. A `payload` applies only to
        this run of a recurring job: to its retries, its dead letter and the replay of that."""
        return await self._control.run(job_id, payload, lambda task, given: self._bound(task, given)[1])

    async def backfill(
        self,
        job_id: UUID,
        from_at: datetime,
        until: datetime | None = None,
        *,
        version: int | None = None,
        **options: Unpack[BackfillOptions],
    ) -> Backfill:
        """Runs the past fires of a recurring job from `from_at` to before `until` (now, if left out), oldest first, each due
        `spacing` after the one before. With `version`, only if the job was not edited since. At most 1,000 per call."""
        return await self._control.backfill(job_id, from_at, until, version=version, **options)

    async def stop_backfill(self, job_id: UUID) -> Stopped:
        """Its waiting runs never start. Running ones and the schedule continue."""
        return await self._control.stop_backfill(job_id)

    def divert(self, way: Elsewhere | None) -> None:
        """Sends submissions and schedules to a replacement, or to the database again; for `sexton.testing`."""
        self._submitter.stand_in = self._schedules.stand_in = way

    async def database(self) -> Postgres:
        """The pool of the running event loop, for services that run on this app."""
        return await self._pools.here()

    async def close(self) -> None:
        """Closes the connections of the running event loop. A later call opens new ones."""
        await self._pools.close_here()

    def close_sync(self) -> None:
        """Closes the connections of the `_sync` calls and ends their thread."""
        self._background.stop(self._pools.close_here())

    async def __aenter__(self) -> Self:
        await self._pools.here()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _define(
        self, fn: Callable[..., Any], name: str | None, process: bool, options: TaskOptions, batch: Batch | None = None
    ) -> Task[..., Any]:
        if process and "<locals>" in fn.__qualname__:
            raise TypeError(f"{fn.__qualname__}: another process cannot import it; define it at the top level of its module")
        parameters = Parameters.of(fn, reserved=RESERVED) if batch is None else _of_batch(fn, batch)
        template = Template(name or fn.__name__, options, queue=DEFAULT_QUEUE)
        self.registry.add(Definition(template.task, fn, fn.__module__, fn.__qualname__, process, template.submission, batch))
        self._known[template.task] = parameters, template
        return Task(fn, parameters, template, self._submitter, self._schedules)

    def _declaring(
        self,
        rule: Mapping[str, Any],
        /,
        *,
        name: str | None = None,
        payload: Mapping[str, Any] | None = None,
        process: bool = False,
        **options: Unpack[DeclaredOptions],
    ) -> Scheduling:
        given = cast(dict[str, Any], options)
        of_job = {option: value for option, value in given.items() if option not in RULE_AND_BEHAVIOUR}

        def declare(fn: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(fn, Task):
                if process:
                    raise TypeError(f"{fn.name}: give process=True to the decorator that makes the task")
                task = fn
            else:
                task = self._define(fn, None, process, cast(TaskOptions, of_job))
            template, arguments = self._bound(task.name, payload)
            self.registry.declare(self._schedules.declared(template, arguments, {**given, **rule, "name": name or task.name}))
            return task

        return cast(Scheduling, declare)

    def _bound(self, task: str | Target, payload: Any) -> tuple[Template, Any]:
        """The template of a task, and the payload bound to its function; unchanged for a task of another program."""
        payload = {} if payload is None else payload
        known = self._known.get(task) if isinstance(task, str) else None
        parameters, template = known or (None, Template.of_unknown(task))
        if parameters is not None:
            if not isinstance(payload, Mapping):
                raise InvalidSubmission("/payload", f"{task} takes arguments by name; give a JSON object")
            payload = parameters.bind((), payload)
        return template, payload

    async def _open_pool(self) -> Postgres:
        return await open_database(self._database_url, self.settings)


def _of_batch(fn: Callable[..., Any], batch: Batch) -> Parameters:
    arguments = run_arguments(fn)
    known = {field.name for field in arguments.fields}
    unknown = [] if arguments.type is None else [name for name in batch.arguments if name not in known]
    if unknown:
        raise TypeError(
            f"{fn.__qualname__}: batch.by={unknown[0]!r} is no argument of its runs; they have {', '.join(sorted(known))}"
        )
    return Parameters.of_runs(fn, arguments, reserved=RESERVED)
