"""One attempt: whatever a handler does, returns or raises, it has exactly one outcome, and its slot becomes free."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import pytest

from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.retry import Retry
from sexton.errors import LeaseLost, PermanentError, RetryLater, Snooze
from sexton.handlers.context import Context
from sexton.store.work import jobs
from sexton.telemetry import events
from sexton.worker.execution import Phase, encoded_result
from tests.rig import LONG_S, HandWorker, Rig, settle

Function = Callable[..., Any]


async def run(rig: Rig, function: Function, payload: Any = None, **options: Any) -> tuple[HandWorker, jobs.Execution]:
    """One attempt of a real function, from its submission to its report."""
    hand = await rig.worker(function, tasks=())
    job_id = await rig.submit(function.__name__, payload, **options)
    await hand.take()
    await hand.ends()
    assert hand.intake.slots.used == 0
    assert hand.held == []
    return hand, await rig.last(job_id)


async def start(rig: Rig, *, listens: bool = True, **options: Any) -> tuple[HandWorker, UUID]:
    """One attempt that the test ends itself."""
    hand = await rig.worker(listens=listens)
    job_id = await rig.submit(**options)
    await hand.take()
    return hand, job_id


class TestReturns:
    @pytest.mark.parametrize("kind", ["async", "thread"])
    async def test_the_return_value_is_kept(self, rig: Rig, kind: str) -> None:
        """C14."""

        async def on_the_loop(ctx: Context, number: int) -> dict[str, Any]:
            return {"doubled": number * 2, "attempt": ctx.attempt}

        def in_a_thread(ctx: Context, number: int) -> dict[str, Any]:
            return {"doubled": number * 2, "attempt": ctx.attempt}

        _, execution = await run(rig, on_the_loop if kind == "async" else in_a_thread, {"number": 21})
        assert execution.status == "succeeded"
        assert json.loads(execution.result_json or "") == {"doubled": 42, "attempt": 1}
        assert await rig.status(execution.job_id) == "completed"

    async def test_no_result_is_kept_of_a_handler_that_returns_none(self, rig: Rig) -> None:
        async def nothing(ctx: Context) -> None: ...

        _, execution = await run(rig, nothing)
        assert (execution.status, execution.result_json, execution.error_json) == ("succeeded", None, None)

    async def test_a_result_that_is_too_large_fails_permanently_with_the_reason(self, rig: Rig) -> None:
        """C14, F4: its effect has happened, so another attempt would only repeat it."""

        async def large(ctx: Context) -> str:
            return "x" * RESULT_BYTES_LIMIT

        _, execution = await run(rig, large)
        assert execution.error is not None
        assert "65,538 bytes; the limit is 65,536" in execution.error.message
        (letter,) = await rig.letters()
        assert letter.permanent

    async def test_a_result_of_the_allowed_size_is_kept(self, rig: Rig) -> None:
        """C14."""

        async def just_fits(ctx: Context) -> str:
            return "x" * (RESULT_BYTES_LIMIT - 2)

        _, execution = await run(rig, just_fits)
        assert execution.status == "succeeded"

    @pytest.mark.parametrize("what", ["object", "cycle", "surrogate", "odd key", "raw", "nul", "nul key"])
    async def test_a_result_that_cannot_be_stored_fails_permanently_with_the_reason(self, rig: Rig, what: str) -> None:
        """C14, rule "bisect bad batches": and its slot is free again."""

        cycle: list[Any] = []
        cycle.append(cycle)
        results = {
            "object": object(),
            "cycle": cycle,
            "surrogate": "\ud800",
            "odd key": {(1, 2): 3},
            "raw": msgspec.Raw(b"{not json"),
            "nul": {"text": "a\x00b"},
            "nul key": {"a\x00b": 1},
        }

        async def odd(ctx: Context) -> Any:
            return results[what]

        _, execution = await run(rig, odd)
        assert (execution.status, execution.result_json) == ("failed", None)
        assert execution.error is not None
        assert "result" in execution.error.message or "returned" in execution.error.message, execution.error.message
        assert [letter.permanent for letter in await rig.letters()] == [True]

    @pytest.mark.parametrize("written", [b"1, 2", b"[1", b"2]", b""])
    def test_a_result_that_is_not_one_json_value_does_not_reach_the_batch(self, written: bytes) -> None:
        """C14: three of them can have as many entries as there are runs, and give each other's results."""
        with pytest.raises(PermanentError, match="result: cannot be encoded as JSON"):
            encoded_result(msgspec.Raw(written))


