"""The loop around every service: it continues after any failure, logs it once, and never misses a wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from sexton.clock import ManualClock
from sexton.errors import Contention, DatabaseUnavailable
from sexton.service import CONTENDED_S, REMIND_S, RETRY_S_MAX, RETRY_S_MIN, Outage, Wake, insist, repeat
from sexton.telemetry.events import Contended, DatabaseAwaited, DatabaseBack, DatabaseLost, Event, Events, ServiceFailed
from tests.rig import LONG_S, NOW, settle

Step = float | BaseException


class Highest(Random):
    """Dice that always draw the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


class Scripted:
    """A service whose passes follow the script; the last one is repeated."""

    name = "scripted"

    def __init__(self, *steps: Step, clock: ManualClock) -> None:
        self._steps, self._clock = list(steps), clock
        self.passes = 0
        self.passed = asyncio.Event()

    async def run_once(self) -> float:
        self.passes += 1
        self._clock.move(timedelta(seconds=1))
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        self.passed.set()
        if isinstance(step, BaseException):
            raise step
        return step


class NoRest(Wake):
    """Records the rests instead of taking them, and ends the test when the script is over."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.rests: list[float] = []
        self._count = count

    async def rest(self, rest_s: float) -> bool:
        self.rests.append(rest_s)
        if len(self.rests) >= self._count:
            raise asyncio.CancelledError
        return False


async def played(*steps: Step, rng: Random | None = None) -> tuple[list[Event], list[float]]:
    """The events and rests of a loop over these passes."""
    clock, events, wake = ManualClock(NOW), list[Event](), NoRest(len(steps))
    with pytest.raises(asyncio.CancelledError):
        await repeat(Scripted(*steps, clock=clock), wake, clock=clock, emit=events.append, rng=rng or Highest())
    return events, wake.rests


GONE = DatabaseUnavailable("connection refused")


class TestRepeat:
    async def test_no_failure_ends_it(self) -> None:
        """D4."""
        steps: list[Step] = [GONE, Contention("in the way"), ValueError("a bug"), KeyError("another"), 7.0]
        events, rests = await played(*steps)
        assert len(rests) == 5
        assert rests[-1] == 7.0
        failed = [event for event in events if isinstance(event, ServiceFailed)]
        assert [type(event.error) for event in failed] == [ValueError, KeyError]

    async def test_an_error_of_every_pass_is_logged_once_and_again_after_a_while(self) -> None:
        """D4: many tracebacks would hide the cause."""
        events, _ = await played(*[ValueError("a bug")] * 5, ValueError("another"), *[ValueError("another")] * 40)
        assert [str(event.error) for event in events if isinstance(event, ServiceFailed)] == ["a bug", "another", "another"]

    async def test_an_outage_is_two_lines_however_long_it_lasts(self) -> None:
        """D4: the database is gone, the database is back after so long."""
        events, _ = await played(1.0, GONE, GONE, Contention("late"), GONE, 1.0, 1.0)
        assert events == [DatabaseLost("scripted", "connection refused"), DatabaseBack("scripted", 4.0)]

    async def test_the_reason_why_no_connection_can_be_opened_is_logged_when_an_outage_lasts(self) -> None:
        """D4: the first error only says that a connection broke."""
        locked_out = DatabaseUnavailable("role is not permitted to log in")
        events, _ = await played(GONE, *[locked_out] * 9, 1.0, GONE, 1.0)
        assert events == [
            DatabaseLost("scripted", "connection refused"),
            DatabaseAwaited("scripted", "role is not permitted to log in", 2.0),
            DatabaseBack("scripted", 10.0),
            DatabaseLost("scripted", "connection refused"),
            DatabaseBack("scripted", 1.0),
        ]

    async def test_a_second_outage_is_logged_again(self) -> None:
        events, _ = await played(GONE, 1.0, GONE, 1.0)
        assert [type(event) for event in events] == [DatabaseLost, DatabaseBack, DatabaseLost, DatabaseBack]

    async def test_short_contention_is_not_logged(self) -> None:
        events, _ = await played(Contention("deadlock"), Contention("deadlock"), 1.0)
        assert events == []

    async def test_contention_that_lasts_is_logged_once_then_at_intervals_and_again_after_a_success(self) -> None:
        """C19, rule "never wait inside a batch": here each pass takes a second."""
        in_the_way = Contention("canceling statement due to lock timeout")
        lasting = [in_the_way] * (int(CONTENDED_S) + 1)
        events, _ = await played(*lasting, *[in_the_way] * int(REMIND_S), 1.0, *lasting)
        told = [CONTENDED_S, CONTENDED_S + REMIND_S, CONTENDED_S]
        assert events == [Contended("scripted", str(in_the_way), span_s) for span_s in told]

    async def test_the_wait_grows_with_each_failure_to_a_limit_and_is_reset_by_a_success(self) -> None:
        _, rests = await played(*[GONE] * 8, 0.0, GONE)
        assert rests[:2] == [2 * RETRY_S_MIN, 4 * RETRY_S_MIN]
        assert rests[:8] == sorted(rests[:8])
        assert rests[7] == RETRY_S_MAX
        assert rests[9] == rests[0]

    async def test_the_wait_differs_between_nodes_and_is_never_zero(self) -> None:
        waits = {(await played(GONE, GONE, rng=Random(seed)))[1][1] for seed in range(20)}
        assert len(waits) == 20
        assert min(waits) >= 2 * RETRY_S_MIN
        assert max(waits) <= 4 * RETRY_S_MIN

    async def test_ten_thousand_failures_do_not_overflow(self) -> None:
        outage = Outage("x", ManualClock(NOW), lambda _: None, Highest())
        assert {outage.failed(GONE) for _ in range(10_000)} >= {RETRY_S_MAX}

    async def test_it_ends_when_cancelled_in_a_pass(self) -> None:
        class Slow:
            name = "slow"

            async def run_once(self) -> float:
                await asyncio.Event().wait()
                return 0.0

        task = asyncio.create_task(
            repeat(Slow(), Wake(), clock=ManualClock(NOW), emit=lambda _: None, rng=Random(1)),
        )
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_a_subscriber_that_raises_breaks_neither_the_loop_nor_the_other_subscribers(self) -> None:
        """A log to a closed pipe must not stop a worker from claiming."""
        heard: list[Event] = []

        def broken(_event: Event) -> None:
            raise BrokenPipeError("nobody reads the log")

        clock, wake = ManualClock(NOW), NoRest(3)
        with pytest.raises(asyncio.CancelledError):
            await repeat(
                Scripted(GONE, ValueError("a bug"), 1.0, clock=clock),
                wake,
                clock=clock,
                emit=Events(broken, heard.append),
                rng=Random(1),
            )
        assert [type(event) for event in heard] == [DatabaseLost, ServiceFailed, DatabaseBack]

    async def test_a_wake_up_cuts_the_rest_short(self) -> None:
        """B10."""
        clock, wake = ManualClock(NOW), Wake()
        scripted = Scripted(3600.0, clock=clock)
        task = asyncio.create_task(repeat(scripted, wake, clock=clock, emit=lambda _: None, rng=Random(1)))
        for passes in (1, 2, 3):
            async with asyncio.timeout(LONG_S):
                await scripted.passed.wait()
            scripted.passed.clear()
            await settle()
            assert scripted.passes == passes
            wake()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_a_service_without_rest_lets_others_run(self) -> None:
        clock, ran = ManualClock(NOW), list[str]()
        scripted = Scripted(0.0, clock=clock)
        task = asyncio.create_task(repeat(scripted, Wake(), clock=clock, emit=lambda _: None, rng=Random(1)))
        for _ in range(5):
            await asyncio.sleep(0)
            ran.append("other")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(ran) == 5
        assert scripted.passes >= 2


class TestWake:
    async def test_an_early_wake_up_is_not_lost(self) -> None:
        wake = Wake()
        wake()
        async with asyncio.timeout(LONG_S):
            assert await wake.rest(3600) is True

    async def test_many_wake_ups_are_one(self) -> None:
        """B10: a hundred notifications are one look."""
        wake = Wake()
        for _ in range(100):
            wake()
        assert await wake.rest(3600) is True
        assert wake.is_set is False
        assert await wake.rest(0.001) is False

    async def test_a_wake_up_during_a_sleep_ends_it(self) -> None:
        wake = Wake()
        sleeping = asyncio.create_task(wake.rest(3600))
        await settle()
        wake()
        async with asyncio.timeout(LONG_S):
            assert await sleeping is True

    async def test_a_rest_of_zero_still_uses_up_the_wake_up(self) -> None:
        wake = Wake()
        wake()
        assert await wake.rest(0) is True
        assert await wake.rest(0) is False
        assert await wake.rest(-1) is False

    async def test_a_cancelled_sleep_keeps_the_next_wake_up(self) -> None:
        wake = Wake()
        sleeping = asyncio.create_task(wake.rest(3600))
        await settle()
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        wake()
        assert await wake.rest(3600) is True


class TestInsist:
    @pytest.fixture(autouse=True)
    def _no_sleep(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = asyncio.sleep
        monkeypatch.setattr("sexton.service.asyncio.sleep", lambda _s: real(0))

    async def test_it_tries_until_the_database_is_reachable(self) -> None:
        """D4."""
        clock, events, tries = ManualClock(NOW), list[Event](), list[BaseException | None]([GONE, GONE, GONE, None])

        async def attempt() -> str:
            clock.move(timedelta(seconds=2))
            if (error := tries.pop(0)) is not None:
                raise error
            return "open"

        assert await insist("database", attempt, clock=clock, emit=events.append, rng=Random(1)) == "open"
        assert events == [DatabaseAwaited("database", "connection refused", 0.0), DatabaseBack("database", 6.0)]

    async def test_the_log_repeats_what_it_waits_for(self) -> None:
        clock, events, tries = ManualClock(NOW), list[Event](), list[BaseException | None]([*[GONE] * 8, None])

        async def attempt() -> str:
            clock.move(timedelta(seconds=10))
            if (error := tries.pop(0)) is not None:
                raise error
            return "open"

        await insist("database", attempt, clock=clock, emit=events.append, rng=Random(1))
        awaited = [event.waited_s for event in events if isinstance(event, DatabaseAwaited)]
        assert awaited == [0.0, 30.0, 60.0]

    async def test_contention_is_tried_again_too(self) -> None:
        """After contention it is safe to try again; the last reports of a drain depend on it."""
        tries = [Contention("deadlock"), None]

        async def attempt() -> str:
            if (error := tries.pop(0)) is not None:
                raise error
            return "done"

        assert await insist("reporter", attempt, clock=ManualClock(NOW), emit=lambda _: None, rng=Random(1)) == "done"

    @pytest.mark.parametrize("error", [ValueError("a bug"), asyncio.CancelledError()], ids=lambda e: type(e).__name__)
    async def test_any_other_error_is_raised_to_the_caller(self, error: BaseException) -> None:
        async def attempt() -> Any:
            raise error

        with pytest.raises(type(error)):
            await insist("x", attempt, clock=ManualClock(NOW), emit=lambda _: None, rng=Random(1))


def test_events_reach_every_subscriber_in_order() -> None:
    heard: list[str] = []
    hear: Callable[[str], Callable[[Event], None]] = lambda name: lambda _: heard.append(name)  # noqa: E731
    events = Events(hear("first"))
    events.subscribe(hear("second"))
    events(DatabaseBack("x", 1.0))
    assert heard == ["first", "second"]
