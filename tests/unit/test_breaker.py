"""Issue 8: a host that is plainly down is left alone; its runs wait, spending nothing, and neither it nor a slow host takes
more of a worker than its share."""

from __future__ import annotations

import asyncio
from random import Random

from sexton.handlers.breaker import Breaker, Patience
from sexton.handlers.http.hosts import AWAY_RESTS, FIRST_SEATS, HOST_LIMIT, ROW_S, SOONEST_S, TOGETHER_S, Host, Hosts, Parked

PATIENCE = Patience(failures=3, rest_s=5.0, rest_max_s=60.0)


def down(at: float = 0.0) -> Breaker:
    breaker = Breaker(PATIENCE, Random(1))
    for _ in range(PATIENCE.failures):
        breaker.begun()
        breaker.failed(at)
    return breaker


class TestTheBreaker:
    def test_only_failures_in_a_row_count(self) -> None:
        breaker = Breaker(PATIENCE, Random(1))
        for _ in range(10):
            breaker.failed(0.0)
            breaker.failed(0.0)
            breaker.answered()
        assert not breaker.is_open
        assert breaker.rest_left_s(0.0) == 0

    def test_it_opens_for_a_while(self) -> None:
        breaker = down()
        assert breaker.is_open
        assert 4.0 <= breaker.rest_left_s(0.0) <= 6.0
        assert breaker.rest_left_s(6.0) == 0

    def test_after_the_rest_one_call_asks_and_the_others_wait(self) -> None:
        breaker = down()
        breaker.begun()
        assert breaker.rest_left_s(10.0) >= PATIENCE.rest_s
        breaker.answered()
        assert breaker.rest_left_s(10.0) == 0
        assert not breaker.is_open

    def test_each_rest_is_longer_than_the_last_up_to_the_limit(self) -> None:
        breaker, rests, now = down(), [], 0.0
        for _ in range(8):
            rests.append(breaker.rest_left_s(now))
            now += rests[-1]
            breaker.begun()
            breaker.failed(now)
        assert rests[:4] == sorted(rests[:4])
        assert max(rests) <= PATIENCE.rest_max_s * 1.2
        assert min(rests[5:]) >= PATIENCE.rest_max_s * 0.8

    def test_calls_that_began_before_it_opened_do_not_lengthen_the_rest(self) -> None:
        breaker = down()
        left_s = breaker.rest_left_s(0.0)
        for _ in range(20):
            breaker.failed(0.0)
        assert breaker.rest_left_s(0.0) == left_s

    def test_a_call_that_says_nothing_leaves_the_question_open(self) -> None:
        breaker = down()
        breaker.begun()
        breaker.undecided()
        assert breaker.is_open
        assert breaker.rest_left_s(10.0) == 0

    def test_workers_do_not_all_ask_at_the_same_time(self) -> None:
        rests = set()
        for seed in range(20):
            breaker = Breaker(Patience(failures=1), Random(seed))
            breaker.failed(0.0)
            rests.add(breaker.rest_left_s(0.0))
        assert len(rests) == 20


def host(seat_limit: int = 32) -> Host:
    return Host("https://a.example", seat_limit, PATIENCE, Random(1))


def dead_host() -> Host:
    """All its seats were taken at 0, and all of these calls have failed."""
    dead = host()
    for _ in range(FIRST_SEATS):
        dead.admit(0.0)
    for _ in range(FIRST_SEATS):
        dead.failed(0.0, 0.0)
    return dead


def fill(host: Host, now: float = 0.0) -> int:
    """Calls until somebody has to wait or is sent away; answers with how many went."""
    count = 0
    while host.admit(now) is None:
        count += 1
    return count


