"""One attempt, from its claim to its outcome: start the handler, watch its time, stop it when asked, name what came of it.

Everything a handler may do ends in exactly one `Outcome`; what follows from that is `domain.retry`'s to decide and the
reporter's to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

import msgspec

from sexton.clock import Clock
from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Outcome, Released, Snoozed, Succeeded, TimedOut
from sexton.domain.run import Claimed, Report, report
from sexton.errors import HandedOver, LeaseLost, PermanentError, RetryLater, SextonError, Snooze
from sexton.handlers.context import Call, Context, live_output_of
from sexton.handlers.handle import Handle, Handler
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.python.process_pool import info_of
from sexton.ids import Rng

_encode = msgspec.json.Encoder().encode

LOST_GRACE_S = 1.0  # another worker may have begun the run by now: there is no time for manners


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """An event loop is one; a test moves its own."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class Phase(Enum):
    TAKEN = auto()  # leased, waiting for a slot
    RUNNING = auto()
    REPORTING = auto()  # ended; the report is on its way
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Bench:
    """What all executions of a worker share."""

    handlers: Mapping[str, Handler]
    clock: Clock
    timers: Timers
    dice: Rng
    grace_s: float
    new_said: Callable[[], LiveOutput]
    transaction: Callable[[Execution, object | None], Any]  # what ctx.transaction() gives
    ended: Callable[[Execution, Report], None]
    left: Callable[[Execution, LiveOutput | None], None]  # its work goes on elsewhere: the lease is to be handed over
    dropped: Callable[[Execution], None]  # the lease is gone: nothing to report
    freed: Callable[[Execution], None]  # its slot may be used again
    undead: Callable[[Execution], None]  # ended for everybody else, but its thread goes on and holds its slot


