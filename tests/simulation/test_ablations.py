"""Removes one safeguard at a time; the search must find the harm. A safeguard that can be removed without harm is not one.

docs/rules.md describes the rules. Each line here is a safeguard, the test that removes it, and the invariant that
breaks then.

Rule "plan by compare-and-set":
- planning compares the cursor: `test_without_comparing_…`, a fire of a schedule is one run

Rule "job row first":
- a pause takes back runs that have not begun: `test_without_taking_back_…`, no run of a paused schedule is to begin
- a resume plans only after the last fire that has begun: `test_without_minding_what_has_begun_…`, a fire is one run
- a cancelled schedule records its due fires: `test_without_telling_what_was_due_…`, every fire has its last row

Rule "one instant, one fire":
- a wall time that has fired by older data does not fire again: `test_without_minding_what_has_fired_…`, a wall time fires once
- newer data are applied before planning: `test_without_following_first_…`, a wall time fires once

Rule "lock, then decide":
- look at the live runs before a start: `test_without_looking_…`, an exclusive job has one live run at most

Rule "look again every pass":
- every pass examines blocked runs: `test_without_another_look_…`, every job ends

Rule "reconcile lost replies":
- a claim whose reply was lost is given back: `test_without_reconciliation_…`, every job ends
- the worker asks for the fate of a report that changed nothing: `test_without_asking_for_its_fate_…`, both ways

Rule "dead only when watched":
- only time spent watching counts: `test_without_watching_…`, no worker is declared dead after an outage

Rule "losses have their own budget":
- a requested cancel allows no further attempt: `test_without_the_rule_of_cancel_…`, the trigger on `runs`

Rule "bounded prefetch":
- at most once, a lost start is buried: `test_without_burying_…`, an at-most-once job starts once

Rule "any node does overdue work":
- any scheduler or worker promotes overdue runs: `test_without_any_node_that_looks_around_…`, every job ends
- any scheduler or worker plans overdue schedules: `test_without_any_planner_…`, every schedule ends
- leadership is not needed for this: `test_without_any_leader_…`

The lease and its fence (docs/adr/002), not part of a rule:
- worker and token in every report: `test_without_any_fence_…`, a report is in the history under its own lease
- the token beside the worker's id: `test_without_the_token_…`, the same, or a run is under two live leases
- a run twice in one batch, under two tokens: `test_without_telling_two_tokens_apart_…`, as for the fence
- a report is kept until it is answered: `test_without_keeping_reports_…`, every job ends
- a worker that is cut off stops itself: `test_without_stopping_itself_…`, it executes no run
- a hand-back is reported after the handler stopped: `test_without_stopping_first_…`, no run is under two live leases
- only a registered, live worker claims: `test_without_asking_who_lives_…`, its worker was registered
- `ctx.transaction()` rolls back without the lease: `test_without_the_check_in_a_transaction_…`, one effect per completion
- the row of an idempotency key: `test_without_the_row_of_a_key_…`, a key gives one job

Limits are in `test_ablations_of_limits.py`; budgets, history and replays in `test_ablations_of_endings.py`. The simulation
cannot reach four rules:
- rule "the sweeper ends overdue runs" (hanging loops): `tests/process/test_leases.py`, `tests/worker/test_heartbeat.py`
- rule "bounded prefetch" (work taken ahead): `tests/worker/test_intake.py`
- rule "session state only on direct connections": `tests/process/test_pooler.py`, `tests/store/test_database.py`
- rule "a clone does not fire": `tests/store/test_cluster.py`

Only one statement is in flight here, so tests with two connections in `tests/store` show what happens between two:
SKIP LOCKED, the state re-checked behind it, rule "lock, then decide" in cancel and unique, the compare-and-set on a beat. They
also show a report twice in one batch (`test_finish.py`), which a worker never sends. `tests/operations/test_admit.py` removes
the lock of a partition; `tests/operations/test_replan.py` two wall times in one gap, and the release of the time zone data
in the planner's compare-and-set; `tests/scheduler/test_planner.py` the version in it, which matters only if an edit does
not plan as well. The worker's id in the fence does not matter while the token is compared: tokens never repeat within a run.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from sexton.domain import retry
from sexton.domain.outcome import Released
from sexton.operations.recurring import replan
from sexton.scheduler.leadership import BEAT_S, Leadership
from sexton.scheduler.overdue_check import OverdueCheck
from sexton.scheduler.sweeper import Sweeper, _Sighting
from sexton.store.fleet.workers import Survey
from sexton.store.work import runs, schedules, zones
from sexton.worker import reporter
from sexton.worker.execution import Execution, Phase
from sexton.worker.heartbeat import Heartbeat
from sexton.worker.overdue import OverdueWork
from sexton.worker.reporter import Reporter
from sexton.worker.transaction import Transaction

from .ablation import Caught, FreshDatabases, found, rewrite
from .actors import NEVER_S, Step
from .fault_profile import LONG_S
from .world import World

pytestmark = pytest.mark.timeout(300)


async def without_any_fence(world: World) -> None:
    await rewrite(world, "finish_runs", ("AND r.token = x.token AND r.worker_id IS NOT DISTINCT FROM x.worker_id", ""))
    await rewrite(world, "finish_batch", ("AND r.token = tokens[p.ord] AND r.worker_id = worker_ids[p.ord]", ""))


async def without_tokens(world: World) -> None:
    await rewrite(
        world,
        "finish_runs",
        ("AND r.token = x.token", ""),
        ("AND r.token = b.token", ""),
    )
    await rewrite(world, "finish_batch", ("AND r.token = tokens[p.ord]", ""))


async def without_the_rule_of_cancel(world: World) -> None:
    await rewrite(
        world,
        "finish_runs",
        ("AND (x.next = 'end' OR r.cancel_requested_at IS NOT NULL)", "AND x.next = 'end'"),
        ("AND r.cancel_requested_at IS NULL\n    RETURNING b.id", "\n    RETURNING b.id"),
    )


async def without_the_row_of_a_key(world: World) -> None:
    await rewrite(world, "submit_jobs", ("IF jobs @? '$[*].key' THEN", "IF false THEN"))


async def late_reporters(world: World) -> None:
    world.client.insisted = lambda: {"timeout": 6, "deadline": None, "start_within": None, "limit": None}
    world.fault_profile = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.0, handler_s=(0.5, 3.0))
    for worker in world.live_workers():
        (action,) = (one for one in worker.actions if one.name == "reporter")
        action.woken, action.run = None, late(world, action.run)


def late(world: World, run: Step) -> Step:
    async def run_and_rest() -> float:
        await run()
        return world.rng.uniform(5.0, 20.0)

    return run_and_rest


async def without_tokens_late(world: World) -> None:
    await without_tokens(world)
    await late_reporters(world)


async def test_without_any_fence_a_late_report_ends_the_next_attempt(fresh_databases: FreshDatabases) -> None:
    assert await found("is in the history under its own lease", fresh_databases, without_any_fence, first_seed=1007)


async def test_without_the_token_a_worker_ends_its_own_next_attempt(fresh_databases: FreshDatabases) -> None:
    assert await found("lease", fresh_databases, without_tokens_late)


async def test_without_the_rule_of_cancel_a_cancelled_run_goes_on(fresh_databases: FreshDatabases) -> None:
    assert await found("goes on though its cancel was requested", fresh_databases, without_the_rule_of_cancel, first_seed=1001)


async def test_without_the_row_of_a_key_a_submission_sent_again_is_a_second_job(fresh_databases: FreshDatabases) -> None:
    assert await found("an idempotency key gives one job", fresh_databases, without_the_row_of_a_key, first_seed=1016)


async def test_without_reconciliation_a_lost_reply_loses_the_run(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(Heartbeat, "_return_the_unknown", nothing)
    assert await found("every job ends", fresh_databases, first_seed=1019)


async def test_without_keeping_reports_a_lost_connection_loses_the_run(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker forgets a report that it could not send."""
    run_once = Reporter.run_once

    async def send_and_forget(self: Reporter) -> float:
        try:
            return await run_once(self)
        except Exception:
            self._pending.clear()
            raise

    monkeypatch.setattr(Reporter, "run_once", send_and_forget)
    assert await found("every job ends", fresh_databases, first_seed=1002)