class TestAHost:
    async def test_that_nobody_knows_gets_a_few_seats(self) -> None:
        assert fill(host()) == FIRST_SEATS

    async def test_that_answers_gets_as_many_as_one_may_have(self) -> None:
        answering = host(seat_limit=20)
        for _ in range(100):
            assert answering.admit(0.0) is None
            answering.answered(0.0, 0.01)
        assert fill(answering) == 20

    async def test_whoever_finds_no_place_comes_back_when_there_will_be_one(self) -> None:
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

    async def test_the_row_is_as_long_as_is_served_in_a_moment(self) -> None:
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

    async def test_one_that_fell_silent_has_no_row(self) -> None:
        silent = host()
        for _ in range(100):
            silent.admit(0.0)
            silent.answered(0.0, 0.01)
        fill(silent)
        silent.admit(300.0)
        assert isinstance(silent.admit(300.0), Parked)

    async def test_after_a_hiccup_nobody_is_sent_far_away(self) -> None:
        """One second in which nothing moved: thirty calls that took that long say little of the next."""
        stalled = host()
        for _ in range(100):
            stalled.admit(0.0)
            stalled.answered(0.0, 0.01)
        fill(stalled)
        for _ in range(30):
            stalled.answered(1.0, 1.0)
        sent = [parked.delay_s for _ in range(1_000) if isinstance(parked := stalled.admit(1.0), Parked)]
        assert max(sent) < 2.0

    async def test_a_seat_that_comes_free_goes_to_the_first_in_the_row(self) -> None:
        full = host()
        for _ in range(FIRST_SEATS):
            assert full.admit(0.0) is None
        first, second = full.admit(0.0), full.admit(0.0)
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        full.undecided(0.1, 0.1)
        assert first.result() is None
        assert not second.done()

    async def test_whoever_gives_up_in_the_row_passes_the_seat_on(self) -> None:
        full = host()
        for _ in range(FIRST_SEATS):
            full.admit(0.0)
        first, second = full.admit(0.0), full.admit(0.0)
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        full.undecided(0.1, 0.1)
        full.give_up(first, 0.1)
        assert second.result() is None

    async def test_whoever_waited_long_enough_is_sent_away(self) -> None:
        full = host()
        for _ in range(FIRST_SEATS):
            full.admit(0.0)
        waiting = full.admit(0.0)
        assert isinstance(waiting, asyncio.Future)
        full.stop_waiting(waiting, ROW_S)
        assert isinstance(waiting.result(), Parked)

    async def test_when_it_goes_down_the_row_is_sent_away(self) -> None:
        failing = host()
        for _ in range(FIRST_SEATS):
            failing.admit(0.0)
        waiting = failing.admit(0.0)
        assert isinstance(waiting, asyncio.Future)
        for _ in range(FIRST_SEATS):
            failing.failed(0.1, 0.1)
        assert isinstance(parked := waiting.result(), Parked)
        assert "is down" in parked.reason

    async def test_while_it_is_down_everybody_is_sent_away_and_they_come_back_in_groups(self) -> None:
        dead = dead_host()
        sent = [dead.admit(1.0) for _ in range(10_000)]
        delays = [parked.delay_s for parked in sent if isinstance(parked, Parked)]
        assert len(delays) == 10_000
        assert max(delays) <= PATIENCE.rest_max_s * AWAY_RESTS
        busiest = max(sum(second <= delay < second + 1 for delay in delays) for second in range(301))
        assert busiest <= 400, "they would all come back at once"
        assert len(set(delays)) <= 70, "to claim them one by one costs more than to claim them in groups"

    async def test_a_host_that_was_never_heard_of_puts_off_in_groups_and_one_that_answers_finely(self) -> None:
        """One that was held up for a moment is not gone."""
        strange, busy = host(), host()
        busy.admit(0.0)
        busy.answered(0.1, 0.1)
        for one in (strange, busy):
            one.admit(0.2)
            sent = [parked for parked in (one.admit(1.0) for _ in range(400)) if isinstance(parked, Parked)]
            assert len(sent) > 300
            first_s = min(parked.delay_s for parked in sent)
            assert first_s == (TOGETHER_S if one is strange else SOONEST_S)

    async def test_when_it_is_back_nobody_new_waits_for_the_appointments_of_the_others(self) -> None:
        dead = dead_host()
        sent = [dead.admit(1.0) for _ in range(5_000)]
        assert max(parked.delay_s for parked in sent if isinstance(parked, Parked)) > 200
        assert dead.admit(20.0) is None
        dead.answered(20.0, 0.1)
        late = [parked for parked in (dead.admit(20.1) for _ in range(2_000)) if isinstance(parked, Parked)]
        assert late
        assert max(parked.delay_s for parked in late) < 20

    async def test_when_it_is_back_one_asks_and_then_all_may_go(self) -> None:
        dead = dead_host()
        assert dead.admit(20.0) is None
        assert isinstance(dead.admit(20.0), Parked)
        dead.answered(20.1, 0.1)
        assert dead.admit(20.1) is None
        assert dead.admit(20.1) is None


async def test_hosts_are_remembered_within_bounds() -> None:
    hosts = Hosts(lambda name: Host(name, 4, PATIENCE, Random(1)))
    busy = hosts.get("busy")
    assert busy.admit(0.0) is None
    for number in range(2 * HOST_LIMIT):
        hosts.get(str(number))
    assert len(hosts) <= HOST_LIMIT
    assert hosts.get("busy") is busy


async def test_with_a_single_seat_it_still_works() -> None:
    small = host(seat_limit=1)
    assert fill(small) == 1
    small.failed(0.0, 0.0)
    assert small.is_idle or fill(small) == 0
