"""What follows an outcome: the end, another try after a delay, or the dead letters. Pure: the caller passes the rng."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Literal, assert_never

import msgspec

from .duration import Duration, seconds
from .fault import Invalid
from .outcome import (
    Cancelled,
    ErrorInfo,
    Failed,
    Lost,
    Missed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)

Backoff = Literal["immediate", "linear", "exponential", "list"]


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often a run is tried and how long it waits in between.

    With the default (exponential, base 30 s, factor 2, at most 30 min) the waits are 30 s, 1 min, 2 min, 4 min, each
    lengthened or shortened by up to `jitter`. `rules` choose another policy by exception: the first class of the
    exception (itself, then its bases) that has a rule decides.
    """

    max_attempts: int = 5
    backoff: Backoff = "exponential"
    base_s: float = 30.0
    factor: float = 2.0
    max_s: float = 1800.0
    jitter: float = 0.25
    delays_s: tuple[float, ...] = ()
    rules: Mapping[str, Retry | Literal["never"]] = msgspec.field(default_factory=dict)
    replays: int = 0  # how often a transient failure is automatically replayed from the dead letters
    replay_after_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 1000:
            raise Invalid("max_attempts", f"{self.max_attempts} must be between 1 and 1000")
        if not 0 <= self.jitter <= 0.25:
            raise Invalid("jitter", f"{self.jitter} must be between 0 and 0.25")
        if not 1 <= self.factor <= 1000:
            raise Invalid("factor", f"{self.factor} must be between 1 and 1000")
        if not 0 <= self.replays <= 1000:
            raise Invalid("replays", f"{self.replays} must be between 0 and 1000")
        seconds(self.base_s, field="base")
        seconds(self.max_s, field="max")
        seconds(self.replay_after_s, field="replay_after")
        for delay_s in self.delays_s:
            seconds(delay_s, field="delays")
        if self.backoff == "list" and not self.delays_s:
            raise Invalid("delays", "give at least one delay")

    @classmethod
    def never(cls) -> Retry:
        return cls(max_attempts=1)

    @classmethod
    def immediate(cls, *, max_attempts: int = 5) -> Retry:
        return cls(max_attempts=max_attempts, backoff="immediate")

    @classmethod
    def linear(cls, *, base: Duration = "30s", max: Duration = "30m", max_attempts: int = 5, jitter: float = 0.25) -> Retry:  # noqa: A002
        """Waits of base, 2 x base, 3 x base, …"""
        return cls(max_attempts, "linear", seconds(base, field="base"), max_s=seconds(max, field="max"), jitter=jitter)

    @classmethod
    def exponential(
        cls,
        *,
        base: Duration = "30s",
        factor: float = 2.0,
        max: Duration = "30m",  # noqa: A002
        max_attempts: int = 5,
        jitter: float = 0.25,
    ) -> Retry:
        """Waits of base, base x factor, base x factor², …"""
        return cls(max_attempts, "exponential", seconds(base, field="base"), factor, seconds(max, field="max"), jitter)

    @classmethod
    def after(cls, *delays: Duration, jitter: float = 0.25) -> Retry:
        """Exactly these waits, varied by `jitter`, then the dead letters: `Retry.after("1s", "5s", "1m")` is four attempts."""
        spans = tuple(seconds(delay, field="delays") for delay in delays)
        return cls(len(spans) + 1, "list", jitter=jitter, delays_s=spans)

    def on(self, kind: type[BaseException] | str, rule: Retry | Literal["never"]) -> Retry:
        """This policy, but with `rule` for one exception class and its subclasses; "never" makes the error permanent."""
        name = (
            kind
            if isinstance(kind, str)
            else kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        return msgspec.structs.replace(self, rules={**self.rules, name: rule})

    def for_error(self, error: ErrorInfo) -> Retry | Literal["never"]:
        return next((self.rules[kind] for kind in error.kinds if kind in self.rules), self)

    def delay_s(self, attempt: int, rng: Random) -> float:
        """The wait after the attempt with this number (from 1)."""
        match self.backoff:
            case "immediate":
                return 0.0
            case "linear":
                plain_s = min(self.base_s * attempt, self.max_s)
            case "exponential":
                plain_s = min(self.base_s * self.factor ** min(attempt - 1, 64), self.max_s)
            case "list":
                plain_s = self.delays_s[min(attempt, len(self.delays_s)) - 1]
            case _:
                assert_never(self.backoff)
        return plain_s * (1 + rng.uniform(-self.jitter, self.jitter))


DEFAULT = Retry()
WITH_PARENT_FACTOR = 3  # times `max_lost`: losses together with the parent of the worker that bury a run


class RetryState(msgspec.Struct, frozen=True):
    """What a run has used of its budgets when an execution ends."""

    attempt: int  # number of this try, counted against max_attempts
    lost_count: int  # earlier tries that were lost with their worker
    retry: Retry = DEFAULT
    max_lost: int = 3
    at_most_once: bool = False
    deadline_left_s: float | None = None  # until the deadline of all attempts together
    replay_count: int = 0


class Finish(msgspec.Struct, frozen=True):
    """The run ends here, and so does a one-time job."""

    ending: Literal["completed", "cancelled"]


class RetryIn(msgspec.Struct, frozen=True):
    """Back to waiting (to ready without delay). `spends` names the budget that is charged: attempts, losses, or none."""

    delay_s: float
    spends: Literal["attempt", "loss", "nothing"]


class Bury(msgspec.Struct, frozen=True):
    """To the dead letters. `replay_in_s` is set when a transient failure is to be replayed automatically."""

    reason: str
    permanent: bool
    replay_in_s: float | None = None


Next = Finish | RetryIn | Bury


def decide(outcome: Outcome, state: RetryState, rng: Random) -> Next:
    match outcome:
        case Succeeded():
            return Finish("completed")
        case Cancelled():
            return Finish("cancelled")
        case Snoozed(delay_s):
            return _within_deadline(RetryIn(delay_s, "nothing"), state, "the deadline is before the end of the snooze")
        case Released(reason):
            return _bury_lost(reason, state) if state.at_most_once and outcome.has_started else RetryIn(0.0, "nothing")
        case Lost():
            return _after_loss(outcome, state)
        case Missed(reason):
            return Bury(reason, permanent=True)
        case TimedOut(reason):
            return _after_failure(state.retry, reason, 0.0, state, rng)
        case Failed(error, permanent, retry_after_s):
            rule = state.retry.for_error(error)
            if permanent or rule == "never":
                return Bury(f"permanent error: {error.type}: {error.message}"[:500], permanent=True)
            return _after_failure(rule, f"{error.type}: {error.message}"[:400], retry_after_s or 0.0, state, rng)
        case _:
            assert_never(outcome)


def _after_failure(retry: Retry, reason: str, at_least_s: float, state: RetryState, rng: Random) -> Next:
    if state.at_most_once:
        return Bury(f"at most once: {reason}", permanent=True)
    if state.attempt >= retry.max_attempts:
        return _transient(f"attempt {state.attempt} of {retry.max_attempts} failed: {reason}", state)
    delay_s = max(retry.delay_s(state.attempt, rng), at_least_s)
    return _within_deadline(RetryIn(delay_s, "attempt"), state, f"the deadline is before the next attempt: {reason}")


def _after_loss(lost: Lost, state: RetryState) -> Next:
    """Rule "losses have their own budget": a loss is charged to `max_lost`, not to the attempts. Rule "suspects apart": only if
    it is the run's own. If the parent of the worker was lost as well, the parent may be the cause: such losses are charged, so
    that a run that takes down both comes to an end, but they bury it later."""
    if state.at_most_once:
        return _bury_lost(lost.reason, state)
    if lost.held > 1:
        return _within_deadline(RetryIn(0.0, "nothing"), state, f"lost after its deadline: {lost.reason}")
    count, limit = state.lost_count + 1, state.max_lost * (WITH_PARENT_FACTOR if lost.with_parent else 1)
    if count >= limit:
        workers = "1 worker" if count == 1 else f"{count} workers"
        return Bury(f"it took down {workers}; the limit is {limit}: {lost.reason}", permanent=False)
    return _within_deadline(RetryIn(0.0, "loss"), state, f"lost after its deadline: {lost.reason}")


def _bury_lost(reason: str, state: RetryState) -> Bury:
    return Bury(f"at most once, and its only start was lost: {reason}", permanent=True)


def _transient(reason: str, state: RetryState) -> Bury:
    again = state.replay_count < state.retry.replays
    return Bury(reason, permanent=False, replay_in_s=state.retry.replay_after_s if again else None)


def _within_deadline(retry: RetryIn, state: RetryState, reason: str) -> Next:
    if state.deadline_left_s is not None and retry.delay_s >= state.deadline_left_s:
        return Bury(reason, permanent=False)
    return retry
