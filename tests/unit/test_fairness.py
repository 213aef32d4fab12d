"""Shares compared with an ideal fluid model, in which every tenant with jobs is served all the time, in proportion to its
weight."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.fairness import NOWHERE, QueueTurns, Turns, share_out

PLENTY = 10_000

names = st.text("abcde", min_size=1, max_size=3)
weighted = st.dictionaries(names, st.integers(1, 9), min_size=1, max_size=8)
claim_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=30)


class Start(NamedTuple):
    queue: str
    lane: int
    tenant: str
    turn: int


class Worker:
    """Claims one after the other, each begun where the last one stopped."""

    def __init__(self) -> None:
        self.last = NOWHERE

    def claim(self, waiting: dict[str, int], weights: Mapping[str, int], wanted: int) -> list[str]:
        """Claimed runs are removed, and so are tenants without runs."""
        starts = share_out(waiting, weights, wanted, self.last)
        self.last = starts[-1] if starts else self.last
        served = [tenant for tenant, _ in starts]
        for tenant in served:
            waiting[tenant] -= 1
            if not waiting[tenant]:
                del waiting[tenant]
        return served


def _windows(starts: Sequence[str]) -> list[Counter[str]]:
    """The counts of every prefix: any stretch is the difference of two."""
    prefixes = [Counter[str]()]
    for tenant in starts:
        prefixes.append(prefixes[-1] + Counter([tenant]))
    return prefixes


def _worst_lag(starts: Sequence[str], weights: Mapping[str, int], tenant: str) -> Fraction:
    """The largest difference from the fluid model over all stretches: the largest difference between two prefixes' lags."""
    ideal = Fraction(weights[tenant], sum(weights.values()))
    lags = [prefix[tenant] - count * ideal for count, prefix in enumerate(_windows(starts))]
    return max(lags) - min(lags)


@given(weighted, claim_sizes)
def test_over_any_stretch_a_share_differs_from_the_fluid_model_by_less_than_one_turn_of_its_weight(
    weights: dict[str, int], sizes: list[int]
) -> None:
    """C9: weight x (1 - weight / W), whatever the sizes of the claims and wherever the stretch begins and ends."""
    worker, waiting = Worker(), dict.fromkeys(weights, PLENTY)
    starts = [tenant for wanted in sizes for tenant in worker.claim(waiting, weights, wanted)]
    assert len(starts) == sum(sizes)
    for tenant, weight in weights.items():
        assert _worst_lag(starts, weights, tenant) <= weight * (1 - Fraction(weight, sum(weights.values())))


@given(weighted)
def test_the_bound_is_reached(weights: dict[str, int]) -> None:
    """C9: so no smaller bound holds."""
    total = sum(weights.values())
    starts = Worker().claim(dict.fromkeys(weights, PLENTY), weights, 2 * total)
    for tenant, weight in weights.items():
        assert _worst_lag(starts, weights, tenant) == weight * (1 - Fraction(weight, total))


@given(weighted, st.lists(st.tuples(st.integers(0, 3), st.integers(1, 25)), min_size=1, max_size=40))
def test_workers_without_communication_are_fair_together(weights: dict[str, int], claims: list[tuple[int, int]]) -> None:
    """C9, over the cluster: with k workers the bound is k times that of one, in whatever order they come."""
    workers, waiting = [Worker() for _ in range(4)], dict.fromkeys(weights, PLENTY)
    starts = [tenant for who, wanted in claims for tenant in workers[who].claim(waiting, weights, wanted)]
    k = len({who for who, _ in claims})
    for tenant, weight in weights.items():
        assert _worst_lag(starts, weights, tenant) <= k * weight * (1 - Fraction(weight, sum(weights.values())))


@given(
    weighted,
    st.lists(st.tuples(st.integers(1, 12), st.dictionaries(names, st.integers(1, 5), max_size=4)), min_size=1, max_size=25),
    st.data(),
)
def test_two_tenants_that_always_have_jobs_stay_within_one_turn(
    weights: dict[str, int], claims: list[tuple[int, dict[str, int]]], data: st.DataObject
) -> None:
    """C9: starts per weight differ by at most 1 over any stretch, while others come with a few jobs and leave."""
    rich = data.draw(st.sets(st.sampled_from(sorted(weights)), min_size=1), label="rich")
    worker, waiting = Worker(), dict.fromkeys(rich, PLENTY)
    starts: list[str] = []
    for wanted, arrivals in claims:
        for tenant, count in arrivals.items():
            waiting[tenant] = waiting.get(tenant, 0) + count
        starts += worker.claim(waiting, weights, wanted)
    for one, other in combinations(sorted(rich), 2):
        lead = [Fraction(seen[one], weights[one]) - Fraction(seen[other], weights[other]) for seen in _windows(starts)]
        assert max(lead) - min(lead) <= 1


