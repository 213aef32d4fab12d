"""Removes safeguards of limits; the search must find the harm. See `test_ablations.py` for the others.

Rule "slots, not counts":
- a claim takes a slot, and their number is bounded: `test_without_a_number_of_slots_…`, no limit is exceeded
- slots beyond a lowered limit count: `test_without_counting_what_is_beyond_…`, no limit is exceeded
- the end of a try releases its slot: `test_without_giving_slots_back_…`, a slot is held by a live run
- a tenant's runs take slots too: `test_without_slots_of_a_tenant_…`, no tenant has more runs at once

Rule "look again every pass":
- every pass examines parked runs: `test_without_another_look_…`, every job ends

Order and rate, not part of a rule:
- a run keeps the slot of an ordered key until it ends: `test_without_keeping_its_place_…`, one at a time
- an ordered key waits for runs that are due earlier: `test_without_waiting_for_what_is_due_before_…`, in order of due time
- a paused run releases the slot of an ordered key: `test_without_stepping_out_of_line_…`, a slot is held by a live run
- a retry that its rate held back does not wait for its own slot: `test_without_a_way_past_itself_…`, every job ends
- a start takes a token: `test_without_tokens_…`, no rate is exceeded

That two claims at once share the slots, rule "lock, then decide", is shown with two connections in
`tests/store/test_limits.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.scheduler.overdue_check import OverdueCheck
from sexton.store.sharing import parked_runs

from .ablation import FreshDatabases, found, rewrite
from .admin import BOTH, ORDERED, PACED, RATED, SHARED
from .world import World

pytestmark = pytest.mark.timeout(300)


async def let_all_through(world: World) -> None:
    """Too many ready runs do no harm, because the claim checks again. Here only the claim checks."""
    await rewrite(
        world, "release_parked", ("- (SELECT count(*) FROM slots s WHERE s.key = known.key AND s.run_id IS NOT NULL)", "")
    )


def many_under(world: World, *keys: str) -> None:
    """Many quick jobs with few keys, or a simulation would take too long."""
    world.client.keys, world.client.limited_rate, world.job_limit = list(keys), 0.9, 30
    world.fault_profile = replace(world.fault_profile, handler_s=(1.0, 8.0))


async def test_without_a_number_of_slots_too_many_run_at_once(fresh_databases: FreshDatabases) -> None:
    async def make_any_number(world: World) -> None:
        await let_all_through(world)
        await rewrite(world, "take_slots", ("e.last + cardinality(k.takers) <= h.highest THEN", "true THEN"))

    assert await found("no limit of runs at once is exceeded", fresh_databases, make_any_number, first_seed=1004)


async def test_without_counting_what_is_beyond_a_lowered_limit_does_not_hold(fresh_databases: FreshDatabases) -> None:
    async def forget(world: World) -> None:
        await let_all_through(world)
        beyond = "NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL OFFSET 0)"
        await rewrite(world, "take_slots", (beyond, "true"))
        many_under(world, SHARED)
        world.admin.keys, world.admin.is_hasty = [SHARED], True

    assert await found("no limit of runs at once is exceeded", fresh_databases, forget, first_seed=1018)


async def test_without_giving_slots_back_the_dead_hold_them(fresh_databases: FreshDatabases) -> None:
    async def keep(world: World) -> None:
        await rewrite(world, "finish_runs", ("WHERE t.slot IS NOT NULL AND h.key", "WHERE false AND h.key"))

    assert await found("a slot is held by a live run that knows of it", fresh_databases, keep)


async def test_without_slots_of_a_tenant_it_takes_more_than_it_may(fresh_databases: FreshDatabases) -> None:
    async def allow_any_number(world: World) -> None:
        await rewrite(world, "standing", ("o.running_max - (", "1000 - ("))
        await rewrite(world, "admit_runs", ("t.running_max AS max", "1000 AS max"))

    assert await found("no tenant has more runs at once than it may", fresh_databases, allow_any_number, first_seed=1001)


async def test_without_another_look_what_is_parked_stays_parked(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object, **__: object) -> parked_runs.Released:
        return parked_runs.Released([], 0, None)

    monkeypatch.setattr(parked_runs, "release", nothing)
    assert await found("every job ends", fresh_databases)


async def test_without_keeping_its_place_the_next_begins_between_two_tries(fresh_databases: FreshDatabases) -> None:
    async def let_go(world: World) -> None:
        kept = "r.slot IS NOT NULL AND EXISTS (SELECT FROM limits l WHERE l.key = r.limit_key AND l.ordered) AS keeps_slot"
        await rewrite(world, "finish_runs", (kept, "false AS keeps_slot"))
        many_under(world, ORDERED)

    assert await found("an ordered key has one at a time, retries included", fresh_databases, let_go)


async def test_without_waiting_for_what_is_due_before_the_later_one_starts_first(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that is due first waits for a leader that is paused, and no helper promotes."""

    async def look_only_at_the_parked(world: World) -> None:
        earlier = "r.state IN ('waiting', 'blocked') AND r.limit_key = known.key"
        await rewrite(world, "release_parked", (earlier, "false"))
        many_under(world, ORDERED)
        world.client.insisted = lambda: {"delay": world.rng.uniform(0, 20), "start_within": None}
        world.fault_profile = replace(
            world.fault_profile, fault_rate=0.0, process_fault_rate=0.1, process_fault_s=(4.0,), only="leader pause"
        )

    monkeypatch.setattr(OverdueCheck, "is_due", lambda _self: False)
    assert await found("an ordered key starts in order of due time", fresh_databases, look_only_at_the_parked)


async def test_without_stepping_out_of_line_a_paused_run_holds_up_the_others(fresh_databases: FreshDatabases) -> None:
    async def stay(world: World) -> None:
        await world.observer.execute("DROP TRIGGER step_out ON sexton.runs")
        many_under(world, ORDERED)
        world.client.is_hasty = True
        world.fault_profile = replace(
            world.fault_profile, process_fault_rate=0.1, only="pause"
        )  # so that promoted runs are not claimed at once

    assert await found("a slot is held by a live run that knows of it", fresh_databases, stay, first_seed=1005)


async def test_without_a_way_past_itself_a_retry_waits_for_its_own_slot(fresh_databases: FreshDatabases) -> None:
    async def stay(world: World) -> None:
        await rewrite(world, "release_parked", ("room <= 0 AND known.running = 1", "false"))
        many_under(world, PACED)

    assert await found("every job ends", fresh_databases, stay, first_seed=1027)


async def test_without_tokens_more_start_than_the_rate_allows(fresh_databases: FreshDatabases) -> None:
    async def grant_all(world: World) -> None:
        await rewrite(world, "release_parked", ("least(room, tokens)", "room"))
        await rewrite(world, "take_tokens", ("coalesce(w.nth <= b.tokens, false)", "true"))
        many_under(world, RATED, BOTH)

    assert await found("no rate is exceeded over any span", fresh_databases, grant_all)
