"""The runs of one job that could start at the same time, with a backfill among them: no fire is affected, and no run of the
backfill is lost."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.schedule.overlap import Overlap, overlap
from sexton.domain.schedule.overlap_decision import settle


class Crowd(NamedTuple):
    policy: Overlap
    live: list[UUID]
    queued: list[UUID]
    due: list[UUID]
    backfill: frozenset[UUID]
    alone: frozenset[UUID]

    def without_backfill(self) -> Crowd:
        def regular(ids: list[UUID]) -> list[UUID]:
            return [one for one in ids if one not in self.backfill]

        none: frozenset[UUID] = frozenset()
        return Crowd(self.policy, regular(self.live), regular(self.queued), regular(self.due), none, none)

    def capacity(self) -> int:
        return self.policy.max_parallel if self.policy.policy == "parallel" else 1


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """As they can occur: no more live runs than the policy allows, and at most one live run if it runs alone."""
    policy = overlap(
        draw(st.sampled_from(["skip", "queue", "parallel", "replace"])),
        max_queued=draw(st.integers(1, 3)),
        max_parallel=draw(st.integers(1, 3)),
    )
    ids = [UUID(int=n) for n in range(1, 9)]
    kinds = draw(st.lists(st.sampled_from(["fire", "backfill", "alone"]), min_size=8, max_size=8))
    backfill = frozenset(one for one, kind in zip(ids, kinds, strict=True) if kind != "fire")
    alone = frozenset(one for one, kind in zip(ids, kinds, strict=True) if kind == "alone")
    capacity = policy.max_parallel if policy.policy == "parallel" else 1
    live = ids[: draw(st.integers(0, capacity))]
    live = [one for n, one in enumerate(live) if one not in alone or not alone & set(live[:n])]
    rest = [one for one in ids if one not in live]
    queued_count = draw(st.integers(0, 3)) if live else 0
    return Crowd(policy, live, rest[:queued_count], rest[queued_count:], backfill, alone)


@given(crowds())
def test_no_run_of_a_backfill_is_dropped_and_no_more_are_live_than_allowed(crowd: Crowd) -> None:
    """B5."""
    policy, live, queued, due, backfill, alone = crowd
    settled = settle(policy, live=live, queued=queued, due=due, backfill=backfill, alone=alone)
    skipped = {run_id for run_id, _ in settled.skip}
    assert not backfill & (skipped | set(settled.cancel))
    alive = [*live, *settled.start]
    assert len(alive) <= crowd.capacity()
    assert sum(one in alone for one in alive) <= 1
    placed = [*settled.start, *settled.block, *skipped]
    assert len(set(placed)) == len(placed)
    assert set(due) <= set(placed), "each that is due starts, waits, or is told of"


@given(crowds())
def test_a_fire_is_skipped_only_if_it_would_be_without_the_backfill(crowd: Crowd) -> None:
    """B5: and for the same reason; it may have to wait."""
    policy, live, queued, due, backfill, alone = crowd
    beside = settle(policy, live=live, queued=queued, due=due, backfill=backfill, alone=alone)
    bare = crowd.without_backfill()
    undisturbed = settle(policy, live=bare.live, queued=bare.queued, due=bare.due)
    if policy.policy == "replace":
        assert {one for one, _ in beside.skip} <= {one for one, _ in undisturbed.skip} | set(undisturbed.cancel) | set(
            undisturbed.start
        )
        assert len(bare.due) == 0 or bare.due[-1] not in {one for one, _ in beside.skip}, "the newest is what it is for"
    else:
        assert beside.skip == undisturbed.skip


@given(crowds())
def test_a_run_of_a_backfill_starts_only_if_no_fire_waits(crowd: Crowd) -> None:
    """B5: a regular fire comes before the rest."""
    policy, live, queued, due, backfill, alone = crowd
    settled = settle(policy, live=live, queued=queued, due=due, backfill=backfill, alone=alone)
    waiting = ({*queued, *settled.block} - set(settled.start) - {one for one, _ in settled.skip}) - backfill
    assert not waiting or not backfill & set(settled.start)