@given(
    weighted, st.dictionaries(names, st.integers(0, 50), max_size=10), st.integers(0, 120), st.tuples(names, st.integers(0, 9))
)
def test_no_share_is_unused_while_any_tenant_has_jobs(
    weights: dict[str, int], waiting: dict[str, int], wanted: int, last: tuple[str, int]
) -> None:
    """C9, work-conserving: a claim is full or no run is left; no tenant gets more than it has."""
    served = Counter(tenant for tenant, _ in share_out(waiting, weights, wanted, last))
    assert served.total() == min(wanted, sum(waiting.values()))
    assert served <= Counter(waiting)


@given(
    weighted,
    st.dictionaries(names, st.integers(0, 9), max_size=8),
    st.integers(1, 60),
    st.dictionaries(names, st.integers(0, 5)),
)
def test_a_tenant_with_a_limit_gets_no_more_than_its_capacity_and_others_get_the_rest(
    weights: dict[str, int], waiting: dict[str, int], wanted: int, rooms: dict[str, int]
) -> None:
    """C9: runs that the limit holds back cost the worker nothing."""
    served = Counter(tenant for tenant, _ in share_out(waiting, weights, wanted, rooms=rooms))
    may_have = {tenant: min(count, rooms.get(tenant, count)) for tenant, count in waiting.items()}
    assert served <= Counter(may_have)
    assert served.total() == min(wanted, sum(may_have.values()))


@given(weighted, claim_sizes, st.integers(1, 9), st.data())
def test_a_tenant_that_comes_late_is_served_within_one_round(
    weights: dict[str, int], sizes: list[int], weight: int, data: st.DataObject
) -> None:
    """C9: however long the others have waited, at most one turn of each of them comes before it."""
    newcomer = data.draw(names.filter(lambda name: name not in weights), label="newcomer")
    worker, waiting = Worker(), dict.fromkeys(weights, PLENTY)
    for wanted in sizes:
        worker.claim(waiting, weights, wanted)
    everyone = {**weights, newcomer: weight}
    waiting[newcomer] = PLENTY
    starts = worker.claim(waiting, everyone, sum(everyone.values()))
    assert starts.index(newcomer) <= sum(weights.values())
    assert starts.count(newcomer) == weight, "a whole round holds its whole share"


@given(weighted, st.integers(1, 200), st.data())
def test_absence_gives_no_credit(weights: dict[str, int], rounds: int, data: st.DataObject) -> None:
    """C9: a tenant that was away gets its share from now on and no more, as if the others had just begun too."""
    absent = data.draw(st.sampled_from(sorted(weights)), label="absent")
    others = {tenant: weight for tenant, weight in weights.items() if tenant != absent}
    worker, waiting = Worker(), dict.fromkeys(others, PLENTY * 100)
    worker.claim(waiting, weights, rounds * sum(others.values()))
    waiting[absent] = PLENTY
    starts = worker.claim(waiting, weights, 3 * sum(weights.values()))
    assert Counter(starts) == Counter({tenant: 3 * weight for tenant, weight in weights.items()})


@given(st.integers(1, 50), st.lists(st.integers(1, 20), min_size=1, max_size=20))
def test_weights_1_2_5_are_exact_over_whole_rounds(rounds: int, sizes: list[int]) -> None:
    """C9: the requested shares, wherever the claims were cut."""
    weights = {"one": 1, "two": 2, "five": 5}
    worker, waiting = Worker(), dict.fromkeys(weights, PLENTY)
    starts: list[str] = []
    while len(starts) < 8 * rounds:
        starts += worker.claim(waiting, weights, sizes[len(starts) % len(sizes)])
    assert Counter(starts[: 8 * rounds]) == Counter(one=rounds, two=2 * rounds, five=5 * rounds)


@given(weighted, st.sets(names, max_size=8), st.integers(1, 5))
def test_no_tenant_starves_behind_tenants_whose_jobs_this_worker_may_not_take(
    weights: dict[str, int], deaf: set[str], wanted: int
) -> None:
    """C9, rule "claim only known tasks": they are skipped within the claim, however many they are and however small the claim
    is."""
    worker = Worker()
    waiting = {**dict.fromkeys(weights, PLENTY), **dict.fromkeys(deaf, 0)}
    able = [tenant for tenant in weights if tenant not in deaf]
    served: Counter[str] = Counter()
    for _ in range(sum(weights.values())):
        starts = share_out(waiting, weights, wanted, worker.last)
        worker.last = starts[-1] if starts else worker.last
        served.update(tenant for tenant, _ in starts)
        assert len(starts) == (wanted if able else 0)
    assert set(served) == set(able)