class TestRaises:
    async def test_a_failure_is_tried_again_after_its_delay(self, rig: Rig) -> None:
        """C5, A9: with type, message and traceback in the history."""

        async def unlucky(ctx: Context) -> None:
            raise ValueError("no luck")

        _, execution = await run(rig, unlucky, retry=Retry.after(30, jitter=0))
        assert execution.status == "failed"
        assert execution.error is not None
        assert (execution.error.type, execution.error.message) == ("ValueError", "no luck")
        assert 'raise ValueError("no luck")' in (execution.error.traceback or "")
        row = await rig.run(execution.job_id)
        assert row is not None
        assert (row["state"], row["attempt"]) == ("waiting", 1)
        assert (row["due_at"] - rig.clock.database_now()).total_seconds() == 30

    async def test_after_the_last_attempt_it_is_buried(self, rig: Rig) -> None:
        """C7."""

        async def unlucky(ctx: Context) -> None:
            raise ValueError("no luck")

        await run(rig, unlucky, retry=Retry.never())
        (letter,) = await rig.letters()
        assert (letter.reason, letter.permanent) == ("attempt 1 of 1 failed: ValueError: no luck", False)

    async def test_a_permanent_error_and_giving_up_are_not_tried_again(self, rig: Rig) -> None:
        """C5."""

        async def hopeless(ctx: Context) -> None:
            raise PermanentError("no such user")

        def gives_up(ctx: Context) -> None:
            ctx.give_up("no such user either")

        for function in (hopeless, gives_up):
            _, execution = await run(rig, function)
            assert execution.status == "failed"
        assert sorted(letter.reason for letter in await rig.letters()) == [
            "permanent error: sexton.errors.PermanentError: no such user",
            "permanent error: sexton.errors.PermanentError: no such user either",
        ]

    async def test_retry_after_is_a_lower_bound(self, rig: Rig) -> None:
        """C5."""

        async def throttled(ctx: Context) -> None:
            raise RetryLater("429", delay_s=120)

        _, execution = await run(rig, throttled, retry=Retry.after(5, jitter=0))
        row = await rig.run(execution.job_id)
        assert row is not None
        assert (row["due_at"] - rig.clock.database_now()).total_seconds() == 120

    @pytest.mark.parametrize("delay_s", ["60s", float("nan"), float("inf"), -5, None])
    async def test_a_retry_after_that_is_not_a_number_of_seconds_still_ends_in_an_outcome(self, rig: Rig, delay_s: Any) -> None:
        """C5, rule "bisect bad batches": a mistake in a handler may fail that run, but never cost a slot."""

        async def throttled(ctx: Context) -> None:
            raise RetryLater("429", delay_s=delay_s)

        _, execution = await run(rig, throttled, retry=Retry.after(5, jitter=0))
        assert execution.status == "failed"
        row = await rig.run(execution.job_id)
        assert row is not None
        assert (row["due_at"] - rig.clock.database_now()).total_seconds() == (60 if delay_s == "60s" else 5)

    async def test_a_snooze_spends_no_attempt(self, rig: Rig) -> None:
        """C5."""

        def not_yet(ctx: Context) -> None:
            ctx.snooze("10m")

        _, execution = await run(rig, not_yet)
        row = await rig.run(execution.job_id)
        assert row is not None
        assert (execution.status, row["state"], row["attempt"], row["lost_count"]) == ("snoozed", "waiting", 0, 0)
        assert (row["due_at"] - rig.clock.database_now()).total_seconds() == 600

    async def test_an_exception_that_cannot_be_reported_fails_its_run_and_never_costs_a_slot(self, rig: Rig) -> None:
        """Rule "bisect bad batches": whatever error the report runs into, there is a report."""

        async def odd(ctx: Context) -> None:
            error = Snooze(5)
            error.delay_s = "soon"  # type: ignore[assignment]
            raise error

        _, execution = await run(rig, odd, deadline=100)
        assert execution.status == "failed"
        assert [letter.permanent for letter in await rig.letters()] == [True]

    @pytest.mark.parametrize("kind", ["async", "thread"])
    async def test_sys_exit_in_a_handler_ends_the_handler_and_not_the_worker(self, rig: Rig, kind: str) -> None:
        """C5."""

        async def on_the_loop(ctx: Context) -> None:
            sys.exit(3)

        def in_a_thread(ctx: Context) -> None:
            sys.exit(3)

        _, execution = await run(rig, on_the_loop if kind == "async" else in_a_thread)
        assert execution.error is not None
        assert "SystemExit(3)" in execution.error.message

    async def test_a_handler_that_cancels_itself_has_failed(self, rig: Rig) -> None:
        async def gives_in(ctx: Context) -> None:
            raise asyncio.CancelledError

        _, execution = await run(rig, gives_in)
        assert execution.status == "failed"
        assert execution.error is not None
        assert "cancelled itself" in execution.error.message

    async def test_an_exception_that_cannot_be_read_is_still_reported(self, rig: Rig) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        async def odd(ctx: Context) -> None:
            raise Odd

        _, execution = await run(rig, odd)
        assert execution.error is not None
        assert execution.error.type.endswith("Odd")

    @pytest.mark.parametrize("kind", ["async", "thread"])
    async def test_an_exception_whose_own_code_exits_fails_its_run_and_never_costs_a_slot(self, rig: Rig, kind: str) -> None:
        """C4: reading the exception calls the handler's code."""

        class Hostile(BaseException):
            def __str__(self) -> str:
                sys.exit(3)

            __repr__ = __str__

        async def on_the_loop(ctx: Context) -> None:
            raise Hostile

        def in_a_thread(ctx: Context) -> None:
            raise Hostile

        _, execution = await run(rig, on_the_loop if kind == "async" else in_a_thread)
        assert execution.error is not None
        assert "Hostile" in execution.error.message + execution.error.type

    @pytest.mark.parametrize("kind", ["async", "thread"])
    @pytest.mark.parametrize(
        "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), BaseException()]
    )
    async def test_any_exception_of_a_handler_is_a_failure_of_its_run(self, rig: Rig, kind: str, error: BaseException) -> None:
        """C4."""

        async def on_the_loop(ctx: Context) -> None:
            raise error

        def in_a_thread(ctx: Context) -> None:
            raise error

        _, execution = await run(rig, on_the_loop if kind == "async" else in_a_thread)
        assert execution.status == "failed"
        assert execution.error is not None
        assert type(error).__name__ in (execution.error.traceback or "") + execution.error.message + execution.error.type

    async def test_an_error_with_characters_that_cannot_be_stored_is_stored_without_them(self, rig: Rig) -> None:
        """Rule "bisect bad batches"."""

        async def odd(ctx: Context) -> None:
            ctx.log("a\x00b\ud800")
            raise ValueError("a\x00b\ud800")

        _, execution = await run(rig, odd, retry=Retry.never())
        assert execution.status == "failed"
        assert execution.error is not None
        assert execution.error.type == "ValueError"
        assert execution.output is not None

    async def test_wrong_arguments_fail_with_the_name_of_the_wrong_argument(self, rig: Rig) -> None:
        async def greet(ctx: Context, who: str) -> None: ...

        def greet_in_a_thread(ctx: Context, who: str) -> None: ...

        for function in (greet, greet_in_a_thread):
            hand = await rig.worker(function, tasks=())
            job_id = await rig.submit(function.__name__, {"who": "you", "whom": "you"})
            await hand.take()
            if hand.intake.slots.used:
                await hand.ends()
            await hand.report()
            execution = await rig.last(job_id)
            assert execution.error is not None
            assert execution.error.message == f"{function.__name__} has no argument 'whom'; it takes who"
            assert (execution.error.type, execution.error.traceback) == ("sexton.errors.ArgumentsMismatch", None)
            assert await rig.state(job_id) == "waiting", "a newer worker may know the argument"

    @pytest.mark.parametrize("payload", [[1, 2], "text", 7, True])
    async def test_a_payload_that_is_not_an_object_fails_permanently(self, rig: Rig, payload: Any) -> None:
        """F2: submitted in plain SQL, from any language."""
        hand, job_id = await start(rig, payload=payload)
        await hand.report()
        assert hand.stage.handles == []
        (letter,) = await rig.letters()
        assert (letter.job_id, letter.permanent) == (job_id, True)
        assert "needs a JSON object of arguments" in letter.reason
        assert hand.intake.slots.used == 0


