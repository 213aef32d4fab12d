"""One attempt, from its claim to its outcome: starts the handler, enforces its time limits, stops it when asked.

Every attempt ends in exactly one `Outcome`. `domain.retry` decides what follows, and the reporter writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Outcome, Released, Snoozed, Succeeded, TimedOut
from sexton.domain.run import Claimed, Report, report
from sexton.domain.targets import needs_of
from sexton.errors import (
    LeaseLost,
    NotHere,
    OutboundRefused,
    PermanentError,
    RetryLater,
    SextonError,
    Snooze,
    TargetFailed,
)
from sexton.handlers.context import Call, Context, ask_to_stop, live_output_of
from sexton.handlers.handle import HandedOver, Handle, Handler
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.python.process_pool import info_of
from sexton.handlers.tracebacks import drop_tracebacks_of
from sexton.ids import Rng

from .deadlines import Timer, Timers
from .missing_settings import MissingSettings

_encode = msgspec.json.Encoder().encode
_one_value = msgspec.json.Decoder(msgspec.Raw).decode

_AFTER_A_CALL = (TargetFailed, RetryLater, PermanentError, HandedOver)  # errors that a target's answer may be

LOST_GRACE_S = 1.0  # short, because another worker may already run the attempt


class Phase(Enum):
    TAKEN = auto()  # leased, waiting for a slot
    RUNNING = auto()
    REPORTING = auto()  # ended; the report is being written
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Bench:
    """What all executions of a worker share."""

    handlers: Mapping[str, Handler]
    clock: Clock
    timers: Timers
    rng: Rng
    grace_s: float
    missing: MissingSettings
    new_output: Callable[[], LiveOutput]
    transaction: Callable[[Execution, object | None], Any]  # for ctx.transaction()
    ended: Callable[[Execution, Report], None]
    left: Callable[[Execution, LiveOutput | None], None]  # its work continues elsewhere: the lease is handed over
    dropped: Callable[[Execution], None]  # the lease is lost: nothing to report
    freed: Callable[[Execution], None]  # its slot may be used again
    undead: Callable[[Execution], None]  # its run has ended, but its thread still runs and keeps its slot


class Execution:
    __slots__ = (
        "_bench",
        "_handle",
        "_lost",
        "_progress_timer",
        "_timers",
        "_verdict",
        "claimed",
        "context",
        "ending",
        "phase",
        "started_at",
        "taken_at",
    )

    def __init__(self, claimed: Claimed, taken_at: float, bench: Bench) -> None:
        self.claimed = claimed
        self.taken_at = taken_at  # monotonic, when the reply of the claim came; `claimed_at` in the database is not later
        self.started_at: float | None = None
        self.phase = Phase.TAKEN
        self.ending = False  # during the last statement of ctx.transaction(), which itself may delete the row
        self.context: Context | None = None
        self._bench = bench
        self._handle: Handle | None = None
        self._verdict: Outcome | None = None
        self._lost = False
        self._timers: list[Timer] = []
        self._progress_timer: Timer | None = None

    @property
    def worker_id(self) -> UUID:
        worker_id = self.claimed.lease.worker_id
        assert worker_id is not None, "an execution is always under a lease"  # noqa: S101
        return worker_id

    def start(self) -> None:
        bench, claimed = self._bench, self.claimed
        self.phase = Phase.RUNNING
        self.started_at = bench.clock.monotonic()
        if claimed.completed_by is not None:
            self._end(Succeeded(reason=f"its idempotency key was already completed by execution {claimed.completed_by}"))
            return
        try:
            target = None if claimed.lease.policy_json is None else claimed.lease.policy.target
            call = Call.of(claimed, _arguments(claimed) if target is None else {}, target)
            self.context = Context(call, partial(bench.transaction, self), bench.new_output)
            handle = bench.handlers[claimed.task].start(call, self.context)
        except NotHere as error:  # a script's secret
            self._end(Snoozed(bench.missing.returned(claimed.run_id, error), str(error)))
            return
        except SextonError as error:  # a traceback of Sexton's code does not help the user
            plain = msgspec.structs.replace(ErrorInfo.of(error), traceback=None)
            self._end(Failed(plain, permanent=isinstance(error, PermanentError)))
            return
        except Exception as error:
            self._end(Failed(ErrorInfo.of(error)))
            return
        self._handle = handle
        self._watch()
        handle.done.add_done_callback(self._handler_ended)

    def cancel(self) -> None:
        """A user cancelled the job."""
        self._stop(Cancelled())

    def release(self, reason: str) -> None:
        """Returns the run unfinished."""
        self._stop(Released(reason))

    def lose(self) -> None:
        """Another worker has the lease: stop, and drop the result."""
        if self._lost or self.phase not in (Phase.TAKEN, Phase.RUNNING):
            return
        self._lost = True
        lost = Lost("the lease was lost")
        if self.stopping:  # already stopping, but with a longer grace period
            self._timers.append(self._bench.timers.call_later(self._grace_s(lost), self.force))
        else:
            self._stop(lost)

    @property
    def stopping(self) -> bool:
        """True after the handler was asked to stop."""
        return self._verdict is not None

    @property
    def lease_s(self) -> float | None:
        return self.claimed.lease.policy.lease_s

    def _watch(self) -> None:
        limit_s, left_s = self.claimed.timeout_s, self.claimed.lease.deadline_left_s
        if left_s is not None and (limit_s is None or left_s < limit_s):
            limit_s = left_s
        if limit_s is not None:
            self._timers.append(self._bench.timers.call_later(limit_s, self._time_out))
        limit_s = self.claimed.lease.policy.progress_within_s
        if limit_s is not None:
            self._progress_timer = self._bench.timers.call_later(limit_s, self._check_progress)

    def _time_out(self) -> None:
        timeout_s, left_s = self.claimed.timeout_s, self.claimed.lease.deadline_left_s
        if left_s is not None and (timeout_s is None or left_s < timeout_s):
            self._stop(TimedOut("the deadline of all attempts passed"))
        else:
            self._stop(TimedOut(f"still running after its timeout of {timeout_s:g} s"))

    def _check_progress(self) -> None:
        limit_s = self.claimed.lease.policy.progress_within_s
        if self.phase is not Phase.RUNNING or limit_s is None or self.context is None or self.started_at is None:
            return
        live = live_output_of(self.context)
        elapsed_s = self._bench.clock.monotonic() - (self.started_at if live is None else live.last_written_at)
        if elapsed_s >= limit_s:
            self._stop(TimedOut(f"stuck: no progress for {elapsed_s:.0f} s; the limit is {limit_s:g} s"))
        else:
            self._progress_timer = self._bench.timers.call_later(limit_s - elapsed_s, self._check_progress)

    def _stop(self, verdict: Outcome) -> None:
        if self.phase is Phase.TAKEN:
            self.phase = Phase.RUNNING
            self._end(verdict)
        elif self.phase is Phase.RUNNING and self._verdict is None and self._handle is not None:
            self._verdict = verdict
            self._timers.append(self._bench.timers.call_later(self._grace_s(verdict), self.force))
            self._handle.ask_to_stop()

    def _grace_s(self, verdict: Outcome) -> float:
        own_s = self.claimed.lease.policy.grace_s
        grace_s = self._bench.grace_s if own_s is None else own_s
        return min(grace_s, LOST_GRACE_S) if isinstance(verdict, Lost) else grace_s

    def force(self) -> None:
        """Stops the handler without a grace period."""
        if self._handle is not None and self.phase is Phase.RUNNING:
            self._verdict = self._verdict or Released("the worker stopped")
            self._handle.force_stop()
            self._handler_ended(self._handle.done)

    def is_executed_by(self, task: object) -> bool:
        handle = self._handle
        return handle is not None and handle.done is task

    @property
    def companions(self) -> int:
        """How many runs its call was started with, this one included."""
        return 1

    def shares_call_with(self, other: Execution) -> bool:
        return self is other

    def ask_to_stop(self) -> None:
        """From any thread: sets the flag that a function in a thread looks at. It decides nothing."""
        context = self.context
        if context is not None:
            ask_to_stop(context)

    def reported_as(self, outcome: Outcome) -> Report:
        """From any thread: the report of this outcome, if the attempt ended now. It decides nothing."""
        return self._written(outcome)

    def _handler_ended(self, done: asyncio.Future[Any]) -> None:
        if self.phase is Phase.RUNNING and done.done():
            try:
                outcome = self._outcome(done)
            except Exception as broken:  # the handler's exception may raise where it is read; the slot must still be freed
                outcome = Failed(ErrorInfo.of(broken))
            if not isinstance(outcome, Succeeded):
                drop_tracebacks_of(done)
            self._end(outcome)

    def _outcome(self, done: asyncio.Future[Any]) -> Outcome | HandedOver:
        error = asyncio.CancelledError("the handler cancelled itself") if done.cancelled() else done.exception()
        if error is None or (isinstance(error, _AFTER_A_CALL) and not isinstance(error, OutboundRefused)):
            self._has_called()
        match error:
            case None:
                return Succeeded(done.result())  # even if it was asked to stop: the handler has had its effect
            case Snooze():
                return Snoozed(error.delay_s, error.reason)
            case NotHere():
                return Snoozed(self._bench.missing.returned(self.claimed.run_id, error), str(error))
            case PermanentError():
                return Failed(info_of(error), permanent=True)
            case HandedOver():  # even if it was asked to stop: this worker can no longer stop it
                return error
            case LeaseLost():
                return Lost("the lease was lost inside ctx.transaction()")
            case _ if self._verdict is not None:
                return self._verdict
            case RetryLater():
                return Failed(info_of(error), retry_after_s=_retry_after_s(error))
            case _:
                return Failed(info_of(error))

    def _has_called(self) -> None:
        """Its target was called, so this worker has all that the call needs."""
        missing, lease = self._bench.missing, self.claimed.lease
        if missing.has_any and lease.policy_json is not None:
            missing.found(needs_of(lease.policy.target))

    def _end(self, outcome: Outcome | HandedOver) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        if (
            self._lost and not self.ending
        ):  # otherwise ctx.transaction() may have recorded its success, and the reporter reads the history
            self.phase = Phase.GONE
            self._bench.dropped(self)
        elif isinstance(outcome, HandedOver):
            self.phase = Phase.REPORTING
            self._bench.left(self, None if self.context is None else live_output_of(self.context))
        else:
            self.phase = Phase.REPORTING
            self._bench.ended(self, self._written(outcome))
        # Context and handle refer to this execution: clearing them here frees all three without the garbage collector.
        handle, self._handle, self.context = self._handle, None, None
        if handle is None or handle.freed.done():
            self._bench.freed(self)
        else:
            self._bench.undead(self)
            handle.freed.add_done_callback(lambda _: self._bench.freed(self))

    def _written(self, outcome: Outcome) -> Report:
        try:
            return self._report(outcome)
        except Exception as error:  # any error caused by the handler's values: the slot and the lease must still be freed
            return self._report(Failed(ErrorInfo.of(error), permanent=True))

    def _report(self, outcome: Outcome) -> Report:
        result = None
        if isinstance(outcome, Succeeded) and outcome.result is not None:
            try:
                result = encoded_result(outcome.result)
            except PermanentError as error:
                outcome = Failed(ErrorInfo.of(error), permanent=True)
        live = None if self.context is None else live_output_of(self.context)
        started_s = took_s = None
        if self.started_at is not None:
            started_s = self.started_at - self.taken_at
            took_s = self._bench.clock.monotonic() - self.started_at
        return report(
            self.claimed.lease,
            outcome,
            self._bench.rng,
            started_s=started_s,
            took_s=took_s,
            result=result,
            progress=None if live is None else live.progress_json,
            output=None if live is None else live.output,
            key=self.claimed.idempotency_key,
            is_limited=self.claimed.is_limited,
        )


def encoded_result(result: object) -> msgspec.Raw:
    """The return value as JSON. A value that cannot be stored is a permanent error: the handler has had its effect, and
    another attempt would only repeat it."""
    try:
        encoded = _encode(result)
        _one_value(encoded)  # a msgspec.Raw may hold two, and the results of a batch are one list
    except Exception as error:  # a cycle, or an error in the result's own code
        raise PermanentError(f"result: cannot be encoded as JSON: {error}") from None
    if len(encoded) > RESULT_BYTES_LIMIT:
        raise PermanentError(
            f"result: has {len(encoded):,} bytes; the limit is {RESULT_BYTES_LIMIT:,}. Return a reference to it instead"
        )
    return msgspec.Raw(encoded)


def _arguments(claimed: Claimed) -> dict[str, Any]:
    if claimed.payload_json is None:
        raise PermanentError("the definition of this job was deleted, because it was older than the retention period")
    arguments = msgspec.json.decode(claimed.payload_json)
    if not isinstance(arguments, dict):
        raise PermanentError(f"payload: a Python task needs a JSON object of arguments, not {claimed.payload_json[:40]}")
    return arguments


def _retry_after_s(error: RetryLater) -> float | None:
    """A delay that is not a valid duration is ignored: the job's own policy decides."""
    try:
        return seconds(error.delay_s, field="delay_s")
    except Invalid:
        return None