@given(st.dictionaries(names, st.integers(1, 30), min_size=1, max_size=10), weighted, st.integers(1, 10))
def test_every_job_is_served_exactly_once(waiting: dict[str, int], weights: dict[str, int], wanted: int) -> None:
    """C9: no tenant is forgotten when claims are small."""
    worker, left, starts = Worker(), dict(waiting), list[str]()
    while left:
        starts += worker.claim(left, weights, wanted)
    assert Counter(starts) == Counter(waiting)


def test_a_hundred_thousand_of_one_do_not_delay_ten_of_another() -> None:
    """C9: the ten take every second turn."""
    worker, waiting = Worker(), {"noisy": 100_000}
    worker.claim(waiting, {}, 500)
    waiting["quiet"] = 10
    assert [n for n, tenant in enumerate(worker.claim(waiting, {}, 100)) if tenant == "quiet"] == list(range(0, 20, 2))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (("", 0), "a b c"),
        (("a", 0), "b c a"),
        (("c", 0), "a b c"),  # wraps around
        (("b", 1), "b c a"),  # in the middle of its turn
        (("bb", 0), "c a b"),  # removed since
        (("bb", 1), "c a b"),
        (("a", 1), "b c a"),  # its weight was lowered since
        (("z", 3), "a b c"),
    ],
)
def test_a_claim_continues_where_the_last_one_stopped(last: tuple[str, int], expected: str) -> None:
    """C9."""
    waiting = dict.fromkeys("abc", 100)
    weights = {"b": 2}
    order: list[str] = []
    for tenant, _ in share_out(waiting, weights, 8, last):
        if tenant not in order:
            order.append(tenant)
    assert order == expected.split()


def test_a_turn_that_was_cut_by_the_end_of_a_claim_is_finished_by_the_next() -> None:
    """C9."""
    waiting, weights = dict.fromkeys("ab", 100), {"a": 3, "b": 2}
    assert share_out(waiting, weights, 2) == [("a", 1), ("a", 2)]
    assert share_out(waiting, weights, 4, ("a", 2)) == [("a", 0), ("b", 1), ("b", 0), ("a", 1)]


def test_a_worker_remembers_the_last_start_of_each_queue_and_lane() -> None:
    """C9: in the form that `sexton.claim_runs` takes, without tenants that were never served."""
    turns = Turns()
    assert turns.as_json() == "{}"
    turns.note([])
    turns.note([Start("mail", 2, "a", 0), Start("mail", 2, 'b"', 1), Start("mail", 0, "c", 0), Start("x", 2, "d", 4)])
    turns.note([Start("x", 2, "e", 0)])
    assert json.loads(turns.as_json()) == {"mail": {"2": ['b"', 1], "0": ["c", 0]}, "x": {"2": ["e", 0]}}
    assert json.loads(turns.as_json(["x", "y"])) == {"x": {"2": ["e", 0]}}
    assert turns.last("mail", 2) == ('b"', 1)
    assert turns.last("mail", 3) == NOWHERE


def test_the_memory_of_a_worker_is_bounded() -> None:
    """F4: of more queues than the limit the longest unserved are forgotten first."""
    turns = Turns(limit=3)
    for queue in "abc":
        turns.note([Start(queue, 2, "t", 0)])
    turns.note([Start("a", 2, "u", 0)])
    turns.note([Start("d", 2, "t", 0), Start("e", 2, "t", 0)])
    assert sorted(json.loads(turns.as_json())) == ["a", "d", "e"]


@given(st.dictionaries(names, st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 40))
def test_queues_come_first_in_proportion_to_their_weights(weights: dict[str, int], begun: int) -> None:
    """C11: exact over every stretch of as many claims as the weights add up to."""
    order = QueueTurns(list(weights), list(weights.values()))
    for _ in range(begun):
        order.following()
    claims = [order.following() for _ in range(sum(weights.values()))]
    assert Counter(claim[0] for claim in claims) == Counter(weights)
    assert all(sorted(claim) == sorted(weights) for claim in claims), "all are looked into, every time"


def test_a_heavy_queue_does_not_come_in_bursts() -> None:
    """C11: 5:1:1 is spread as nginx spreads it."""
    order = QueueTurns("abc", [5, 1, 1])
    assert "".join(order.following()[0] for _ in range(7)) == "aabacaa"


def test_queues_without_weights_take_turns() -> None:
    """C11."""
    order = QueueTurns(["x", "y", "z"])
    firsts = [order.following()[0] for _ in range(9)]
    assert firsts == ["x", "y", "z"] * 3
    assert all(one != other for one, other in pairwise(firsts))


def test_strict_queues_keep_their_order() -> None:
    """C11: the second gets what the first leaves, and never comes before it."""
    order = QueueTurns(["x", "y"], [1, 9], strict=True)
    assert [order.following() for _ in range(3)] == [["x", "y"]] * 3
    assert QueueTurns(["only"]).following() == ["only"]