class TestTime:
    async def test_a_timeout_asks_the_handler_to_stop_and_counts_as_a_timeout(self, rig: Rig) -> None:
        """C3."""
        hand, job_id = await start(rig, timeout=10, retry=Retry.after(60))
        rig.move(9.99)
        assert not hand.stage.handles[0].asked
        rig.move(0.01)
        assert hand.stage.handles[0].asked
        await hand.report()
        execution = await rig.last(job_id)
        assert (execution.status, execution.reason) == ("timed_out", "still running after its timeout of 10 s")
        row = await rig.run(job_id)
        assert row is not None
        assert (row["state"], row["attempt"]) == ("waiting", 1)

    async def test_a_handler_that_ignores_the_request_is_forced_after_the_grace(self, rig: Rig) -> None:
        """C3, A5."""
        hand, job_id = await start(rig, timeout=10, listens=False)
        (handle,) = hand.stage.handles
        rig.move(10)
        assert (handle.asked, handle.forced) == (True, False)
        rig.move(1.99)
        assert not handle.forced
        rig.move(0.01)
        assert handle.forced
        await hand.report()
        assert await rig.statuses(job_id) == ["timed_out"]

    async def test_a_job_may_have_a_grace_of_its_own(self, rig: Rig) -> None:
        """A5."""
        hand, _ = await start(rig, timeout=10, grace=60, listens=False)
        rig.move(10)
        rig.move(59)
        assert not hand.stage.handles[0].forced
        rig.move(1)
        assert hand.stage.handles[0].forced
        await hand.report()

    async def test_without_a_timeout_it_may_take_any_time(self, rig: Rig) -> None:
        """C4."""
        hand, _ = await start(rig, timeout=0)
        rig.move(1e6)
        assert not hand.stage.handles[0].asked

    async def test_the_deadline_of_all_attempts_ends_this_one(self, rig: Rig) -> None:
        """C3."""
        hand, _job_id = await start(rig, timeout=100, deadline=30)
        rig.move(29)
        assert not hand.stage.handles[0].asked
        rig.move(1)
        await hand.report()
        (letter,) = await rig.letters()
        assert (letter.status, "deadline" in letter.reason) == ("timed_out", True)

    async def test_no_retry_is_planned_beyond_the_deadline(self, rig: Rig) -> None:
        """C3, C5."""
        hand, _job_id = await start(rig, deadline=30, timeout=0, retry=Retry.after(20, jitter=0))
        rig.move(11)
        hand.stage.handles[0].raises(ValueError("no luck"))
        await hand.report()
        (letter,) = await rig.letters()
        assert letter.reason == "the deadline is before the next attempt: ValueError: no luck"

    async def test_a_handler_that_makes_no_progress_is_stuck(self, rig: Rig) -> None:
        """C4: every output counts as progress, and so does a bare sign of life."""
        hand, job_id = await start(rig, timeout=0, progress_within=10)
        (handle,) = hand.stage.handles
        context = handle.context
        for say in (partial(context.progress, 0.5), partial(context.log, "on it"), partial(context.progress)):
            rig.move(9)
            say()
        rig.move(9.9)
        assert not handle.asked
        rig.move(0.1)
        assert handle.asked
        await hand.report()
        execution = await rig.last(job_id)
        assert (execution.status, execution.reason) == ("timed_out", "stuck: no progress for 10 s; the limit is 10 s")

    async def test_a_handler_without_any_output_is_stuck_too(self, rig: Rig) -> None:
        """C4."""
        hand, _ = await start(rig, timeout=0, progress_within=10)
        rig.move(10)
        assert hand.stage.handles[0].asked
        await hand.report()

    async def test_a_handler_that_ended_in_time_is_not_asked_to_stop(self, rig: Rig) -> None:
        hand, job_id = await start(rig, timeout=10, progress_within=5)
        hand.stage.handles[0].returns("done")
        await settle()
        rig.move(100)
        assert not hand.stage.handles[0].asked
        await hand.report()
        assert await rig.statuses(job_id) == ["succeeded"]

    async def test_history_has_its_start_and_its_duration(self, rig: Rig) -> None:
        """A9, B8."""
        hand = await rig.worker()
        job_id = await rig.submit(timeout=0)
        rig.move(2)
        await hand.take()
        rig.move(7)
        hand.stage.handles[0].returns()
        await settle()
        rig.move(3)  # the report is late
        await hand.report()
        execution = await rig.last(job_id)
        assert execution.started_at is not None
        assert execution.ended_at is not None
        assert (execution.started_at - execution.due_at).total_seconds() == 2
        assert (execution.ended_at - execution.started_at).total_seconds() == 7
        (ended,) = rig.of(events.Ended)
        assert (ended.lag_s, ended.took_s, ended.status, ended.ending) == (2.0, 7.0, "succeeded", "completed")


