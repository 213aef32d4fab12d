"""How much of a worker one host may use (bulkhead).

A host has a number of permits for calls in progress, and a short waiting line. A call that finds neither is postponed to a
later time, without using an attempt, so that a slow or dead host cannot fill the worker's slots. Every answer gives a host
more permits. A new or failing host has few, because it may be down.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sexton.handlers.breaker import Breaker, Patience
from sexton.ids import Rng

FIRST_PERMITS = 8
ROW_S = 0.25  # longest wait for a permit: a waiting call occupies a slot of the worker
SOONEST_S = 0.05  # shortest postponement: each one costs a write and a claim
SILENT_S = 5.0  # without an answer for this long, a host may be down
PARKED_PER_S = 10.0  # how many postponed calls of a dead host are tried again
AWAY_RESTS = 5  # the longest postponement, as a multiple of the longest rest; an answer of the host ends it earlier
AWAY_LIMIT = 20_000  # postponed runs remembered per host
CALLED_PER_ANSWER = 2  # postponed runs made due per answer, at most
TOGETHER_S = 5.0  # postponements are rounded up to this: one large batch now and then costs less than a few calls all the time
TOOK_S = 0.1  # assumed duration of a call, before any has ended
TOOK_S_MIN = 0.001
RISE = 1.05  # the shortest recent duration grows by this with every call. A mean would postpone hundreds after one slow call
HOST_LIMIT = 10_000  # hosts remembered


@dataclass(frozen=True, slots=True)
class Parked:
    """The call is postponed by `delay_s`."""

    delay_s: float
    reason: str


class Host:
    """One origin, as one worker sees it."""

    def __init__(self, name: str, permit_limit: int, patience: Patience, rng: Rng) -> None:
        self.name = name
        self._permit_limit = permit_limit
        self._permits = min(FIRST_PERMITS, permit_limit)
        self._away_max_s = patience.rest_max_s * AWAY_RESTS
        self._away: dict[UUID, int] = {}  # postponed runs, with their tokens
        self._together_s = min(TOGETHER_S, patience.rest_s)
        self._rng = rng
        self._breaker = Breaker(patience, rng)
        self._busy = 0
        self._waiting_line: deque[asyncio.Future[Parked | None]] = deque()
        self._took_s = TOOK_S
        self._is_answering = False  # whether the last call that ended was answered
        self._last_answer_at = 0.0  # the last answer, or the first call after a rest
        self._next_at = 0.0  # the earliest free time for a postponed call

    @property
    def is_idle(self) -> bool:
        """It has no calls, so it may be removed; its state is learned again."""
        return not self._busy and not self._waiting_line

    def arrived(self, run_id: UUID) -> None:
        """A postponed run was claimed again."""
        self._away.pop(run_id, None)

    def postpone(self, run_id: UUID, token: int) -> None:
        """The run was postponed."""
        self._away[run_id] = token
        if len(self._away) > AWAY_LIMIT:
            del self._away[next(iter(self._away))]

    def take_postponed(self) -> list[tuple[UUID, int]]:
        """The postponed runs that may come back now because a call was answered; the longest postponed first."""
        room = self._permits - self._busy - len(self._waiting_line)
        longest = list(islice(self._away, max(0, min(CALLED_PER_ANSWER, room))))
        return [(run_id, self._away.pop(run_id)) for run_id in longest]

    def admit(self, now: float) -> Parked | asyncio.Future[Parked | None] | None:
        """`None`: the call has a permit. A future: wait for its result. A call with a permit must report its end."""
        rest_s = self._breaker.rest_left_s(now)
        if rest_s > 0:
            return self._postponed_down(now, rest_s)
        if self._busy < self._permits or self._breaker.is_open:  # a probe needs no free permit
            self._take_permit(now)
            return None
        if len(self._waiting_line) < self._permits * ROW_S / self._call_duration_s(now):
            waiting: asyncio.Future[Parked | None] = asyncio.get_running_loop().create_future()
            self._waiting_line.append(waiting)
            return waiting
        return self._postponed_busy(now)

    def stop_waiting(self, waiting: asyncio.Future[Parked | None], now: float) -> None:
        """The call has waited too long for a permit: it is postponed."""
        if not waiting.done() and waiting in self._waiting_line:
            self._waiting_line.remove(waiting)
            waiting.set_result(self._postponed_busy(now))

    def give_up(self, waiting: asyncio.Future[Parked | None], now: float) -> None:
        """The waiting call was asked to stop."""
        if waiting.done() and not waiting.cancelled() and waiting.result() is None:
            self._busy -= 1
            self._breaker.undecided()
        elif waiting in self._waiting_line:
            self._waiting_line.remove(waiting)
        self._admit_others(now)

    def answered(self, now: float, took_s: float) -> None:
        self._permits = min(self._permits + 1, self._permit_limit)
        self._is_answering = True
        self._breaker.answered()
        self._leave(now, took_s)
        # Answers make postponed runs due, so new runs need not be postponed to after them.
        self._next_at = min(self._next_at, now + len(self._away) * self._took_s / self._permits)

    def failed(self, now: float, took_s: float) -> None:
        """The host was not reachable, or sent no response."""
        self._permits = max(1, min(self._permits // 2, FIRST_PERMITS))
        self._is_answering = False
        self._breaker.failed(now)
        self._leave(now, took_s)

    def undecided(self, now: float, took_s: float) -> None:
        self._breaker.undecided()
        self._leave(now, took_s)

    def _take_permit(self, now: float) -> None:
        if not self._busy:
            self._last_answer_at = now
        self._busy += 1
        self._breaker.begun()

    def _leave(self, now: float, took_s: float) -> None:
        self._busy -= 1
        self._last_answer_at = now
        self._took_s = max(min(took_s, self._took_s * RISE), TOOK_S_MIN)
        self._admit_others(now)

    def _admit_others(self, now: float) -> None:
        while self._waiting_line and (self._breaker.is_open or self._busy < self._permits):
            waiting = self._waiting_line.popleft()
            if waiting.done():
                continue
            rest_s = self._breaker.rest_left_s(now)
            if rest_s > 0:
                waiting.set_result(self._postponed_down(now, rest_s))
            else:
                self._take_permit(now)
                waiting.set_result(None)

    def _postponed_busy(self, now: float) -> Parked:
        reason = f"{self.name} has {self._busy} calls of this worker in progress"
        spacing_s = self._call_duration_s(now) / self._permits
        if self._is_answering and now - self._last_answer_at <= SILENT_S:
            return Parked(_rounded_up(self._postponed_s(now, SOONEST_S, spacing_s), SOONEST_S), reason)
        # The host has never answered, or not for a while: it may be down.
        delay_s = self._postponed_s(now, SOONEST_S, max(spacing_s, 1 / PARKED_PER_S))
        return Parked(_rounded_up(delay_s, self._together_s), reason)

    def _postponed_down(self, now: float, rest_s: float) -> Parked:
        will_ask = self._next_at <= now + rest_s  # this run is the next probe; the others are tried later, together
        delay_s = self._postponed_s(now, rest_s, 1 / PARKED_PER_S)
        return Parked(delay_s if will_ask else _rounded_up(delay_s, self._together_s), f"{self.name} is down")

    def _call_duration_s(self, now: float) -> float:
        """The estimated duration of a call: at least the time since the last answer."""
        return max(self._took_s, now - self._last_answer_at)

    def _postponed_s(self, now: float, soonest_s: float, spacing_s: float) -> float:
        """Postponed calls are spaced as fast as the host serves calls. A call with too long a wait asks again earlier."""
        at = max(now + soonest_s, self._next_at)
        if at - now > self._away_max_s:
            return self._away_max_s * self._rng.uniform(0.5, 1.0)
        self._next_at = at + spacing_s
        return at - now


def _rounded_up(delay_s: float, to_s: float) -> float:
    """Runs that are due at the same time are claimed together, which costs little more than claiming one."""
    return math.ceil(round(delay_s / to_s, 6)) * to_s


class Hosts:
    def __init__(self, make: Callable[[str], Host]) -> None:
        self._make = make
        self._hosts: dict[str, Host] = {}

    def get(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = self._make(name)
            if len(self._hosts) > HOST_LIMIT:
                self._forget()
        return host

    def _forget(self) -> None:
        for name in [name for name, host in self._hosts.items() if host.is_idle][: HOST_LIMIT // 10]:
            del self._hosts[name]

    def __len__(self) -> int:
        return len(self._hosts)