@pytest.mark.parametrize(
    ("belief", "harm"),
    [
        (runs.RecordedOutcome(recorded=None, held=False), "a result in the history was not counted as lost"),
        (
            runs.RecordedOutcome(recorded=runs.Recorded("succeeded", None, "completed"), held=False),
            "an accepted report is in the history under its own lease",
        ),
    ],
    ids=["lost", "recorded"],
)
async def test_without_asking_for_its_fate_a_worker_is_wrong_about_its_report(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch, belief: runs.RecordedOutcome, harm: str
) -> None:
    async def believe(*_: object) -> runs.RecordedOutcome:
        return belief

    monkeypatch.setattr(runs, "recorded_outcome", believe)
    assert await found(harm, fresh_databases)


async def test_without_telling_two_tokens_apart_a_report_is_taken_for_the_next(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may hold a run twice: it was swept while its report waited, and claimed again by the same worker."""

    monkeypatch.setattr(reporter, "Counter", lambda _: {})
    assert await found("is in the history under its own lease", fresh_databases, late_reporters, first_seed=1002)


async def test_without_watching_an_outage_kills_the_living(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper trusts its clock instead of the time it has watched."""

    def believe_the_clock(self: Sweeper, survey: Survey) -> dict[UUID, int]:
        now, beats = self._clock.monotonic(), survey.beats
        since: dict[tuple[UUID, int], float] = self.__dict__.setdefault("since", {})
        silent_s = {worker_id: now - since.setdefault((worker_id, beat), now) for worker_id, beat in beats.items()}
        self._sightings = {worker_id: _Sighting(beat, self._lease_s, silent_s[worker_id]) for worker_id, beat in beats.items()}
        return {worker_id: beat for worker_id, beat in beats.items() if silent_s[worker_id] >= self._lease_s}

    async def one_outage_after_the_other(world: World) -> None:
        """Whether a sweeper or a worker comes back first is random, so there are several."""
        world.fault_profile = replace(
            world.fault_profile, fault_rate=0.0, process_fault_rate=0.1, process_fault_s=(LONG_S / 2,), only="outage"
        )

    monkeypatch.setattr(Sweeper, "_observe", believe_the_clock)
    assert await found(
        "no worker is declared dead because of an outage", fresh_databases, one_outage_after_the_other, first_seed=1011
    )


async def test_without_stopping_first_a_handed_back_run_is_in_two_hands(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hand-back is reported while the handler still runs."""

    def hand_back_at_once(self: Execution, reason: str) -> None:
        if self.phase in (Phase.TAKEN, Phase.RUNNING):
            self.phase = Phase.RUNNING
            self._end(Released(reason))

    monkeypatch.setattr(Execution, "release", hand_back_at_once)
    assert await found("no run is under two live leases", fresh_databases, first_seed=1002)


async def test_without_stopping_itself_a_worker_that_is_cut_off_runs_on(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "watch", lambda _self: None)
    assert await found("a worker that could not beat for a lease executes nothing", fresh_databases)


async def test_without_checking_for_live_workers_a_worker_claims_before_it_is_known(fresh_databases: FreshDatabases) -> None:
    async def skip_the_check(world: World) -> None:
        living = "NOT EXISTS (SELECT FROM workers w WHERE w.id = worker AND w.lost_at IS NULL"
        await rewrite(world, "claim_runs", (f"IF {living}", f"IF false AND {living}"))

    assert await found("a leased run has a registered worker", fresh_databases, skip_the_check)


async def test_without_burying_what_may_start_once_starts_twice(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_bury_lost", lambda _reason, _state: retry.RetryIn(0.0, "nothing"))
    assert await found("an at-most-once job starts once", fresh_databases, first_seed=1001)


async def test_without_the_check_in_a_transaction_an_effect_outlives_its_lease(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def workers_stand_still(world: World) -> None:
        """They are paused while they execute something; when they continue, they do not know that they lost the run."""
        calm = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.1, aim=1.0, handler_s=(1.0, 8.0))
        world.fault_profile = replace(calm, process_fault_s=(LONG_S / 2,), only="pause")

    monkeypatch.setattr(Transaction, "_check", lambda _self, _finished: None)
    assert await found("effect", fresh_databases, workers_stand_still)


async def lead_nothing(_self: Leadership) -> float:
    return BEAT_S


async def see_to_nothing(_self: OverdueWork) -> int:
    return 0


@pytest.mark.parametrize("helper", ["schedulers", "workers"])
async def test_without_any_leader_what_is_overdue_is_still_promoted(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch, helper: str
) -> None:
    """Rule "any node does overdue work". This test alone finds no harm: either kind of helper is enough."""
    monkeypatch.setattr(Leadership, "run_once", lead_nothing)
    if helper == "schedulers":
        monkeypatch.setattr(OverdueWork, "see_to", see_to_nothing)
    else:
        monkeypatch.setattr(OverdueCheck, "is_due", lambda _self: False)
    for seed in range(1 if Caught.has_pinned_seeds else 2):
        async with fresh_databases() as url, World(url, seed) as world:
            world.client.limited_rate = world.schedule_client.limited_rate = 0.0  # runs that wait for a limit have no leader
            await world.run()
            assert bool(world.journal.seen["Promoted"]) is (helper == "schedulers")


async def test_without_any_node_that_looks_around_waiting_runs_wait_for_ever(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leadership, "run_once", lead_nothing)
    monkeypatch.setattr(OverdueWork, "see_to", see_to_nothing)
    monkeypatch.setattr(OverdueCheck, "is_due", lambda _self: False)
    assert await found("every job ends", fresh_databases)


def take_out(monkeypatch: pytest.MonkeyPatch, name: str, before: str, after: str = "") -> None:
    broken = schedules._SQL[name].replace(before, after)
    assert broken != schedules._SQL[name], f"the safeguard is not where this test takes it away: {before}"
    monkeypatch.setitem(schedules._SQL, name, broken)


async def slow_planners(world: World) -> None:
    """All with the same time zone data, so that none leaves planning to another."""
    world.halt_rate, world.upgrades_s = 0.8, [NEVER_S, NEVER_S]


async def test_without_comparing_the_cursor_a_slow_planner_fires_again_what_has_ended(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "plan", "AND j.plan_cursor_at IS NOT DISTINCT FROM g.cursor_at")
    assert await found("a fire of a schedule is one run", fresh_databases, slow_planners, first_seed=1001)


async def upgraded_in_the_simulated_zone(world: World) -> None:
    """All schedules are in the zone that changes, and the new data arrive after a while."""
    world.schedule_client.zoned_rate, world.upgrades_s = 1.0, [58.0, 62.0]


async def test_without_minding_what_has_fired_newer_zones_fire_it_again(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replan, "_moved", lambda _one, fire_at: (fire_at, fire_at))
    assert await found("a wall time fires once", fresh_databases, upgraded_in_the_simulated_zone, first_seed=1010)


async def test_without_following_first_a_planner_fires_again_what_older_zones_fired(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian has not reached the schedule yet; here it never does."""

    async def nothing(*_: object, **__: object) -> list[UUID]:
        return []

    monkeypatch.setattr(zones, "behind", nothing)
    monkeypatch.setattr(replan, "with_older_zones", lambda _seen: [])
    assert await found("a wall time fires once", fresh_databases, upgraded_in_the_simulated_zone, first_seed=1036)


async def test_without_taking_back_a_paused_schedule_fires(fresh_databases: FreshDatabases) -> None:
    async def keep(world: World) -> None:
        await rewrite(world, "unplan", ("r.state = ANY (states)", "false"))

    assert await found("no run of a paused or cancelled schedule is still to begin", fresh_databases, keep, first_seed=1002)


async def test_without_minding_what_has_begun_a_resume_fires_it_again(fresh_databases: FreshDatabases) -> None:
    async def forget(world: World) -> None:
        await rewrite(
            world,
            "unplan",
            ("SELECT max(r.fire_at)", "SELECT max(NULL::timestamptz)"),
            ("ELSE e.fire_at END", "END"),
        )

        # Jitter may let a fire begin before its nominal time; a pause must not plan that fire again.
        world.schedule_client.jitters, world.schedule_client.hasty = [{"max": 4, "both": True}], frozenset({"pause", "resume"})

    assert await found("a fire ", fresh_databases, forget, first_seed=1004)


async def test_without_telling_what_was_due_a_cancelled_fire_vanishes(fresh_databases: FreshDatabases) -> None:
    async def conceal(world: World) -> None:
        await rewrite(world, "end_fires", ("r.state = 'waiting' AND r.due_at > moment", "r.state = ANY (states)"))

    assert await found("every fire and every run that is over", fresh_databases, conceal, first_seed=1004)


async def test_without_looking_at_what_is_alive_too_many_start(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the last safeguard as well, the index."""

    async def drop_the_index(world: World) -> None:
        await world.observer.execute("DROP INDEX sexton.one_live_run")

    take_out(monkeypatch, "promote_alone", "WHERE NOT j.crowded", "")
    assert await found("an exclusive job has one live run at most", fresh_databases, drop_the_index, first_seed=1001)


async def test_without_another_look_what_is_blocked_stays_blocked(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object, **__: object) -> list[UUID]:
        return []

    monkeypatch.setattr(schedules, "released", nothing)
    assert await found("every job ends", fresh_databases, first_seed=1001)


async def test_without_any_planner_a_schedule_falls_silent(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither leader nor helper: only the runs that were planned with the submission fire."""

    async def none(*_: object, **__: object) -> list[schedules.ToPlan]:
        return []

    monkeypatch.setattr(schedules, "to_plan", none)
    assert await found("every schedule ends", fresh_databases)