class TestStopping:
    async def test_a_cancel_stops_it_and_ends_the_job(self, rig: Rig) -> None:
        """A5."""
        hand, job_id = await start(rig)
        await rig.cancel(job_id)
        await hand.beat()
        await hand.report()
        assert await rig.statuses(job_id) == ["cancelled"]
        assert await rig.status(job_id) == "cancelled"

    async def test_a_handler_that_returns_after_a_request_to_stop_has_succeeded(self, rig: Rig) -> None:
        """A5: its effect has happened."""
        hand, job_id = await start(rig, listens=False)
        await rig.cancel(job_id)
        await hand.beat()
        hand.stage.handles[0].returns("done after all")
        await hand.report()
        execution = await rig.last(job_id)
        assert (execution.status, execution.result_json) == ("succeeded", '"done after all"')
        assert await rig.status(job_id) == "completed"

    @pytest.mark.parametrize("error", [ValueError("while stopping"), RetryLater("later", delay_s=5)], ids=["error", "later"])
    async def test_a_handler_that_fails_after_a_request_to_stop_ends_with_the_reason_of_the_request(
        self, rig: Rig, error: Exception
    ) -> None:
        """A5."""
        hand, job_id = await start(rig, listens=False)
        hand.held[0].cancel()
        hand.stage.handles[0].raises(error)
        await hand.report()
        assert await rig.statuses(job_id) == ["cancelled"]

    async def test_a_cancel_beats_any_retry(self, rig: Rig) -> None:
        """Rule "losses have their own budget": a requested cancel means no further attempt, whatever the outcome."""
        hand, job_id = await start(rig, retry=Retry.immediate())
        await rig.cancel(job_id)
        hand.stage.handles[0].raises(ValueError("before it was asked"))
        await hand.report()
        assert await rig.statuses(job_id) == ["failed"]
        assert await rig.status(job_id) == "cancelled"
        assert await rig.letters() == []

    async def test_a_run_that_is_handed_back_spends_nothing(self, rig: Rig) -> None:
        """C12, rule "losses have their own budget"."""
        hand, job_id = await start(rig)
        hand.held[0].release("the worker is draining")
        await hand.report()
        row = await rig.run(job_id)
        assert row is not None
        assert (row["state"], row["attempt"], row["lost_count"]) == ("ready", 0, 0)
        assert (await rig.last(job_id)).reason == "the worker is draining"

    async def test_an_at_most_once_run_that_started_and_is_handed_back_is_buried(self, rig: Rig) -> None:
        """C6, rule "bounded prefetch": it must not start again."""
        hand, _job_id = await start(rig, delivery="at_most_once")
        hand.held[0].release("the worker is draining")
        await hand.report()
        assert [letter.status for letter in await rig.letters()] == ["released"]

    async def test_the_first_reason_to_stop_is_kept(self, rig: Rig) -> None:
        hand, job_id = await start(rig, timeout=10, listens=False)
        rig.move(10)
        hand.held[0].release("the worker is draining")
        hand.held[0].cancel()
        hand.stage.handles[0].raises(ValueError("too late"))
        await hand.report()
        assert await rig.statuses(job_id) == ["timed_out"]

    async def test_once_the_lease_is_lost_nothing_is_reported_however_it_ends(self, rig: Rig) -> None:
        """C4."""
        for end in ("returns", "raises", "forced"):
            hand, job_id = await start(rig, timeout=0, listens=False)
            (execution,) = hand.held
            (handle,) = hand.stage.handles
            execution.lose()
            assert handle.asked
            if end == "returns":
                handle.returns("late")
            elif end == "raises":
                handle.raises(ValueError("late"))
            else:
                rig.move(2)
            await hand.report()
            assert (handle.forced, execution.phase) == (end == "forced", Phase.GONE)
            assert await rig.statuses(job_id) == []
            assert (hand.worker.held_runs.refused_count, hand.held) == (1, [])
            assert hand.intake.slots.used == 0
            await rig.execute("DELETE FROM sexton.workers")
            await rig.sweeper().run_once()
            await rig.cancel(job_id)

    async def test_a_handler_that_lost_its_lease_is_forced_soon_whatever_its_grace(self, rig: Rig) -> None:
        """C4: another worker may have begun the run."""
        hand, job_id = await start(rig, timeout=0, listens=False, grace=60)
        hand.held[0].lose()
        rig.move(0.9)
        assert not hand.stage.handles[0].forced
        rig.move(0.1)
        assert hand.stage.handles[0].forced
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        await rig.cancel(job_id)

    async def test_a_handler_that_was_asked_to_stop_before_is_forced_as_soon(self, rig: Rig) -> None:
        """C4: the grace of its drain or its timeout no longer applies."""
        hand, job_id = await start(rig, timeout=0, listens=False, grace=60)
        hand.held[0].release("the worker is draining")
        hand.held[0].lose()
        rig.move(0.9)
        assert not hand.stage.handles[0].forced
        rig.move(0.1)
        assert hand.stage.handles[0].forced
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        await rig.cancel(job_id)

    async def test_a_lost_lease_inside_a_transaction_ends_as_lost(self, rig: Rig) -> None:
        """C6: the worker that holds the run now decides; this report changes nothing."""
        hand, job_id = await start(rig)
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        hand.stage.handles[0].raises(LeaseLost("the lease of this run was lost"))
        await hand.report()
        assert await rig.statuses(job_id) == ["lost"]
        assert await rig.state(job_id) == "ready"
        assert (hand.held, hand.intake.slots.used) == ([], 0)
        assert (len(rig.of(events.LeaseLost)), rig.of(events.Ended)) == (1, [])

    async def test_a_thread_sees_the_flag(self, rig: Rig) -> None:
        """A5: a plain function is asked through its context."""
        entered = threading.Event()

        def waits(ctx: Context) -> None:
            entered.set()
            while not ctx.cancelled:
                threading.Event().wait(0.005)
            ctx.check_cancelled()

        hand = await rig.worker(waits, tasks=())
        job_id = await rig.submit("waits", timeout=10)
        await hand.take()
        assert await asyncio.to_thread(entered.wait, LONG_S)
        rig.move(10)
        await hand.ends()
        assert await rig.statuses(job_id) == ["timed_out"]

    async def test_an_async_handler_that_ignores_its_cancellation_is_left_behind_and_holds_its_slot(self, rig: Rig) -> None:
        """Rule "the sweeper ends overdue runs": the run has ended; its slot is free when the handler really ends."""
        go, end = asyncio.Event(), asyncio.Event()

        async def stubborn(ctx: Context) -> str:
            go.set()
            while not end.is_set():
                try:
                    await end.wait()
                except asyncio.CancelledError:
                    continue
            return "nobody cares"

        hand = await rig.worker(stubborn, tasks=())
        job_id = await rig.submit("stubborn", timeout=10, retry=Retry.never())
        await hand.take()
        await go.wait()
        rig.move(10)
        await settle()
        assert hand.worker.reporter.pending_count == 0
        rig.move(2)
        await hand.report()
        assert await rig.statuses(job_id) == ["timed_out"]
        assert hand.intake.slots.used == 1
        end.set()
        await settle()
        assert hand.intake.slots.used == 0
        await hand.report()
        assert await rig.statuses(job_id) == ["timed_out"]