class Execution:
    __slots__ = (
        "_bench",
        "_handle",
        "_lost",
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
        self.taken_at = taken_at  # monotonic, when the claim was answered: no later than this the database said `claimed_at`
        self.started_at: float | None = None
        self.phase = Phase.TAKEN
        self.ending = False  # inside the last statement of ctx.transaction(): the row may vanish by our own doing
        self.context: Context | None = None
        self._bench = bench
        self._handle: Handle | None = None
        self._verdict: Outcome | None = None
        self._lost = False
        self._timers: list[Timer] = []

    def start(self) -> None:
        bench, claimed = self._bench, self.claimed
        self.phase = Phase.RUNNING
        self.started_at = bench.clock.monotonic()
        if claimed.completed_by is not None:
            self._end(Succeeded(reason=f"its key was completed before, by execution {claimed.completed_by}"))
            return
        try:
            target = None if claimed.lease.policy_json is None else claimed.lease.policy.target
            call = Call.of(claimed, _arguments(claimed) if target is None else {}, target)
            self.context = Context(call, partial(bench.transaction, self), bench.new_said)
            handle = bench.handlers[claimed.task].start(call, self.context)
        except SextonError as error:  # our own words; where they were found is nobody's concern
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
        """Somebody asked for the job to stop."""
        self._stop(Cancelled())

    def release(self, reason: str) -> None:
        """Hand it back unfinished."""
        self._stop(Released(reason))

    def lose(self) -> None:
        """The lease has gone to somebody else: stop, and let the result go."""
        if self._lost or self.phase not in (Phase.TAKEN, Phase.RUNNING):
            return
        self._lost = True
        lost = Lost("the lease was lost")
        if self.stopping:  # on its way out, at an ease that it no longer has
            self._timers.append(self._bench.timers.call_later(self._grace_s(lost), self.force))
        else:
            self._stop(lost)

    @property
    def stopping(self) -> bool:
        """It has been asked to stop."""
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
        silence_s = self.claimed.lease.policy.progress_within_s
        if silence_s is not None:
            self._timers.append(self._bench.timers.call_later(silence_s, self._check_progress))

    def _time_out(self) -> None:
        timeout_s, left_s = self.claimed.timeout_s, self.claimed.lease.deadline_left_s
        if left_s is not None and (timeout_s is None or left_s < timeout_s):
            self._stop(TimedOut("the deadline of all attempts passed"))
        else:
            self._stop(TimedOut(f"still running after its timeout of {timeout_s:g} s"))

    def _check_progress(self) -> None:
        silence_s = self.claimed.lease.policy.progress_within_s
        if self.phase is not Phase.RUNNING or silence_s is None or self.context is None or self.started_at is None:
            return
        live = live_output_of(self.context)
        silent_s = self._bench.clock.monotonic() - (self.started_at if live is None else live.said_at)
        if silent_s >= silence_s:
            self._stop(TimedOut(f"stuck: no progress for {silent_s:.0f} s, its limit is {silence_s:g} s"))
        else:
            self._timers.append(self._bench.timers.call_later(silence_s - silent_s, self._check_progress))

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
        """No more patience."""
        if self._handle is not None and self.phase is Phase.RUNNING:
            self._verdict = self._verdict or Released("the worker stopped")
            self._handle.force_stop()
            self._handler_ended(self._handle.done)

    def _handler_ended(self, done: asyncio.Future[Any]) -> None:
        if self.phase is Phase.RUNNING and done.done():
            self._end(self._outcome(done))

    def _outcome(self, done: asyncio.Future[Any]) -> Outcome | HandedOver:
        error = asyncio.CancelledError("the handler was cancelled from inside") if done.cancelled() else done.exception()
        match error:
            case None:
                return Succeeded(done.result())  # even if it was asked to stop: its effect has happened
            case Snooze():
                return Snoozed(error.delay_s, error.reason)
            case PermanentError():
                return Failed(info_of(error), permanent=True)
            case HandedOver():  # even if it was asked to stop: nobody here can stop it any more
                return error
            case LeaseLost():
                return Lost("the lease was lost inside ctx.transaction()")
            case _ if self._verdict is not None:
                return self._verdict
            case RetryLater():
                return Failed(info_of(error), retry_after_s=_retry_after_s(error))
            case _:
                return Failed(info_of(error))

    def _end(self, outcome: Outcome | HandedOver) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._lost and not self.ending:  # else ctx.transaction() may have recorded its success: history will tell
            self.phase = Phase.GONE
            self._bench.dropped(self)
        elif isinstance(outcome, HandedOver):
            self.phase = Phase.REPORTING
            self._bench.left(self, None if self.context is None else live_output_of(self.context))
        else:
            self.phase = Phase.REPORTING
            self._bench.ended(self, self._written(outcome))
        # Context and handle know this execution too: letting go of them here frees all three without the garbage collector.
        handle, self._handle, self.context = self._handle, None, None
        if handle is None or handle.freed.done():
            self._bench.freed(self)
        else:
            self._bench.undead(self)
            handle.freed.add_done_callback(lambda _: self._bench.freed(self))

    def _written(self, outcome: Outcome) -> Report:
        try:
            return self._report(outcome)
        except Exception as error:  # of the handler's making, whatever it is: its slot and its lease must not hang on it
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
            self._bench.dice,
            started_s=started_s,
            took_s=took_s,
            result=result,
            progress=None if live is None else live.progress_json,
            output=None if live is None else live.output,
            key=self.claimed.idempotency_key,
        )


def encoded_result(result: object) -> msgspec.Raw:
    """The return value as JSON. One that cannot be kept fails the run for good: its effect has happened, so another attempt
    would only repeat it."""
    try:
        encoded = _encode(result)
    except Exception as error:  # a cycle, or the result's own code
        raise PermanentError(f"result: cannot be written as JSON: {error}") from None
    if len(encoded) > RESULT_BYTES_LIMIT:
        raise PermanentError(
            f"result: {len(encoded):,} bytes, the limit is {RESULT_BYTES_LIMIT:,}; return a reference to it instead"
        )
    return msgspec.Raw(encoded)


def _arguments(claimed: Claimed) -> dict[str, Any]:
    if claimed.payload_json is None:
        raise PermanentError("the definition of this job is gone; it was older than the history that is kept")
    arguments = msgspec.json.decode(claimed.payload_json)
    if not isinstance(arguments, dict):
        raise PermanentError(f"payload: a Python task takes an object of arguments, not {claimed.payload_json[:40]}")
    return arguments


def _retry_after_s(error: RetryLater) -> float | None:
    """A hint that is no span of time is none: the job's own policy decides alone."""
    try:
        return seconds(error.delay_s, field="delay_s")
    except Invalid:
        return None
