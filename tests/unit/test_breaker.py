"""A host that is down is not called; its runs wait without spending an attempt, and neither it nor a slow host uses more of a
worker than its share."""

from __future__ import annotations

import asyncio
from random import Random

from sexton.handlers.breaker import Breaker, Patience
from sexton.handlers.http.hosts import AWAY_RESTS, FIRST_PERMITS, HOST_LIMIT, ROW_S, SOONEST_S, TOGETHER_S, Host, Hosts, Parked

PATIENCE = Patience(failures=3, rest_s=5.0, rest_max_s=60.0)


def down(at: float = 0.0) -> Breaker:
    breaker = Breaker(PATIENCE, Random(1))
    for _ in range(PATIENCE.failures):
        breaker.begun()
        breaker.failed(at)
    return breaker


class TestTheBreaker:
    def test_only_consecutive_failures_count(self) -> None:
        breaker = Breaker(PATIENCE, Random(1))
        for _ in range(10):
            breaker.failed(0.0)
            breaker.failed(0.0)
            breaker.answered()
        assert not breaker.is_open
        assert breaker.rest_left_s(0.0) == 0

    def test_it_opens_for_a_limited_time(self) -> None:
        breaker = down()
        assert breaker.is_open
        assert 4.0 <= breaker.rest_left_s(0.0) <= 6.0
        assert breaker.rest_left_s(6.0) == 0

    def test_after_the_pause_one_call_tests_the_host_and_the_others_wait(self) -> None:
        breaker = down()
        breaker.begun()
        assert breaker.rest_left_s(10.0) >= PATIENCE.rest_s
        breaker.answered()
        assert breaker.rest_left_s(10.0) == 0
        assert not breaker.is_open

    def test_each_pause_is_longer_than_the_last_up_to_the_limit(self) -> None:
        breaker, rests, now = down(), [], 0.0
        for _ in range(8):
            rests.append(breaker.rest_left_s(now))
            now += rests[-1]
            breaker.begun()
            breaker.failed(now)
        assert rests[:4] == sorted(rests[:4])
        assert max(rests) <= PATIENCE.rest_max_s * 1.2
        assert min(rests[5:]) >= PATIENCE.rest_max_s * 0.8

    def test_calls_that_began_before_it_opened_do_not_extend_the_pause(self) -> None:
        breaker = down()
        left_s = breaker.rest_left_s(0.0)
        for _ in range(20):
            breaker.failed(0.0)
        assert breaker.rest_left_s(0.0) == left_s

    def test_a_call_without_a_verdict_leaves_it_half_open(self) -> None:
        breaker = down()
        breaker.begun()
        breaker.undecided()
        assert breaker.is_open
        assert breaker.rest_left_s(10.0) == 0

    def test_workers_do_not_all_test_at_the_same_time(self) -> None:
        rests = set()
        for seed in range(20):
            breaker = Breaker(Patience(failures=1), Random(seed))
            breaker.failed(0.0)
            rests.add(breaker.rest_left_s(0.0))
        assert len(rests) == 20


def host(permit_limit: int = 32) -> Host:
    return Host("https://a.example", permit_limit, PATIENCE, Random(1))


def dead_host() -> Host:
    """All its permits were taken at 0, and all of these calls have failed."""
    dead = host()
    for _ in range(FIRST_PERMITS):
        dead.admit(0.0)
    for _ in range(FIRST_PERMITS):
        dead.failed(0.0, 0.0)
    return dead


def fill(host: Host, now: float = 0.0) -> int:
    """Calls until a call has to wait or is postponed. Returns how many calls were made."""
    count = 0
    while host.admit(now) is None:
        count += 1
    return count