class TestOnce:
    async def test_a_job_whose_key_is_completed_is_not_executed_again(self, rig: Rig) -> None:
        """C6: the completion record is checked before the handler starts."""
        hand, job_id = await start(rig, key="k", timeout=0, retry=Retry.immediate())
        completed_by = (await rig.execute("SELECT gen_random_uuid() AS id"))[0]["id"]
        await rig.execute("UPDATE sexton.idempotency_keys SET completed_at = now(), execution_id = $1", completed_by)
        hand.stage.handles[0].raises(ConnectionError("the reply was lost"))
        await hand.report()
        rig.move(1)
        await hand.take()
        await hand.report()
        assert len(hand.stage.handles) == 1
        execution = await rig.last(job_id)
        assert (execution.status, execution.reason) == (
            "succeeded",
            f"its idempotency key was already completed by execution {completed_by}",
        )
        assert hand.intake.slots.used == 0

    async def test_a_job_whose_definition_is_gone_fails_with_a_message(self, rig: Rig) -> None:
        """D5."""
        hand = await rig.worker()
        job_id = await rig.submit()
        await rig.execute("DELETE FROM sexton.jobs")
        await hand.take()
        await hand.report()
        (letter,) = await rig.letters()
        assert (letter.job_id, "definition of this job was deleted" in letter.reason) == (job_id, True)
