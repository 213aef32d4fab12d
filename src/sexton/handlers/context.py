"""The first argument of a handler: the facts of this attempt, and methods to report progress, snooze and give up.

The facts are one plain `Call`, so that another process can make the same context.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from sexton.domain.duration import Duration, seconds
from sexton.domain.fault import Invalid
from sexton.domain.outcome import storable
from sexton.domain.run import Claimed, Previous
from sexton.domain.targets import Target
from sexton.errors import PermanentError, Snooze

from .live_output import LiveOutput

PROGRESS_BYTES_LIMIT = 16 * 1024

_encode = msgspec.json.Encoder().encode
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_first_word = threading.Lock()


class Stopped(BaseException):
    """The handler was asked to stop. Like `asyncio.CancelledError` it is not an `Exception`, so that `except Exception` in the
    handler does not catch it."""


class Call(msgspec.Struct, frozen=True):
    """One attempt as plain data."""

    job_id: UUID
    run_id: UUID
    attempt: int
    task: str
    name: str | None
    tenant: str
    queue: str
    fire_at: datetime
    due_at: datetime
    trace: str | None
    key: str | None
    arguments: dict[str, Any]
    origin: str = "now"
    previous: Previous | None = None
    target: Target | None = None  # what to call; null for a Python task
    payload_json: str | None = None  # for the target; a Python task has `arguments`
    timeout_s: float | None = None  # of this attempt
    token: int = 0  # of the lease: signed together with the run's id for a target that calls back

    @classmethod
    def of(cls, claimed: Claimed, arguments: dict[str, Any], target: Target | None = None) -> Call:
        lease = claimed.lease
        return cls(
            lease.job_id,
            lease.run_id,
            lease.attempt,
            claimed.task,
            claimed.name,
            claimed.tenant,
            claimed.queue,
            claimed.fire_at,
            claimed.due_at,
            claimed.trace,
            claimed.idempotency_key,
            arguments,
            lease.origin,
            claimed.previous,
            target,
            None if target is None else claimed.payload_json,
            claimed.timeout_s,
            lease.token,
        )


class Stoppable(ABC):
    """A context, as far as asking its handler to stop goes."""

    __slots__ = ("_cancelled",)

    def __init__(self) -> None:
        self._cancelled = False

    @property
    @abstractmethod
    def task(self) -> str:
        """Its name."""

    @property
    def cancelled(self) -> bool:
        """True once the handler is asked to stop: by a cancel, a timeout or a draining worker."""
        return self._cancelled

    def check_cancelled(self) -> None:
        """Raises `Stopped` if the handler is asked to stop. For functions in threads and processes; asyncio itself cancels an
        `async` function."""
        if self.cancelled:
            raise Stopped(f"{self.task} was asked to stop")


class Context(Stoppable):
    """One attempt, as its handler sees it. Its methods may be called from any thread."""

    __slots__ = ("_call", "_live_output", "_new_output", "_transaction")

    def __init__(
        self,
        call: Call,
        transaction: Callable[[Any], Any] | None = None,
        new_output: Callable[[], LiveOutput] = LiveOutput,
    ) -> None:
        self._call = call
        self._transaction = transaction
        self._new_output = new_output
        self._live_output: LiveOutput | None = None  # created on first use: most handlers write nothing
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<Context of {self.task}, run {self.run_id}, attempt {self.attempt}>"

    @property
    def job_id(self) -> UUID:
        return self._call.job_id

    @property
    def run_id(self) -> UUID:
        return self._call.run_id

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._call.attempt

    @property
    def task(self) -> str:
        return self._call.task

    @property
    def name(self) -> str | None:
        """The job's name, if it was given one."""
        return self._call.name

    @property
    def tenant(self) -> str:
        return self._call.tenant

    @property
    def queue(self) -> str:
        return self._call.queue

    @property
    def fire_at(self) -> datetime:
        """The nominal time of this fire: the same for all its attempts."""
        return self._call.fire_at

    @property
    def due_at(self) -> datetime:
        """When this attempt was allowed to start."""
        return self._call.due_at

    @property
    def origin(self) -> str:
        """What made it fire: `schedule`, `now`, `backfill` or `replay`."""
        return self._call.origin

    @property
    def previous(self) -> Previous | None:
        """For a recurring job, the last try of the previous fire: its `status` and `fire_at`. `None` for the first fire."""
        return self._call.previous

    @property
    def trace(self) -> str | None:
        """The W3C `traceparent` of the submitter."""
        return self._call.trace

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this run, different for any other run. Pass it to services that must not act twice."""
        call = self._call
        return f"{call.job_id}:{call.fire_at.astimezone(UTC).isoformat()}" if call.key is None else call.key

    def progress(self, fraction: float | None = None, message: str | None = None, **data: Any) -> None:
        """Reports progress: a fraction from 0 to 1, a message, any JSON. Only the last report is kept. Without arguments it
        only reports that the handler is alive."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise Invalid("fraction", f"{fraction!r} must be between 0 and 1")
        given = {"fraction": fraction, "message": None if message is None else storable(message)}
        facts = {name: value for name, value in given.items() if value is not None} | data
        if facts:
            self._writable_output().progressed(_encoded_progress(facts))
        else:
            self._writable_output().is_alive()

    def log(self, message: str) -> None:
        """Adds lines to this attempt's output. Above 64 KiB, only the first and the newest lines are kept."""
        self._writable_output().logged(message)

    def snooze(self, delay: Duration) -> NoReturn:
        """Ends this execution and runs again after `delay`. It does not count as an attempt."""
        raise Snooze(seconds(delay, field="delay"))

    def give_up(self, reason: str) -> NoReturn:
        """Ends the run and moves it to the dead letters, without another attempt."""
        raise PermanentError(reason)

    def transaction(self, connection: Any = None) -> Any:
        """A transaction that commits the handler's own writes and the end of this run together."""
        if self._transaction is None:
            raise RuntimeError(
                "ctx.transaction() is not available with process=True: it needs the worker's database connection"
            )
        return self._transaction(connection)

    def _writable_output(self) -> LiveOutput:
        if self._live_output is None:
            with _first_word:
                if self._live_output is None:
                    self._live_output = self._new_output()
        return self._live_output


# The worker's side of a context. Handlers do not see it.


def ask_to_stop(context: Stoppable) -> None:
    context._cancelled = True


def live_output_of(context: Context) -> LiveOutput | None:
    """What the handler has written; `None` if it has written nothing."""
    return context._live_output


def own_output_of(context: Context) -> LiveOutput:
    """For output that comes from elsewhere, such as the child process that runs the handler."""
    return context._writable_output()


def _encoded_progress(facts: dict[str, Any]) -> msgspec.Raw:
    try:
        encoded = _ESCAPED_NUL.sub(rb"\1\\u2400", _encode(facts))
    except (TypeError, ValueError) as error:
        raise Invalid("progress", f"cannot be encoded as JSON: {error}") from None
    if len(encoded) > PROGRESS_BYTES_LIMIT:
        raise Invalid("progress", f"has {len(encoded):,} bytes; the limit is {PROGRESS_BYTES_LIMIT:,}")
    return msgspec.Raw(encoded)
