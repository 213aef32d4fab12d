"""Removes safeguards of the end of a run, its history, its claim and its replay; see `test_ablations.py` for the others.

Rule "losses have their own budget":
- losses spend no attempt: `test_without_a_budget_of_losses_…`, every job has an allowed outcome
- the budget has an end: `test_without_an_end_of_losses_…`, no job takes down more workers than it may
- a hand-back spends nothing: `test_without_sparing_…`, every job has an allowed outcome

Rule "one clock reading per statement":
- no high-water marks: `test_without_looking_behind_the_mark_…`, every job ends

Rule "one path in, one path out":
- the statement that ends a run writes its history: `test_without_feeding_history_…`, an ending points to its execution

Rule "bisect bad batches":
- a rejected report does not hold back others: `test_without_bisecting_…`, every job ends

Rule "lock in id order":
- a statement creates a missing partition: `test_without_making_partitions_…`, submissions succeed

Rule "a replay consumes its letter":
- the statement of the replay deletes the dead letter: `test_without_consuming_…`, a dead letter belongs to a job that failed

Rule "claim only known tasks":
- a claim returns only tasks of the worker: `test_without_asking_what_it_knows_…`, a worker claims only tasks it knows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from sexton.domain import retry, run
from sexton.domain.claim_cursors import Look
from sexton.domain.outcome import Lost, Outcome, Released
from sexton.errors import Contention, DataRefused
from sexton.scheduler.overdue_check import OverdueCheck
from sexton.scheduler.promoter import Promoter
from sexton.store.work import dead_letters, retention
from sexton.worker.overdue import OverdueWork
from sexton.worker.reporter import Reporter

from .ablation import FreshDatabases, found, rewrite
from .fault_profile import LONG_S
from .world import World

pytestmark = pytest.mark.timeout(300)


async def workers_stand_still(world: World) -> None:
    """They are paused while they execute something; when they continue, another worker has the run."""
    calm = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.1, aim=1.0, handler_s=(1.0, 8.0))
    world.fault_profile = replace(calm, process_fault_s=(LONG_S / 2,), only="pause", clock_is_set=False)


PATIENT = {"timeout": 0, "deadline": None, "start_within": None, "delivery": None, "max_lost": 1000, "limit": None}


async def poisoned(world: World) -> None:
    """The only fault is that some handlers end their workers, which hold many other runs."""
    calm = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.0, handler_s=(5.0, 15.0), clock_is_set=False)
    world.fault_profile = calm
    world.client.insisted = lambda: PATIENT | {"max_lost": 3, "tenant": None}
    world.client.poison_count, world.client.poison_rate = 3, 0.3


async def patient(world: World) -> None:
    """Every job has unlimited time, and two attempts: only its own failures may end it."""
    await workers_stand_still(world)
    world.client.insisted = lambda: PATIENT | {"retry": retry.Retry.immediate(max_attempts=2)}


async def test_without_a_budget_of_losses_a_job_fails_for_the_deaths_of_its_workers(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spend_an_attempt(lost: Lost, state: retry.RetryState) -> retry.Next:
        return retry._after_failure(state.retry, lost.reason, 0.0, state, Random(0))

    monkeypatch.setattr(retry, "_after_loss", spend_an_attempt)
    assert await found("every job has an allowed outcome", fresh_databases, patient, first_seed=1003)


async def test_without_an_end_of_losses_a_job_takes_down_one_worker_after_the_other(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def charge_for_ever(lost: Lost, _standing: retry.RetryState) -> retry.Next:
        return retry.RetryIn(0.0, "nothing" if lost.held > 1 else "loss")

    monkeypatch.setattr(retry, "_after_loss", charge_for_ever)
    assert await found("no job takes down more workers than it may", fresh_databases, poisoned)


async def test_without_sparing_what_was_handed_back_a_drain_fails_a_job(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = retry.decide

    def spend_an_attempt(outcome: Outcome, state: retry.RetryState, rng: Random) -> retry.Next:
        following = decide(outcome, state, rng)
        is_hand_back = isinstance(outcome, Released) and isinstance(following, retry.RetryIn)
        return retry.RetryIn(0.0, "attempt") if is_hand_back else following

    async def drained(world: World) -> None:
        await patient(world)
        world.fault_profile = replace(world.fault_profile, handler_s=(5.0, 30.0), only="drain")

    monkeypatch.setattr(run, "decide", spend_an_attempt)
    assert await found("every job has an allowed outcome", fresh_databases, drained)


async def test_without_looking_behind_the_mark_what_became_due_there_waits_for_ever(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no helper promotes."""

    async def see_to_nothing(_self: OverdueWork) -> int:
        return 0

    async def set_the_clock(world: World) -> None:
        world.fault_profile = replace(
            world.fault_profile, process_fault_rate=0.05, process_fault_s=(LONG_S,), clock_is_set=True, only="clock"
        )

    monkeypatch.setattr(Promoter, "_look", lambda self, _led, _now_s: Look.WHOLE if self._mark is None else Look.AHEAD)
    monkeypatch.setattr(OverdueCheck, "is_due", lambda _self: False)
    monkeypatch.setattr(OverdueWork, "see_to", see_to_nothing)
    assert await found("every job ends", fresh_databases, set_the_clock, first_seed=1001)


async def test_without_feeding_history_an_ending_points_nowhere(fresh_databases: FreshDatabases) -> None:
    async def write_none(world: World) -> None:
        for function, source in (("finish_runs", "FROM tries\n  "), ("finish_batch", "FROM ended e\n    ")):
            await rewrite(
                world, function, (f"{source}), job_endings AS (", f"{source.rstrip()} WHERE false), job_endings AS (")
            )

    assert await found("an ending points to the execution that made it", fresh_databases, write_none)


async def test_without_bisecting_one_report_holds_back_all(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def try_again(_self: Reporter, _batch: Sequence[object], refusal: DataRefused) -> None:
        raise Contention(str(refusal))

    monkeypatch.setattr(Reporter, "_bisect", try_again)
    assert await found("every job ends", fresh_databases)


async def test_without_making_partitions_on_the_spot_a_missed_one_stops_everything(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The janitor, which creates partitions ahead, has not run yet; here it never does."""

    async def none(*_: object, **__: object) -> None: ...

    async def make_none(world: World) -> None:
        await rewrite(world, "ensure_partitions", ("PERFORM sexton.make_partitions(at, at + interval '1 day');", "NULL;"))

    monkeypatch.setattr(retention, "make_partitions", none)
    assert await found("no partition of relation", fresh_databases, make_none)


async def test_without_consuming_its_letter_a_job_is_dead_and_alive(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumed = "DELETE FROM sexton.dead_letters d WHERE d.id = ANY (ARRAY(SELECT id FROM locked)) RETURNING d.*"
    kept = "SELECT d.* FROM sexton.dead_letters d WHERE d.id = ANY (ARRAY(SELECT id FROM locked))"
    replay = dead_letters._SQL["replay"]
    assert consumed in replay, "the safeguard is not where this test takes it away"
    monkeypatch.setitem(dead_letters._SQL, "replay", replay.replace(consumed, kept))
    assert await found("a dead letter belongs to a job that ended as failed", fresh_databases)


async def test_without_asking_what_it_knows_a_worker_takes_what_it_cannot_do(fresh_databases: FreshDatabases) -> None:
    async def ask_nobody(world: World) -> None:
        await rewrite(world, "is_for", ("run.task = ANY (tasks) AND ", ""))

    assert await found("a worker claims only tasks it knows", fresh_databases, ask_nobody)