class TestAHost:
    async def test_an_unknown_host_gets_a_few_permits(self) -> None:
        assert fill(host()) == FIRST_PERMITS

    async def test_a_host_that_answers_gets_as_many_permits_as_allowed(self) -> None:
        answering = host(permit_limit=20)
        for _ in range(100):
            assert answering.admit(0.0) is None
            answering.answered(0.0, 0.01)
        assert fill(answering) == 20

    async def test_a_call_without_a_permit_is_postponed_until_one_is_expected(self) -> None:
        full = host()
        full.admit(0.0)
        full.answered(1.0, 0.1)
        fill(full, 1.0)
        while not isinstance(first := full.admit(1.0), Parked):
            pass
        second = [full.admit(1.0) for _ in range(10)][-1]
        assert isinstance(second, Parked)
        assert first.delay_s < second.delay_s < 1.0
        assert "calls of this worker in progress" in first.reason

    async def test_the_queue_is_as_long_as_is_served_in_a_moment(self) -> None:
        quick, slow = host(), host()
        for _ in range(100):
            for one, took_s in ((quick, 0.01), (slow, 2.0)):
                one.admit(0.0)
                one.answered(0.0, took_s)
        rows = []
        for one in (quick, slow):
            fill(one)
            rows.append(1)
            while not isinstance(one.admit(0.0), Parked):
                rows[-1] += 1
        assert rows[0] > 32 * ROW_S / 0.02
        assert rows[1] <= 32 * ROW_S / 2.0 + 1

    async def test_a_silent_host_has_no_queue(self) -> None:
        silent = host()
        for _ in range(100):
            silent.admit(0.0)
            silent.answered(0.0, 0.01)
        fill(silent)
        silent.admit(300.0)
        assert isinstance(silent.admit(300.0), Parked)

    async def test_after_a_short_stall_no_call_is_postponed_for_long(self) -> None:
        """One second without an answer: thirty calls that took that long say little about the next."""
        stalled = host()
        for _ in range(100):
            stalled.admit(0.0)
            stalled.answered(0.0, 0.01)
        fill(stalled)
        for _ in range(30):
            stalled.answered(1.0, 1.0)
        sent = [parked.delay_s for _ in range(1_000) if isinstance(parked := stalled.admit(1.0), Parked)]
        assert max(sent) < 2.0

    async def test_a_free_permit_goes_to_the_first_in_the_queue(self) -> None:
        full = host()
        for _ in range(FIRST_PERMITS):
            assert full.admit(0.0) is None
        first, second = full.admit(0.0), full.admit(0.0)
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        full.undecided(0.1, 0.1)
        assert first.result() is None
        assert not second.done()

    async def test_a_cancelled_call_in_the_queue_passes_its_permit_on(self) -> None:
        full = host()
        for _ in range(FIRST_PERMITS):
            full.admit(0.0)
        first, second = full.admit(0.0), full.admit(0.0)
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        full.undecided(0.1, 0.1)
        full.give_up(first, 0.1)
        assert second.result() is None

    async def test_a_call_that_waited_long_enough_is_postponed(self) -> None:
        full = host()
        for _ in range(FIRST_PERMITS):
            full.admit(0.0)
        waiting = full.admit(0.0)
        assert isinstance(waiting, asyncio.Future)
        full.stop_waiting(waiting, ROW_S)
        assert isinstance(waiting.result(), Parked)

    async def test_when_it_goes_down_the_queue_is_postponed(self) -> None:
        failing = host()
        for _ in range(FIRST_PERMITS):
            failing.admit(0.0)
        waiting = failing.admit(0.0)
        assert isinstance(waiting, asyncio.Future)
        for _ in range(FIRST_PERMITS):
            failing.failed(0.1, 0.1)
        assert isinstance(parked := waiting.result(), Parked)
        assert "is down" in parked.reason

    async def test_while_it_is_down_calls_are_postponed_in_groups(self) -> None:
        dead = dead_host()
        sent = [dead.admit(1.0) for _ in range(10_000)]
        delays = [parked.delay_s for parked in sent if isinstance(parked, Parked)]
        assert len(delays) == 10_000
        assert max(delays) <= PATIENCE.rest_max_s * AWAY_RESTS
        busiest = max(sum(second <= delay < second + 1 for delay in delays) for second in range(301))
        assert busiest <= 400, "they would all come back at once"
        assert len(set(delays)) <= 70, "to claim them one by one costs more than to claim them in groups"

    async def test_an_unknown_host_postpones_in_groups_and_one_that_answers_evenly(self) -> None:
        """A host that stalled for a moment is not down."""
        strange, busy = host(), host()
        busy.admit(0.0)
        busy.answered(0.1, 0.1)
        for one in (strange, busy):
            one.admit(0.2)
            sent = [parked for parked in (one.admit(1.0) for _ in range(400)) if isinstance(parked, Parked)]
            assert len(sent) > 300
            first_s = min(parked.delay_s for parked in sent)
            assert first_s == (TOGETHER_S if one is strange else SOONEST_S)

    async def test_when_it_is_up_again_new_calls_do_not_wait_for_postponed_ones(self) -> None:
        dead = dead_host()
        sent = [dead.admit(1.0) for _ in range(5_000)]
        assert max(parked.delay_s for parked in sent if isinstance(parked, Parked)) > 200
        assert dead.admit(20.0) is None
        dead.answered(20.0, 0.1)
        late = [parked for parked in (dead.admit(20.1) for _ in range(2_000)) if isinstance(parked, Parked)]
        assert late
        assert max(parked.delay_s for parked in late) < 20

    async def test_when_it_is_up_again_one_call_tests_it_and_then_all_may_go(self) -> None:
        dead = dead_host()
        assert dead.admit(20.0) is None
        assert isinstance(dead.admit(20.0), Parked)
        dead.answered(20.1, 0.1)
        assert dead.admit(20.1) is None
        assert dead.admit(20.1) is None


async def test_the_number_of_known_hosts_is_bounded() -> None:
    hosts = Hosts(lambda name: Host(name, 4, PATIENCE, Random(1)))
    busy = hosts.get("busy")
    assert busy.admit(0.0) is None
    for number in range(2 * HOST_LIMIT):
        hosts.get(str(number))
    assert len(hosts) <= HOST_LIMIT
    assert hosts.get("busy") is busy


async def test_with_a_single_permit_it_still_works() -> None:
    small = host(permit_limit=1)
    assert fill(small) == 1
    small.failed(0.0, 0.0)
    assert small.is_idle or fill(small) == 0
