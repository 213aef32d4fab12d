"""What a batch handler sees: `fn(ctx, runs)`. The context decides runs one by one; each run has its facts and its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

from sexton.domain.duration import Duration, seconds
from sexton.errors import RunFailed, Snooze
from sexton.handlers.context import Context, Stoppable

Args = TypeVar("Args")
Decide = Callable[[int, Any, BaseException | None], bool]  # which run, its result or its error; false: it was too late


class Run(Generic[Args]):
    """One run of a call. `args` are its arguments, of the type that `runs: list[Run[Args]]` names; a dict without one."""

    __slots__ = ("_context", "_index", "args")

    def __init__(self, context: Context, args: Args, index: int) -> None:
        self._context = context
        self._index = index
        self.args = args

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._context.task}, attempt {self.attempt}>"

    @property
    def id(self) -> UUID:
        return self._context.run_id

    @property
    def job_id(self) -> UUID:
        return self._context.job_id

    @property
    def attempt(self) -> int:
        """1 for the first try. A call that failed for several runs together does not count."""
        return self._context.attempt

    @property
    def name(self) -> str | None:
        """The job's name, if it was given one."""
        return self._context.name

    @property
    def tenant(self) -> str:
        return self._context.tenant

    @property
    def queue(self) -> str:
        return self._context.queue

    @property
    def fire_at(self) -> datetime:
        """The nominal time of this fire: the same for all its attempts."""
        return self._context.fire_at

    @property
    def due_at(self) -> datetime:
        """When this attempt was allowed to start."""
        return self._context.due_at

    @property
    def origin(self) -> str:
        """What made it fire: `schedule`, `now`, `backfill` or `replay`."""
        return self._context.origin

    @property
    def trace(self) -> str | None:
        """The W3C `traceparent` of the submitter."""
        return self._context.trace

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this run, different for any other run."""
        return self._context.idempotency_key

    @property
    def cancelled(self) -> bool:
        """True once nothing that the handler reports about it counts: it was cancelled, its lease was lost, or its own deadline
        has passed. Also when the whole call is asked to stop."""
        return self._context.cancelled

    def log(self, message: str) -> None:
        """Adds lines to the output of this run."""
        self._context.log(message)

    def progress(self, fraction: float | None = None, message: str | None = None, **data: Any) -> None:
        """Reports progress of this run."""
        self._context.progress(fraction, message, **data)


class BatchContext(Stoppable):
    """The first argument of a batch handler. Its methods may be called from any thread."""

    __slots__ = ("_decide", "_is_open", "_runs", "_task")

    def __init__(self, task: str, runs: Sequence[Run[Any]], decide: Decide, is_open: Callable[[int], bool]) -> None:
        super().__init__()
        self._task, self._runs, self._decide, self._is_open = task, runs, decide, is_open

    def __repr__(self) -> str:
        return f"<BatchContext of {self._task}, {len(self._runs)} runs>"

    @property
    def task(self) -> str:
        return self._task

    @property
    def cancelled(self) -> bool:
        """True once the call is asked to stop: by its timeout, a draining worker, or because no run of it is left."""
        if self._cancelled:
            return True
        undecided = self._undecided()
        return bool(undecided) and all(run.cancelled for run in undecided)

    def succeed(self, run: Run[Any], result: Any = None) -> bool:
        """Ends this run, whatever becomes of the others. False if it was decided before, cancelled or lost: the report is
        refused."""
        return self._decided(run, result, None)

    def fail(self, run: Run[Any], error: BaseException | str) -> bool:
        """This attempt of this run has failed, and its own retry policy decides what follows. The error is that of an exception
        that a handler raises: `PermanentError` and `RetryLater` work. False as in `succeed`."""
        return self._decided(run, None, RunFailed(error) if isinstance(error, str) else error)

    def snooze(self, run: Run[Any], delay: Duration) -> bool:
        """This run comes back after `delay`. It does not count as an attempt. False as in `succeed`."""
        return self._decided(run, None, Snooze(seconds(delay, field="delay")))

    def log(self, message: str) -> None:
        """Adds lines to the output of each run that is not decided yet."""
        for run in self._undecided():
            run.log(message)

    def progress(self, fraction: float | None = None, message: str | None = None, **data: Any) -> None:
        """Reports progress of each run that is not decided yet."""
        for run in self._undecided():
            run.progress(fraction, message, **data)

    def transaction(self, connection: Any = None) -> NoReturn:
        raise RuntimeError(
            "ctx.transaction() is not available in a batch task: it commits the end of one run; make the effect idempotent by "
            "run.idempotency_key instead"
        )

    def close(self) -> None:
        """The worker's: the call has ended, so whatever the handler has left behind decides nothing any more."""
        self._decide, self._is_open = _too_late, _is_closed

    def _undecided(self) -> list[Run[Any]]:
        return [run for run in self._runs if self._is_open(run._index)]

    def _decided(self, run: Run[Any], result: Any, error: BaseException | None) -> bool:
        index: Any = getattr(run, "_index", None)
        if index is None or index >= len(self._runs) or self._runs[index] is not run:
            raise ValueError(f"{run!r} is not a run of this call")
        return self._decide(index, result, error)


def _too_late(_index: int, _result: Any, _error: BaseException | None) -> bool:
    return False


def _is_closed(_index: int) -> bool:
    return False
