"""Batch tasks: one call for many runs, each with its own lease, outcome and history."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from math import ceil, log2
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from sexton.domain.batch import Batch
from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.outcome import Released
from sexton.domain.retry import Retry
from sexton.domain.run import report
from sexton.errors import PermanentError, RetryLater, Snooze
from sexton.handlers.context import Context
from sexton.handlers.python.batch.context import BatchContext, Run
from sexton.settings import Settings
from sexton.store.fleet import workers
from sexton.store.sharing import parked_runs
from sexton.store.work import runs
from sexton.telemetry.events import CallDivided
from sexton.worker.batch.forming import STALE_S
from sexton.worker.batch.intake import BatchIntake
from sexton.worker.execution import LOST_GRACE_S
from sexton.worker.quarantine.child import Confined
from sexton.worker.worker import Worker
from tests.rig import LEASE_S, LONG_S, HandWorker, Rig, settle

WAIT_S = 0.02


class Mail(msgspec.Struct):
    user_id: int


class Calls:
    """A batch function that ends its calls when the test says so. `numbers`: the argument `n` of the runs of each call."""

    def __init__(self) -> None:
        self.contexts: list[BatchContext] = []
        self.runs: list[list[Run[Any]]] = []
        self.ends: list[asyncio.Future[Any]] = []
        self.stops_late = False

    async def send(self, ctx: BatchContext, runs: list[Run[Any]]) -> Any:
        end = asyncio.get_running_loop().create_future()
        self.contexts.append(ctx)
        self.runs.append(runs)
        self.ends.append(end)
        while self.stops_late:
            try:
                return await asyncio.shield(end)
            except asyncio.CancelledError:
                if end.done():
                    raise
        return await end

    @property
    def numbers(self) -> list[list[int]]:
        return [[run.args["n"] for run in runs] for runs in self.runs]

    @property
    def sizes(self) -> list[int]:
        return [len(runs) for runs in self.runs]


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls()
    yield calls
    calls.stops_late = False
    for end in calls.ends:
        end.cancel()
    await settle()


async def worker(rig: Rig, function: Callable[..., Any], batch: Batch, **options: Any) -> HandWorker:
    return await rig.worker(function, tasks=(), batches={function.__name__: batch}, **options)


async def submit(rig: Rig, count: int, first: int = 0, task: str = "send", **options: Any) -> list[UUID]:
    """The argument `n` counts from `first`. They are due one after the other."""
    ids = []
    for n in range(count):
        ids.append(await rig.submit(task, {"n": first + n}, **options))
        rig.move(0.0001)
    return ids


async def begin(rig: Rig, hand: HandWorker) -> None:
    """Claims, and starts what has waited long enough."""
    await hand.beat()
    await hand.take()
    rig.move(WAIT_S)
    await settle()


async def all_statuses(rig: Rig, ids: list[UUID]) -> list[str]:
    return [(await rig.last(job_id)).status for job_id in ids]


class TestForming:
    async def test_a_full_call_starts_at_once(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(3, wait=WAIT_S))
        await submit(rig, 3)
        await hand.take()
        await settle()
        assert calls.numbers == [[0, 1, 2]]

    async def test_a_lone_run_waits_for_others_and_then_starts(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(3, wait=WAIT_S))
        await submit(rig, 1)
        await hand.take()
        await settle()
        assert calls.sizes == []
        rig.move(WAIT_S)
        await settle()
        assert calls.numbers == [[0]], "no further claim was needed"

    async def test_later_runs_join_a_call_that_waits(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(3, wait=WAIT_S))
        await submit(rig, 1)
        await hand.take()
        rig.move(WAIT_S / 2)
        await submit(rig, 2, first=1)
        await hand.take()
        await settle()
        assert calls.numbers == [[0, 1, 2]]

    async def test_no_more_calls_than_allowed_and_the_next_one_starts_when_one_ends(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S, calls=2))
        await submit(rig, 7)
        await hand.take()
        await settle()
        assert calls.sizes == [2, 2]
        assert len(hand.held) == 4, "it claims only what it can start"
        await hand.take()
        assert len(hand.held) == 4
        calls.ends[0].set_result(None)
        await settle()
        await hand.take()
        await settle()
        assert calls.sizes == [2, 2, 2]

    @pytest.mark.parametrize(
        ("by", "options", "payloads", "expected"),
        [
            ("tenant", [{"tenant": "a"}, {"tenant": "b"}, {"tenant": "a"}], [{}, {}, {}], [[0, 2], [1]]),
            ("limit", [{"limit": {"key": "a", "running": 9}}, {}, {"limit": {"key": "a"}}], [{}, {}, {}], [[0, 2], [1]]),
            ("region", [{}, {}, {}], [{"region": ["eu", 1]}, {}, {"region": ["eu", 1]}], [[0, 2], [1]]),
            (
                ("tenant", "region"),
                [{"tenant": "a"}, {"tenant": "a"}, {"tenant": "b"}, {"tenant": "a"}],
                [{"region": 1}, {"region": 2}, {"region": 1}, {"region": 1}],
                [[0, 3], [1], [2]],
            ),
            ((), [{"timeout": "9s"}, {"timeout": "8s"}, {"timeout": "9s"}], [{}, {}, {}], [[0, 2], [1]]),
            ((), [{"grace": "9s"}, {}, {"progress_within": "9s"}], [{}, {}, {}], [[0], [1], [2]]),
            ((), [{"delivery": "at_most_once"}, {}, {"delivery": "at_most_once"}, {}], [{}, {}, {}, {}], [[0], [1, 3], [2]]),
        ],
        ids=str,
    )
    async def test_only_runs_that_are_alike_share_a_call(
        self, rig: Rig, calls: Calls, by: Any, options: list[Any], payloads: list[Any], expected: list[list[int]]
    ) -> None:
        hand = await worker(rig, calls.send, Batch(10, wait=WAIT_S, by=by, calls=9))
        for n, (option, payload) in enumerate(zip(options, payloads, strict=True)):
            await rig.submit("send", {"n": n, **payload}, **option)
        async with rig.database.connection() as connection:
            await parked_runs.release(connection, now=rig.clock.database_now())
        await begin(rig, hand)
        assert sorted(sorted(numbers) for numbers in calls.numbers) == expected

    async def test_runs_that_no_call_becomes_free_for_are_given_back(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S, by="tenant"))
        ids = [await rig.submit("send", {"n": n}, tenant=f"t{n}") for n in range(2)]
        await begin(rig, hand)
        assert calls.sizes == [1]
        rig.move(STALE_S)
        await hand.take()
        await hand.report()
        (waiting,) = [job_id for job_id in ids if await rig.state(job_id) == "ready"]
        last = await rig.last(waiting)
        assert (last.status, last.reason) == ("released", "claimed, but no call of its batch was free")

    async def test_where_most_of_a_claim_waits_in_vain_the_next_ones_are_smaller(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(200, wait=WAIT_S, by="tenant"))
        for n in range(200):
            await rig.submit("send", {"n": n}, tenant=f"t{n}")
        sizes = []
        for _ in range(5):
            await begin(rig, hand)
            sizes.append(len(hand.held))
            rig.move(STALE_S)
            await hand.take()
            await hand.report()
            calls.ends[-1].set_result(None)
            await hand.report()
        assert sizes == [200, 100, 50, 25, 25], "to give back a few is cheaper than a smaller claim"

    async def test_where_all_of_a_claim_starts_the_next_ones_grow_again(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(100, wait=WAIT_S))
        assert isinstance(hand.intake, BatchIntake)
        hand.intake._reach = 4
        await submit(rig, 60)
        sizes = []
        for _ in range(4):
            await begin(rig, hand)
            sizes.append(calls.sizes[-1])
            calls.ends[-1].set_result(None)
            await hand.report()
        assert sizes == [4, 8, 16, 32]

    async def test_an_at_most_once_run_never_waits_for_a_call(self, rig: Rig, calls: Calls) -> None:
        """Rule "bounded prefetch": its claim counts as its start. It has not started, so it may be given back."""
        hand = await worker(rig, calls.send, Batch(9, wait=WAIT_S, calls=2))
        ids = await submit(rig, 5, delivery="at_most_once")
        await begin(rig, hand)
        await hand.report()
        assert calls.sizes == [1, 1]
        assert len(hand.held) == 2
        assert sorted(await rig.states()) == ["ready"] * 3 + ["running"] * 2
        assert await rig.letters() == []
        for end in calls.ends:
            end.set_result(None)
        await hand.report()
        await begin(rig, hand)
        assert len(hand.held) == 2, "from now on it claims no more of them than there are free calls"
        assert calls.sizes == [1] * 4
        assert len(ids) == 5

    async def test_its_slots_are_apart_from_those_of_other_tasks(self, rig: Rig, calls: Calls) -> None:
        async def other(_ctx: Context) -> None:
            await asyncio.Event().wait()

        shapes = {"send": Batch(5, wait=WAIT_S, calls=2)}
        hand = await rig.worker(calls.send, other, tasks=(), batches=shapes, worker_concurrency=3)
        await submit(rig, 4)
        await submit(rig, 4, task="other", timeout=0)
        for intake in hand.worker.intakes:
            await intake.run_once()
        await hand.beat()
        async with rig.database.connection() as connection:
            (me,) = await workers.workers(connection, now=rig.clock.database_now())
        assert (me.concurrency, me.batch_slots, me.running_count, me.batch_running_count) == (13, 10, 7, 4)


class TestOutcomes:
    async def test_runs_that_are_not_decided_succeed_when_the_function_returns(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.ends[0].set_result(None)
        await hand.report()
        assert await all_statuses(rig, ids) == ["succeeded"] * 2
        assert hand.held == []
        assert hand.intake.slots.used == 0

    async def test_a_returned_list_has_the_result_of_each_run(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.ends[0].set_result([{"sent": 1}, None])
        await hand.report()
        assert [(await rig.last(one)).result_json for one in ids] == ['{"sent": 1}', None]

    async def test_each_run_is_decided_and_reported_alone_while_the_call_goes_on(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(4, wait=WAIT_S))
        ids = await submit(rig, 4)
        await begin(rig, hand)
        ctx, runs = calls.contexts[0], calls.runs[0]
        assert ctx.succeed(runs[0], {"id": 7})
        assert ctx.fail(runs[1], "unknown address")
        assert ctx.snooze(runs[2], "10m")
        await hand.report()
        assert await all_statuses(rig, ids[:3]) == ["succeeded", "failed", "snoozed"]
        assert json.loads((await rig.last(ids[0])).result_json or "") == {"id": 7}
        error = (await rig.last(ids[1])).error
        assert error is not None
        assert (error.type, error.message) == ("sexton.errors.RunFailed", "unknown address")
        assert not ctx.succeed(runs[1]), "it was decided before"
        assert [execution.claimed.lease.job_id for execution in hand.held] == ids[3:]
        calls.ends[0].set_result(None)
        await hand.report()
        assert await all_statuses(rig, ids[3:]) == ["succeeded"]

    async def test_a_failed_run_is_charged_by_its_own_policy(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        (once,) = await submit(rig, 1, retry=Retry.never())
        (again,) = await submit(rig, 1, retry=Retry.after("1h", jitter=0))
        await begin(rig, hand)
        for each in calls.runs[0]:
            calls.contexts[0].fail(each, ConnectionError("gone"))
        await hand.report()
        assert await rig.status(once) == "failed"
        run = await rig.run(again)
        assert run is not None
        assert (run["state"], run["attempt"]) == ("waiting", 1)

    async def test_a_permanent_error_and_a_later_retry_work_for_one_run(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.contexts[0].fail(calls.runs[0][0], PermanentError("no such user"))
        calls.contexts[0].fail(calls.runs[0][1], RetryLater("busy", delay_s=3600))
        await hand.report()
        assert await rig.status(ids[0]) == "failed"
        waiting = await rig.run(ids[1])
        assert waiting is not None
        assert (waiting["due_at"] - rig.clock.database_now()).total_seconds() > 3000

    async def test_a_snooze_of_the_call_snoozes_all_that_are_not_decided(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(3, wait=WAIT_S))
        ids = await submit(rig, 3)
        await begin(rig, hand)
        calls.contexts[0].succeed(calls.runs[0][0])
        calls.ends[0].set_exception(Snooze(600))
        await hand.report()
        assert await all_statuses(rig, ids) == ["succeeded", "snoozed", "snoozed"]
        assert [row["batch_limit"] for row in await rig.execute("SELECT batch_limit FROM sexton.runs")] == [None, None]

    async def test_a_result_list_of_another_length_is_a_permanent_error(self, rig: Rig, calls: Calls) -> None:
        """The call has had its effect: another one would only repeat it."""
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.ends[0].set_result([1, 2, 3])
        await hand.report()
        letters = await rig.letters()
        assert {letter.job_id for letter in letters} == set(ids)
        assert all(letter.permanent and "3 results for 2 runs" in letter.reason for letter in letters)

    async def test_a_result_that_is_too_large_fails_only_its_own_run(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.ends[0].set_result(["x" * RESULT_BYTES_LIMIT, "y"])
        await hand.report()
        assert await all_statuses(rig, ids) == ["failed", "succeeded"]

    async def test_a_payload_that_does_not_fit_fails_only_its_own_run_and_names_the_field(self, rig: Rig) -> None:
        seen: list[Any] = []

        async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None:
            seen.extend(run.args for run in runs)

        hand = await worker(rig, send, Batch(4, wait=WAIT_S))
        bad = [await rig.submit("send", payload, retry=Retry.immediate(max_attempts=1)) for payload in ({"user_id": "x"}, {})]
        later = await rig.submit("send", {"user_id": None})
        good = await rig.submit("send", {"user_id": 7})
        await begin(rig, hand)
        await settle()
        await hand.report()
        assert seen == [Mail(7)]
        assert await rig.status(good) == "completed"
        assert await rig.state(later) == "waiting", "a newer worker may accept it"
        reasons = [letter.reason for letter in await rig.letters()]
        assert len(reasons) == len(bad)
        assert all("user_id" in reason for reason in reasons)

    async def test_each_run_has_its_facts_and_its_own_output(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        job_id = await rig.submit("send", {"n": 1}, name="mail", tenant="acme", trace="00-1-2-01", key="k")
        other = await rig.submit("send", {"n": 2})
        await begin(rig, hand)
        one, two = sorted(calls.runs[0], key=lambda run: run.args["n"])
        assert (one.job_id, one.attempt, one.name, one.tenant, one.queue) == (job_id, 1, "mail", "acme", "default")
        assert (one.trace, one.idempotency_key, one.origin) == ("00-1-2-01", "k", "now")
        assert one.fire_at == one.due_at
        assert one.id == next(held.claimed.run_id for held in hand.held if held.claimed.lease.job_id == job_id)
        one.log("of one")
        calls.contexts[0].succeed(one)
        calls.contexts[0].log("of those left")
        two.progress(0.5)
        calls.ends[0].set_result(None)
        await hand.report()
        assert [(await rig.last(each)).output for each in (job_id, other)] == ["of one", "of those left"]
        with pytest.raises(RuntimeError, match="not available in a batch"):
            calls.contexts[0].transaction()

    async def test_a_context_decides_only_runs_of_its_call_and_nothing_after_its_end(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(1, wait=WAIT_S))
        await submit(rig, 2)
        await begin(rig, hand)
        calls.ends[0].set_result(None)
        await hand.report()
        await begin(rig, hand)
        with pytest.raises(ValueError, match="not a run of this call"):
            calls.contexts[1].succeed(calls.runs[0][0])
        assert not calls.contexts[0].succeed(calls.runs[0][0])


async def until_all_have_ended(rig: Rig, hand: HandWorker) -> None:
    """As a worker does: it claims, waits, executes and reports, again and again, while anything is ready."""
    for _ in range(500):
        await hand.take()
        rig.move(WAIT_S)
        await settle()
        await settle()
        await hand.report()
        if "ready" not in await rig.states() and not hand.held:
            return
    raise AssertionError("it does not come to an end")


class TestFailedCalls:
    @pytest.mark.parametrize("size", [1, 2, 7, 64])
    async def test_only_a_run_that_fails_alone_is_charged(self, rig: Rig, size: int) -> None:
        """Rule "a failed call is halved"."""
        sizes: list[int] = []

        async def send(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> None:
            sizes.append(len(runs))
            if any(run.args["n"] == size // 2 for run in runs):
                raise ValueError("one of them is poison")

        hand = await worker(rig, send, Batch(size, wait=WAIT_S))
        ids = await submit(rig, size, retry=Retry.after("1h", jitter=0))
        await until_all_have_ended(rig, hand)
        culprit = ids.pop(size // 2)
        assert [await rig.status(one) for one in ids] == ["completed"] * (size - 1)
        assert {(await rig.last(one)).attempt for one in ids} <= {1}
        run = await rig.run(culprit)
        assert run is not None
        assert (run["attempt"], run["batch_limit"], run["state"]) == (1, None, "waiting")
        assert (await rig.statuses(culprit)).count("failed") == 1
        assert len(sizes) <= 2 * ceil(log2(size)) + 1

    async def test_a_run_of_a_failed_call_is_returned_with_half_the_company(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(5, wait=WAIT_S))
        ids = await submit(rig, 5)
        await begin(rig, hand)
        calls.ends[0].set_exception(ValueError("broken"))
        await hand.report()
        rows = await rig.execute("SELECT state, attempt, batch_limit FROM sexton.runs")
        assert {tuple(row) for row in rows} == {("ready", 0, 3)}
        last = await rig.last(ids[0])
        reason = "its call failed with 5 runs in it: ValueError('broken')"
        assert (last.status, last.reason) == ("released", reason)
        assert rig.of(CallDivided) == [CallDivided(hand.worker.worker_id, "send", 5, 3, reason)]

    async def test_another_worker_goes_on_with_the_halves(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(4, wait=WAIT_S))
        await submit(rig, 4)
        await begin(rig, hand)
        calls.ends[0].set_exception(ValueError("broken"))
        await hand.report()
        other = await worker(rig, calls.send, Batch(4, wait=WAIT_S))
        await other.take()
        await settle()
        assert calls.sizes == [4, 2]

    async def test_a_call_that_times_out_is_divided_and_one_that_is_alone_is_charged(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2, timeout="30s")
        await begin(rig, hand)
        rig.move(31)
        await hand.report()
        assert await all_statuses(rig, ids) == ["released"] * 2
        assert (await rig.last(ids[0])).reason == "2 runs in its call: still running after its timeout of 30 s"
        rows = await rig.execute("SELECT attempt, batch_limit FROM sexton.runs")
        assert {tuple(row) for row in rows} == {(0, 1)}
        await begin(rig, hand)
        rig.move(31)
        await hand.report()
        assert calls.sizes == [2, 1]
        assert sorted(await all_statuses(rig, ids)) == ["released", "timed_out"]

    async def test_only_runs_with_the_same_history_share_a_call(self, rig: Rig, calls: Calls) -> None:
        """Otherwise runs that were never in a failed call would be drawn into smaller ones."""
        hand = await worker(rig, calls.send, Batch(4, wait=WAIT_S, calls=4))
        await submit(rig, 3)
        await begin(rig, hand)
        calls.ends[0].set_exception(ValueError("broken"))
        await hand.report()
        await submit(rig, 2, first=3)
        await begin(rig, hand)
        assert sorted(calls.numbers[1:]) == [[0, 1], [2], [3, 4]]

    async def test_a_decided_run_stays_decided_when_the_call_fails(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        calls.contexts[0].succeed(calls.runs[0][0])
        calls.ends[0].set_exception(ValueError("broken"))
        await hand.report()
        assert await all_statuses(rig, ids) == ["succeeded", "released"]
        run = await rig.run(ids[1])
        assert run is not None
        assert (run["attempt"], run["batch_limit"]) == (0, 1), "it was not alone: the other may be the cause"

    async def test_the_end_of_a_worker_keeps_the_halves(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(4, wait=WAIT_S))
        await submit(rig, 4)
        await begin(rig, hand)
        calls.ends[0].set_exception(ValueError("broken"))
        await hand.report()
        await begin(rig, hand)
        sweeper = rig.sweeper()
        for _ in range(2 * round(LEASE_S)):
            rig.move(1.0)
            await sweeper.run_once()
        rows = await rig.execute("SELECT state, attempt, lost_count, batch_limit FROM sexton.runs")
        assert {tuple(row) for row in rows} == {("ready", 0, 0, 2)}


class TestStops:
    async def test_a_cancelled_run_ends_at_once_and_its_report_is_refused(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        await rig.cancel(ids[0])
        await hand.beat()
        await hand.report()
        assert await rig.status(ids[0]) == "cancelled"
        assert [run.cancelled for run in calls.runs[0]] == [True, False]
        assert not calls.contexts[0].cancelled
        assert not calls.contexts[0].succeed(calls.runs[0][0])
        calls.ends[0].set_result(None)
        await hand.report()
        assert await rig.status(ids[1]) == "completed"
        assert await rig.statuses(ids[0]) == ["cancelled"]

    async def test_a_call_without_runs_is_asked_to_stop(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        for job_id in ids:
            await rig.cancel(job_id)
        await hand.beat()
        await hand.report()
        assert calls.contexts[0].cancelled
        assert calls.ends[0].cancelled()
        assert [await rig.status(one) for one in ids] == ["cancelled"] * 2
        await hand.intake.at_rest()
        assert rig.of(CallDivided) == []

    async def test_a_lost_lease_ends_only_its_own_run(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2)
        await begin(rig, hand)
        lost = next(execution for execution in hand.held if execution.claimed.lease.job_id == ids[0])
        async with rig.database.connection() as connection:
            await runs.finish(connection, [report(lost.claimed.lease, Released("by another"), rig.rng)])
        await hand.beat()
        await settle()
        assert [run.cancelled for run in calls.runs[0]] == [True, False]
        assert not calls.contexts[0].succeed(calls.runs[0][0])
        assert [execution.claimed.lease.job_id for execution in hand.held] == [ids[1]]
        calls.ends[0].set_result(None)
        await hand.report()
        assert await rig.status(ids[1]) == "completed"
        assert await rig.state(ids[0]) == "ready", "another worker may have it"

    async def test_a_call_whose_runs_are_all_lost_is_forced_soon(self, rig: Rig, calls: Calls) -> None:
        """Other workers may already execute them."""
        calls.stops_late = True
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S), worker_grace_s=20.0)
        await submit(rig, 2)
        await begin(rig, hand)
        for execution in hand.held:
            execution.lose()
        await settle()
        assert hand.held == []
        rig.move(LOST_GRACE_S + 0.1)
        await settle()
        assert len(hand.worker._zombies) == 1
        assert rig.of(CallDivided) == []

    async def test_the_timeout_holds_for_a_call_that_has_decided_all_its_runs(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2, timeout="30s")
        await begin(rig, hand)
        for run in calls.runs[0]:
            calls.contexts[0].succeed(run)
        await hand.report()
        assert await all_statuses(rig, ids) == ["succeeded"] * 2
        assert not calls.contexts[0].cancelled
        rig.move(31)
        await settle()
        assert calls.contexts[0].cancelled
        assert calls.ends[0].cancelled()

    async def test_a_deadline_is_that_of_its_own_run(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S))
        (soon,) = await submit(rig, 1, deadline="5s")
        (later,) = await submit(rig, 1)
        await begin(rig, hand)
        rig.move(6)
        await hand.report()
        assert await rig.statuses(soon) == ["timed_out"]
        assert await rig.statuses(later) == []
        assert not calls.ends[0].done()

    async def test_a_run_that_is_cancelled_before_its_call_is_not_in_it(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(3, wait=WAIT_S))
        ids = await submit(rig, 2)
        await hand.take()
        await rig.cancel(ids[0])
        await hand.beat()
        rig.move(WAIT_S)
        await settle()
        assert calls.numbers == [[1]]

    async def test_a_call_that_does_not_stop_keeps_its_place_and_counts_once(self, rig: Rig, calls: Calls) -> None:
        calls.stops_late = True
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S), worker_zombie_limit=2)
        ids = await submit(rig, 2, timeout="30s")
        await begin(rig, hand)
        rig.move(31)
        await settle()
        rig.move(3)
        await hand.report()
        assert await all_statuses(rig, ids) == ["released"] * 2
        assert len(hand.worker._zombies) == 1
        assert not hand.worker.exhausted.is_set()
        await hand.intake.at_rest()  # a drain does not wait for it
        await begin(rig, hand)
        assert calls.sizes == [2], "its call is not free"
        calls.ends[0].set_result(None)
        await settle()
        await settle()
        assert not hand.worker._zombies
        assert [event.run_count for event in rig.of(CallDivided)] == [2]
        await begin(rig, hand)
        assert calls.sizes == [2, 1]

    async def test_a_drain_waits_for_the_call_and_then_gives_its_runs_back(self, rig: Rig, calls: Calls) -> None:
        hand = await worker(rig, calls.send, Batch(2, wait=WAIT_S, by="tenant"))
        running, waiting = await submit(rig, 1, tenant="a"), await submit(rig, 1, first=1, tenant="b")
        await begin(rig, hand)
        await hand.worker.drain(patience_s=0.01)
        await hand.report()
        assert await all_statuses(rig, [*running, *waiting]) == ["released"] * 2
        rows = await rig.execute("SELECT state, attempt, batch_limit FROM sexton.runs")
        assert {tuple(row) for row in rows} == {("ready", 0, None)}
        assert rig.of(CallDivided) == []

    @pytest.mark.parametrize(("size", "lost_count"), [(2, 0), (1, 1)])
    async def test_a_call_that_blocks_the_loop_is_lost_as_a_whole_and_only_a_lone_run_is_charged(
        self, rig: Rig, calls: Calls, size: int, lost_count: int
    ) -> None:
        """Rule "suspects apart"."""

        async def innocent(_ctx: Context) -> None:
            await asyncio.Event().wait()

        ids = await submit(rig, size, timeout=0)
        other = await rig.submit("innocent", timeout=0)
        hand = await rig.worker(calls.send, innocent, tasks=(), batches={"send": Batch(2, wait=WAIT_S)})
        for intake in hand.worker.intakes:
            await intake.run_once()
        rig.move(WAIT_S)
        await settle()
        blocking = next(held._handle for held in hand.held if held.claimed.task == "send")
        task = blocking._shared._handle.done  # type: ignore[union-attr]
        hand.worker.pulse.current_task = lambda: task  # type: ignore[method-assign]
        for _ in range(9):
            rig.move(0.5)
            hand.heartbeat.watch()
            await hand.heartbeat.run_once()
        assert await all_statuses(rig, ids) == ["lost"] * size
        rows = await rig.execute("SELECT lost_count, company FROM sexton.runs WHERE task = 'send'")
        assert {tuple(row) for row in rows} == {(lost_count, 0)}
        assert await rig.statuses(other) == ["released"]


async def confined(rig: Rig, parent: HandWorker) -> HandWorker:
    """A worker in quarantine, with the tasks of its parent."""
    made = Worker(
        rig.database,
        parent.worker._registry,
        Settings(worker_grace_s=2.0, lease_s=LEASE_S),
        timers=rig.timers,
        clock=rig.clock,
        emit=rig.heard,
        rng=rig.rng,
        poll_s=2.0,
        confined=Confined(uuid4(), parent.worker.worker_id),
    )
    hand = HandWorker(rig, made, made.make_heartbeat(rig.database, lambda call: call()), parent.stage)
    await hand.beat()
    return hand


async def succeeds(hand: HandWorker, calls: Calls) -> None:
    for end in calls.ends:
        if not end.done():
            end.set_result(None)
    await hand.report()


async def dies(rig: Rig, hand: HandWorker, parent: HandWorker) -> None:
    """It sends no heartbeat any more, until a sweeper declares it lost."""
    sweeper = rig.sweeper()
    for _ in range(2 * round(LEASE_S)):
        rig.move(1.0)
        if hand is not parent:
            await parent.beat()
        await sweeper.run_once()


class TestPoison:
    async def test_a_run_that_takes_down_its_workers_is_found_and_buried_alone(self, rig: Rig, calls: Calls) -> None:
        """Rule "suspects apart": the runs of a call are held together, and a group of suspects is a call."""
        size, max_lost, deaths = 8, 3, 0
        ids = await submit(rig, size, timeout=0, max_lost=max_lost)
        culprit = ids[5]
        parent = hand = await worker(rig, calls.send, Batch(size, wait=WAIT_S))
        while await rig.states() and deaths < 100:
            await parent.beat()
            await begin(rig, hand)
            if any(execution.claimed.lease.job_id == culprit for execution in hand.held):
                deaths += 1
                await dies(rig, hand, parent)
                parent = await worker(rig, calls.send, Batch(size, wait=WAIT_S)) if hand is parent else parent
                hand = await confined(rig, parent) if "quarantined" in await rig.states() else parent
            else:
                await succeeds(hand, calls)
        assert deaths <= 2 + ceil(log2(size)) - 1 + max_lost
        assert [await rig.status(one) for one in ids] == ["failed" if one == culprit else "completed" for one in ids]
        (letter,) = await rig.letters()
        assert "took down" in letter.reason


class TestInAThread:
    async def test_it_decides_run_by_run_from_its_thread(self, rig: Rig) -> None:
        def send(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> list[int | None]:
            ctx.fail(runs[0], ValueError("no"))
            assert not ctx.succeed(runs[0])
            ctx.succeed(runs[1], "early")
            return [None, None, runs[2].args["n"]]

        hand = await worker(rig, send, Batch(3, wait=WAIT_S))
        ids = await submit(rig, 3)
        await begin(rig, hand)
        await hand.worker.intakes[0].at_rest()
        await hand.report()
        assert await all_statuses(rig, ids) == ["failed", "succeeded", "succeeded"]
        assert [(await rig.last(one)).result_json for one in ids[1:]] == ['"early"', "2"]

    async def test_a_failed_call_is_divided_and_a_stop_is_seen(self, rig: Rig) -> None:
        started, stop = threading.Event(), threading.Event()

        def send(ctx: BatchContext, runs: list[Run[Any]]) -> None:
            started.set()
            stop.wait(LONG_S)
            ctx.check_cancelled()

        hand = await worker(rig, send, Batch(2, wait=WAIT_S))
        ids = await submit(rig, 2, timeout="30s")
        await begin(rig, hand)
        await asyncio.to_thread(started.wait, LONG_S)
        rig.move(31)
        stop.set()
        await hand.worker.intakes[0].at_rest()
        await hand.report()
        assert await all_statuses(rig, ids) == ["released"] * 2
        assert [row["batch_limit"] for row in await rig.execute("SELECT batch_limit FROM sexton.runs")] == [1, 1]


class TestDeclaration:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"size": 0}, "batch.size: 0 must be a number between 1 and 1,000"),
            ({"size": 1001}, "between 1 and 1,000"),
            ({"size": 2, "calls": 0}, "batch.calls"),
            ({"size": 2, "wait": "2s"}, "batch.wait: '2s' is too long"),
            ({"size": 2, "wait": "soon"}, "batch.wait"),
            ({"size": 2, "by": ["tenant", 7]}, "batch.by"),
        ],
        ids=str,
    )
    def test_a_batch_that_cannot_be_is_refused(self, options: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Batch(**options)
