"""Which node leads which partitions: fair, complete, and with few moves when nodes come and go."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.partition import ALL, PARTITION_COUNT, assign, share_of

nodes = st.sets(st.uuids(), min_size=1, max_size=100)


@given(nodes)
def test_every_partition_has_exactly_one_leader(alive: set[UUID]) -> None:
    """B2."""
    led = [partition for share in assign(alive).values() for partition in share]
    assert sorted(led) == list(ALL)


@given(nodes)
def test_shares_differ_by_at_most_one(alive: set[UUID]) -> None:
    """B2: fair."""
    sizes = [len(share) for share in assign(alive).values()]
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == len(alive)


@given(nodes, st.randoms())
def test_all_nodes_agree_whatever_order_they_see(alive: set[UUID], rng: object) -> None:
    """B2: without communication."""
    order = sorted(alive, key=lambda node: node.int ^ 0x5555)
    assert assign(order) == assign(alive) == assign([*order, *order])
    for node in order[:3]:
        assert share_of(node, alive) == share_of(node, alive - {node}) == assign(alive)[node]


def test_without_nodes_no_partition_is_led() -> None:
    """B2."""
    assert assign([]) == {}


@given(st.sets(st.uuids(), min_size=2, max_size=12))
def test_few_partitions_move_when_a_node_leaves(alive: set[UUID]) -> None:
    """B2: those of the node that leaves must move; of the others fewer than by a plain modulo."""
    before = assign(alive)
    leaver = min(alive)
    left = assign(alive - {leaver})
    stayed = sum(len(share & left[node]) for node, share in before.items() if node != leaver)
    must_move = len(before[leaver])
    assert PARTITION_COUNT - stayed - must_move <= PARTITION_COUNT // 2


def test_on_average_few_partitions_move() -> None:
    """B2: over many fleets, less than a third of those that need not move."""
    moved = needless = 0
    for seed in range(200):
        alive = {UUID(int=(seed << 64) + n * 7919 + 1) for n in range(2 + seed % 8)}
        before, left = assign(alive), assign(alive - {min(alive)})
        kept = PARTITION_COUNT - len(before[min(alive)])
        stayed = sum(len(share & left[node]) for node, share in before.items() if node in left)
        moved += kept - stayed
        needless += kept
    assert moved / needless < 0.33
