"""How much of a worker one host may take.

A host has some seats for calls under way, and a row before them, as long as can be served in a moment. Whoever finds no place
is sent away with an appointment, spending no attempt, so that neither a slow host nor a dead one fills the worker's slots.
Hosts that answer earn more seats with every answer; one that is new or failing has few: who knows whether it is there at all?
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

FIRST_SEATS = 8
ROW_S = 0.25  # to wait for a seat; a slot that waits is lost to others
SOONEST_S = 0.05  # an appointment is a row written and read again: not for less
SILENT_S = 5.0  # longer than a hiccup, of whoever has answered so far
PARKED_PER_S = 10.0  # how fast those sent away by a dead host come back to ask again
AWAY_RESTS = 5  # the longest anybody is sent away for, in longest rests; they are called once there is room
AWAY_LIMIT = 20_000  # remembered, to be called
CALLED_PER_ANSWER = 2  # at most: as the host shows that it can take them
TOGETHER_S = 5.0  # what they are told is rounded up to: hundreds at a time, now and then, are felt less than a few all the time
TOOK_S = 0.1  # of a call, before any has ended
TOOK_S_MIN = 0.001
RISE = 1.05  # with every call: the shortest of late is what calls take. A mean would send hundreds far away after one hiccup
HOST_LIMIT = 10_000  # remembered


@dataclass(frozen=True, slots=True)
class Parked:
    """Come back in so many seconds."""

    delay_s: float
    reason: str


class Host:
    """One origin, as one worker sees it."""

    def __init__(self, name: str, seat_limit: int, patience: Patience, dice: Rng) -> None:
        self.name = name
        self._seat_limit = seat_limit
        self._seats = min(FIRST_SEATS, seat_limit)
        self._away_max_s = patience.rest_max_s * AWAY_RESTS
        self._away: dict[UUID, int] = {}  # runs by their tokens
        self._together_s = min(TOGETHER_S, patience.rest_s)
        self._dice = dice
        self._breaker = Breaker(patience, dice)
        self._busy = 0
        self._row: deque[asyncio.Future[Parked | None]] = deque()
        self._took_s = TOOK_S
        self._is_answering = False  # to the last call that ended
        self._heard_at = 0.0  # when it last answered anybody, or was first called after a rest
        self._next_at = 0.0  # the first appointment that is still free

    @property
    def is_idle(self) -> bool:
        """Nothing of it is under way: forgotten, it is only to be learned again."""
        return not self._busy and not self._row

    def came(self, run_id: UUID) -> None:
        """By itself, or because it was called."""
        self._away.pop(run_id, None)

    def sent_away(self, run_id: UUID, token: int) -> None:
        """It was given an appointment."""
        self._away[run_id] = token
        if len(self._away) > AWAY_LIMIT:
            del self._away[next(iter(self._away))]

    def called(self) -> list[tuple[UUID, int]]:
        """Who need not stay away any longer, since a call was answered: those first who have been away longest."""
        room = self._seats - self._busy - len(self._row)
        longest = list(islice(self._away, max(0, min(CALLED_PER_ANSWER, room))))
        return [(run_id, self._away.pop(run_id)) for run_id in longest]

    def admit(self, now: float) -> Parked | asyncio.Future[Parked | None] | None:
        """`None`: go, the seat is taken. A future: wait for what it says. Whoever goes must `leave`."""
        rest_s = self._breaker.rest_left_s(now)
        if rest_s > 0:
            return self._sent_away(now, rest_s)
        if self._busy < self._seats or self._breaker.is_open:  # asking a host that was down needs no free seat
            self._take_seat(now)
            return None
        if len(self._row) < self._seats * ROW_S / self._takes_s(now):
            waiting: asyncio.Future[Parked | None] = asyncio.get_running_loop().create_future()
            self._row.append(waiting)
            return waiting
        return self._put_off(now)

    def tire(self, waiting: asyncio.Future[Parked | None], now: float) -> None:
        """It has waited long enough: the host is slower than it was."""
        if not waiting.done() and waiting in self._row:
            self._row.remove(waiting)
            waiting.set_result(self._put_off(now))

    def give_up(self, waiting: asyncio.Future[Parked | None], now: float) -> None:
        """Whoever waited must stop."""
        if waiting.done() and not waiting.cancelled() and waiting.result() is None:
            self._busy -= 1
            self._breaker.undecided()
        elif waiting in self._row:
            self._row.remove(waiting)
        self._seat_others(now)

    def answered(self, now: float, took_s: float) -> None:
        self._seats = min(self._seats + 1, self._seat_limit)
        self._is_answering = True
        self._breaker.answered()
        self._leave(now, took_s)
        # Whoever is away will be called: nobody new need come after their appointments.
        self._next_at = min(self._next_at, now + len(self._away) * self._took_s / self._seats)

    def failed(self, now: float, took_s: float) -> None:
        """Nobody was there, or nothing came back."""
        self._seats = max(1, min(self._seats // 2, FIRST_SEATS))
        self._is_answering = False
        self._breaker.failed(now)
        self._leave(now, took_s)

    def undecided(self, now: float, took_s: float) -> None:
        self._breaker.undecided()
        self._leave(now, took_s)

    def _take_seat(self, now: float) -> None:
        if not self._busy:
            self._heard_at = now
        self._busy += 1
        self._breaker.begun()

    def _leave(self, now: float, took_s: float) -> None:
        self._busy -= 1
        self._heard_at = now
        self._took_s = max(min(took_s, self._took_s * RISE), TOOK_S_MIN)
        self._seat_others(now)

    def _seat_others(self, now: float) -> None:
        while self._row and (self._breaker.is_open or self._busy < self._seats):
            waiting = self._row.popleft()
            if waiting.done():
                continue
            rest_s = self._breaker.rest_left_s(now)
            if rest_s > 0:
                waiting.set_result(self._sent_away(now, rest_s))
            else:
                self._take_seat(now)
                waiting.set_result(None)

    def _put_off(self, now: float) -> Parked:
        reason = f"{self.name} has {self._busy} calls of this worker under way"
        spacing_s = self._takes_s(now) / self._seats
        if self._is_answering and now - self._heard_at <= SILENT_S:
            return Parked(_rounded_up(self._appointment_s(now, SOONEST_S, spacing_s), SOONEST_S), reason)
        # Not heard of yet, or not for long: for all we know, nobody is there.
        delay_s = self._appointment_s(now, SOONEST_S, max(spacing_s, 1 / PARKED_PER_S))
        return Parked(_rounded_up(delay_s, self._together_s), reason)

    def _sent_away(self, now: float, rest_s: float) -> Parked:
        will_ask = self._next_at <= now + rest_s  # as soon as it may; the others come later, together
        delay_s = self._appointment_s(now, rest_s, 1 / PARKED_PER_S)
        return Parked(delay_s if will_ask else _rounded_up(delay_s, self._together_s), f"{self.name} is down")

    def _takes_s(self, now: float) -> float:
        """A call, as far as we know: no less than the host has been silent for."""
        return max(self._took_s, now - self._heard_at)

    def _appointment_s(self, now: float, soonest_s: float, spacing_s: float) -> float:
        """One after the other, no faster than they can be served. Whoever would have to wait too long comes back to ask."""
        at = max(now + soonest_s, self._next_at)
        if at - now > self._away_max_s:
            return self._away_max_s * self._dice.uniform(0.5, 1.0)
        self._next_at = at + spacing_s
        return at - now


def _rounded_up(delay_s: float, to_s: float) -> float:
    """Those who go together come back together, and are claimed for little more than the price of one."""
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
