"""Poison beside harmless runs, and what happens without the safeguards of rule "suspects apart":
- a run is charged only for a loss that it caused: `test_without_sparing_the_company_…`, a loss is charged only to a run that
  was alone
- the number of held runs is counted before the first batch ends: `test_without_counting_first_…`, the same
- a run that is lost again is quarantined: `test_without_quarantine_…`, no poison ends more than two ordinary workers
- the company of a suspect bounds the group: `test_without_a_bound_of_the_company_…`, suspects are executed in no larger company
"""

from __future__ import annotations

import msgspec
import pytest

from sexton.domain import retry
from sexton.domain.outcome import Lost
from sexton.scheduler import sweeper
from sexton.store.work import runs

from .ablation import FreshDatabases, found, rewrite
from .actors import POISON
from .test_ablations_of_endings import poisoned
from .world import World

pytestmark = pytest.mark.timeout(300)


async def test_no_innocent_is_buried_and_every_poison_is_named(fresh_databases: FreshDatabases) -> None:
    """C18: for losses that it did not cause; the invariants bound the deaths."""
    async with fresh_databases() as url, World(url, 1001) as world:
        await poisoned(world)
        await world.run()
        rows = await world.observer.fetch("SELECT task, reason FROM sexton.dead_letters WHERE status = 'lost'")
        assert world.client.poison_count == 0, "all were submitted"
        assert {row["task"] for row in rows} == {POISON}
        assert all(row["reason"].startswith("it took down") for row in rows)
        assert world.journal.seen["poisoned"] >= 3 * len(rows)


async def test_without_sparing_the_company_innocents_pay(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_loss = retry._after_loss

    def charge_all(lost: Lost, state: retry.RetryState) -> retry.Next:
        return after_loss(msgspec.structs.replace(lost, held=1), state)

    monkeypatch.setattr(retry, "_after_loss", charge_all)
    assert await found("a loss is charged only to a run that was alone", fresh_databases, poisoned)


@pytest.mark.nightly
async def test_without_counting_first_the_last_of_a_batch_pays(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, uncounted = "greatest(w.held_at_loss, t.held_count, 1)", "greatest(t.held_count, 1)"
    abandoned = runs._SQL["abandoned"]
    assert counted in abandoned, "the safeguard is not where this test takes it away"
    monkeypatch.setitem(runs._SQL, "abandoned", abandoned.replace(counted, uncounted))
    monkeypatch.setattr(sweeper, "BATCH", 1)
    assert await found("a loss is charged only to a run that was alone", fresh_databases, poisoned)


async def test_without_quarantine_it_takes_down_one_ordinary_worker_after_the_other(fresh_databases: FreshDatabases) -> None:
    async def confine_nobody(world: World) -> None:
        await poisoned(world)
        await rewrite(world, "finish_runs", ("greatest(1, least(nullif(r.company, 0), (x.held + 1) / 2))", "0"))

    assert await found("no poison takes down more than 2 ordinary workers", fresh_databases, confine_nobody)


@pytest.mark.nightly
async def test_without_a_bound_of_the_company_suspects_stay_together(fresh_databases: FreshDatabases) -> None:
    async def take_all(world: World) -> None:
        await poisoned(world)
        await rewrite(world, "claim_suspects", ("least(bound, g.smallest)", "held_count + wanted"))

    assert await found("suspects are executed in no larger company", fresh_databases, take_all)
