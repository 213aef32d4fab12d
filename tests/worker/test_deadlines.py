"""The wheel that calls timeouts, progress limits and grace periods: never early, at most a tick late, nothing left behind."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import pytest

from sexton.clock import ManualClock
from sexton.worker.deadlines import EMPTY_SLOTS_LIMIT, TICKS_PER_S, Deadline, Deadlines
from tests.simulation.timers import ManualTimer, ManualTimers

TICK = timedelta(seconds=1 / TICKS_PER_S)


class CountedTimers(ManualTimers):
    """The event loop's timers. `alarms` are those that it has been asked for, apart from callbacks for its next round."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.alarms = 0

    def call_later(self, delay: float, callback: object) -> ManualTimer:
        self.alarms += delay > 0
        return super().call_later(delay, callback)  # type: ignore[arg-type]


class Bell:
    """Notes when it was called."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.rung_at: list[float] = []

    def ring(self) -> None:
        self.rung_at.append(self.clock.monotonic())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 4, tzinfo=UTC))


@pytest.fixture
def loop(clock: ManualClock) -> CountedTimers:
    return CountedTimers(clock)


@pytest.fixture
def deadlines(loop: CountedTimers, clock: ManualClock) -> Deadlines:
    return Deadlines(loop, clock)


def pass_time(clock: ManualClock, loop: ManualTimers, span_s: float, step: timedelta = TICK / 4) -> None:
    until = clock.monotonic() + span_s
    while clock.monotonic() < until:
        clock.move(step)
        loop.fire()


def test_none_is_early_and_none_is_more_than_a_tick_late(deadlines: Deadlines, loop: CountedTimers, clock: ManualClock) -> None:
    """B12, C4: added at any time, for any time."""
    rng, step = Random(7), timedelta(milliseconds=1.7)
    bells: list[tuple[float, Bell]] = []
    for _ in range(300):
        delay_s = rng.choice([0.0, 0.001, 1 / TICKS_PER_S, rng.uniform(0, 0.2), rng.uniform(0, 3)])
        bell = Bell(clock)
        deadlines.call_later(delay_s, bell.ring)
        bells.append((clock.monotonic() + delay_s, bell))
        pass_time(clock, loop, rng.uniform(0, 0.02), step)
    pass_time(clock, loop, 4, step)
    for due_at, bell in bells:
        (rung_at,) = bell.rung_at
        assert 0 <= rung_at - due_at <= (TICK + 2 * step).total_seconds()


def test_whole_seconds_are_exact(deadlines: Deadlines, loop: CountedTimers, clock: ManualClock) -> None:
    bell = Bell(clock)
    deadlines.call_later(30, bell.ring)
    clock.move(timedelta(seconds=30))
    loop.fire()
    assert bell.rung_at == [30.0]


def test_a_sooner_one_does_not_wait_for_a_later_one(deadlines: Deadlines, loop: CountedTimers, clock: ManualClock) -> None:
    later, sooner = Bell(clock), Bell(clock)
    deadlines.call_later(30, later.ring)
    deadlines.call_later(1, sooner.ring)
    pass_time(clock, loop, 2)
    assert (len(sooner.rung_at), len(later.rung_at)) == (1, 0)
    pass_time(clock, loop, 29)
    assert len(later.rung_at) == 1


def test_a_cancelled_one_is_never_called_and_keeps_nothing_alive(
    deadlines: Deadlines, loop: CountedTimers, clock: ManualClock
) -> None:
    bell, other = Bell(clock), Bell(clock)
    cancelled = deadlines.call_later(1, bell.ring)
    deadlines.call_later(1, other.ring)
    is_alive = weakref.ref(bell)
    cancelled.cancel()
    cancelled.cancel()
    rung_at = bell.rung_at
    del bell, cancelled
    gc.collect()
    assert is_alive() is None
    pass_time(clock, loop, 2)
    assert (rung_at, len(other.rung_at)) == ([], 1)


def test_those_that_were_cancelled_leave_no_slots_behind_a_live_one(
    deadlines: Deadlines, loop: CountedTimers, clock: ManualClock
) -> None:
    """A worker whose timeouts are all a day long: none of their ticks comes soon."""
    bell, day_s = Bell(clock), 86_400.0
    lives = [deadlines.call_later(day_s, bell.ring) for _ in range(2)]
    due_at = clock.monotonic() + day_s
    for _ in range(20_000):
        clock.move(TICK)
        deadlines.call_later(day_s, bell.ring).cancel()
    assert len(deadlines._slots) == len(deadlines._ticks) <= EMPTY_SLOTS_LIMIT + 10
    lives[0].cancel()
    pass_time(clock, loop, due_at - clock.monotonic() - 301, timedelta(seconds=300))
    pass_time(clock, loop, 310, TICK)
    (rung_at,) = bell.rung_at
    assert 0 <= rung_at - due_at <= 2 / TICKS_PER_S


def test_one_cancelled_by_another_of_its_tick_is_not_called(
    deadlines: Deadlines, loop: CountedTimers, clock: ManualClock
) -> None:
    """The first of the two to be called cancels the other."""
    pair: list[Deadline] = []
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        pair[1 - number].cancel()

    pair += [deadlines.call_later(1, partial(call, number)) for number in range(2)]
    pass_time(clock, loop, 2)
    assert len(called) == 1


def test_those_of_one_tick_are_called_in_the_order_in_which_they_were_added(
    deadlines: Deadlines, loop: CountedTimers, clock: ManualClock
) -> None:
    """A replay of the simulation must be one, also in a process with other addresses."""
    called: list[int] = []
    for n in range(50):
        deadlines.call_later(1.0, partial(called.append, n))
    pass_time(clock, loop, 1.5)
    assert called == list(range(50))


def test_one_that_raises_keeps_no_other_from_its_call(deadlines: Deadlines, loop: CountedTimers, clock: ManualClock) -> None:
    """As with timers of the event loop, which logs the error."""
    bells = [Bell(clock), Bell(clock)]

    def fails() -> None:
        raise ValueError("unlucky")

    deadlines.call_later(1, bells[0].ring)
    deadlines.call_later(1, fails)
    deadlines.call_later(1, bells[1].ring)
    deadlines.call_later(2, bells[0].ring)
    clock.move(timedelta(seconds=1))
    with pytest.raises(ValueError, match="unlucky"):
        loop.fire()
    pass_time(clock, loop, 2)
    assert [len(bell.rung_at) for bell in bells] == [2, 1]


def test_one_called_may_add_the_next(deadlines: Deadlines, loop: CountedTimers, clock: ManualClock) -> None:
    """As a progress limit does."""
    bell = Bell(clock)

    def again() -> None:
        bell.ring()
        if len(bell.rung_at) < 3:
            deadlines.call_later(1, again)

    deadlines.call_later(1, again)
    pass_time(clock, loop, 10)
    assert [round(at) for at in bell.rung_at] == [1, 2, 3]


def test_an_idle_worker_wakes_once_for_thousands_that_were_cancelled(
    deadlines: Deadlines, loop: CountedTimers, clock: ManualClock
) -> None:
    """Timeouts of 30 s, 10 ms apart, of handlers that ended at once."""
    for _ in range(3_000):
        deadlines.call_later(30, lambda: None).cancel()
        pass_time(clock, loop, 0.01, timedelta(seconds=0.01))
    asked_before = loop.alarms
    pass_time(clock, loop, 60)
    assert loop.alarms - asked_before <= 1
    bell = Bell(clock)
    deadlines.call_later(1, bell.ring)
    pass_time(clock, loop, 2)
    assert len(bell.rung_at) == 1
