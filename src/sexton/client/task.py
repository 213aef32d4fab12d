"""A task: a function, the defaults of its jobs, and the methods to submit them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast

from .arguments import Parameters
from .calls import Call
from .options import OF_A_SCHEDULE, RESERVED, Options
from .request import Request, Template
from .results import Submitted
from .schedules import Scheduled, ScheduleRequest, Schedules
from .submitter import Submitter

P = ParamSpec("P")
R = TypeVar("R")


class Prepared(Generic[P]):
    """A task with the options of a job, so that its keywords are only arguments."""

    def __init__(
        self,
        parameters: Parameters,
        template: Template,
        submitter: Submitter,
        options: Options,
        connection: object | None,
    ) -> None:
        self._parameters, self._template, self._submitter = parameters, template, submitter
        self._options, self._connection = options, connection

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Submitted:
        (answer,) = await self._submitter.submit([self._request(args, kwargs)], self._connection)
        return answer

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Submitted:
        (answer,) = self._submitter.submit_sync([self._request(args, kwargs)], self._connection)
        return answer

    def request(self, *args: P.args, **kwargs: P.kwargs) -> Request:
        if self._connection is not None:
            raise TypeError("a request is not sent yet; pass the connection to submit_many")
        return self._request(args, kwargs)

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        return self._template.request(self._parameters.bind(args, kwargs), self._options)


class Task(Generic[P, R]):
    """Made by `@app.task`. Calling it calls the function, as a unit test would."""

    # The first parameter is the Context, which only workers make: a direct call may pass any replacement.
    def __init__(
        self,
        fn: Callable[Concatenate[Any, P], R],
        parameters: Parameters,
        template: Template,
        submitter: Submitter,
        schedules: Schedules,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = template.task
        self._parameters, self._template, self._submitter = parameters, template, submitter
        self._schedules = schedules

    def __call__(self, ctx: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(ctx, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def options(self, *, connection: object | None = None, **options: Unpack[Options]) -> Prepared[P]:
        """`task.options(delay="24h", connection=connection).submit(user_id=42)`: arguments and options both type-checked."""
        return Prepared(self._parameters, self._template, self._submitter, options, connection)

    @property
    def submit(self) -> Call[P, Coroutine[Any, Any, Submitted]]:
        """`await task.submit(user_id=42, delay="24h", key="invoice-42")`"""
        return self._submit

    @property
    def submit_sync(self) -> Call[P, Submitted]:
        return self._submit_sync

    @property
    def request(self) -> Call[P, Request]:
        """The same, not sent yet: for `app.submit_many`."""
        return self._request

    async def schedule(self, *args: Any, connection: object | None = None, **given: Any) -> Scheduled:
        """`await task.schedule(cron="0 9 * * *", name="report", tenant="acme", user_id=42)`: a recurring job, with the
        options of `ScheduleOptions`. If the name already exists, that schedule is updated."""
        (answer,) = await self._schedules.write([self.schedule_request(*args, **given)], connection)
        return answer

    def schedule_sync(self, *args: Any, connection: object | None = None, **given: Any) -> Scheduled:
        (answer,) = self._schedules.write_sync([self.schedule_request(*args, **given)], connection)
        return answer

    def schedule_request(self, *args: Any, **given: Any) -> ScheduleRequest:
        """The same, not sent yet: for `app.schedule_many`."""
        if clash := self._parameters.known & OF_A_SCHEDULE:
            raise TypeError(
                f"{self.name}: {', '.join(sorted(clash))} may be an argument or an option here; "
                f"write app.schedule({self.name!r}, {{…}}, cron=…), where the arguments are separate"
            )
        if "connection" in given:
            raise TypeError("a request is not sent yet; pass the connection to schedule_many")
        options = {name: given.pop(name) for name in OF_A_SCHEDULE & given.keys()}
        return self._schedules.request(self._template, self._parameters.bind(args, given), options)

    def _submit(self, *args: Any, **given: Any) -> Coroutine[Any, Any, Submitted]:
        return self._prepared(given).submit(*args, **given)

    def _submit_sync(self, *args: Any, **given: Any) -> Submitted:
        return self._prepared(given).submit_sync(*args, **given)

    def _request(self, *args: Any, **given: Any) -> Request:
        if RESERVED.isdisjoint(given):
            return self._template.plain_request(self._parameters.bind(args, given))
        return self._prepared(given).request(*args, **given)

    def _prepared(self, given: dict[str, Any]) -> Prepared[...]:
        """Removes the options from `given`, which leaves the arguments."""
        options = {} if RESERVED.isdisjoint(given) else {name: given.pop(name) for name in RESERVED & given.keys()}
        connection = options.pop("connection", None)
        return Prepared(self._parameters, self._template, self._submitter, cast(Options, options), connection)
