"""The promoter: due runs become ready, earliest first, once, and their queues are notified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain import partition
from sexton.domain.claim_cursors import LOOK_AGAIN_S
from sexton.domain.job import submission
from sexton.scheduler.overdue_check import OVERDUE_S
from sexton.scheduler.promoter import REST_S_MAX, Promoter
from sexton.store.database import Database
from sexton.store.postgres.wakeups import READY
from sexton.store.work import jobs
from sexton.telemetry.events import Promoted
from tests.rig import LONG_S, NOW, Between, Rig

if TYPE_CHECKING:
    Conn = asyncpg.Connection[Any]


def promoter(rig: Rig, led: Collection[int] = partition.ALL, *, limit: int = 100, database: Database | None = None) -> Promoter:
    return Promoter(database or rig.database, lambda: led, limit=limit, clock=rig.clock, emit=rig.heard)


async def ready(rig: Rig) -> list[Any]:
    return [row["job_id"] for row in await rig.execute("SELECT job_id FROM sexton.runs WHERE state = 'ready' ORDER BY due_at")]


async def partition_of(rig: Rig, job_id: object) -> int:
    (row,) = await rig.execute("SELECT partition FROM sexton.runs WHERE job_id = $1", job_id)
    number: int = row["partition"]
    return number


async def test_the_earliest_come_first_and_a_full_batch_means_no_rest(rig: Rig) -> None:
    """B8: many due runs are promoted in batches, without a pause, in the order of their due times."""
    late, early, middle = [await rig.submit(delay=delay_s) for delay_s in (3, 1, 2)]
    rig.move(10)
    one_by_one = promoter(rig, limit=1)
    for expected in ([early], [early, middle], [early, middle, late]):
        assert await one_by_one.run_once() == 0.0
        assert await ready(rig) == expected
    assert await one_by_one.run_once() == REST_S_MAX


async def test_nothing_is_promoted_before_its_time(rig: Rig) -> None:
    """B8, B9: not a millisecond early by the database's clock, and exactly when it is due."""
    job_id = await rig.submit(delay=1.0)
    rig.move(0.999)
    rest_s = await promoter(rig).run_once()
    assert await rig.state(job_id) == "waiting"
    assert rest_s == pytest.approx(0.001)
    rig.move(rest_s)
    await promoter(rig).run_once()
    assert await rig.state(job_id) == "ready"


async def test_it_rests_until_the_next_is_due_but_never_longer_than_two_seconds(rig: Rig) -> None:
    """B10, rule "any node does overdue work": a run could become due without a notification."""
    await rig.submit(delay="1h")
    assert await promoter(rig).run_once() == REST_S_MAX == 2.0
    await rig.submit(delay=1.25)
    assert await promoter(rig).run_once() == pytest.approx(1.25)


async def test_it_rests_no_longer_than_a_paced_queue_takes_to_fill_its_bucket(rig: Rig) -> None:
    """C10: a run that the rate of its queue holds back is announced when the rate allows it."""
    await rig.execute(
        "INSERT INTO sexton.queues (name, updated_at, release_rate, release_burst) VALUES ('default', now(), 10, 2)"
    )
    await rig.submit()
    assert await promoter(rig).run_once() == pytest.approx(0.1)


async def test_no_setting_makes_it_rest_longer(rig: Rig) -> None:
    """Rule "any node does overdue work"."""
    sleepy = Promoter(rig.database, lambda: partition.ALL, limit=10, clock=rig.clock, emit=rig.heard, rest_s_max=3600)
    assert await sleepy.run_once() == REST_S_MAX


async def test_the_rest_depends_on_its_own_partitions_and_not_on_those_of_others(rig: Rig) -> None:
    job_id = await rig.submit(delay=0.5)
    theirs = await partition_of(rig, job_id)
    mine = [number for number in partition.ALL if number != theirs]
    assert await promoter(rig, mine).run_once() == REST_S_MAX
    assert await promoter(rig, [theirs]).run_once() == pytest.approx(0.5)


async def test_it_keeps_to_its_own_partitions_until_the_others_are_overdue(rig: Rig) -> None:
    """B2, rule "any node does overdue work": leadership saves work; without a leader, any promoter promotes runs that are two
    seconds late."""
    job_id = await rig.submit(delay=1)
    mine = [number for number in partition.ALL if number != await partition_of(rig, job_id)]
    other = promoter(rig, mine)
    rig.move(1 + OVERDUE_S - 0.01)
    await other.run_once()
    assert await rig.state(job_id) == "waiting"
    rig.move(OVERDUE_S)
    await other.run_once()
    assert await rig.state(job_id) == "ready"
    assert rig.of(Promoted) == [Promoted(1, ("default",), overdue=True)]


async def test_a_node_that_leads_nothing_still_helps_out(rig: Rig) -> None:
    """B2, rule "any node does overdue work": before its first look at the nodes, or if it holds no lock."""
    job_id = await rig.submit(delay=1)
    rig.move(1 + OVERDUE_S)
    await promoter(rig, []).run_once()
    assert await rig.state(job_id) == "ready"


async def test_looking_around_costs_one_statement_in_two_seconds_however_often_it_is_woken(rig: Rig) -> None:
    """B10."""
    between = Between(rig.database)
    mine = promoter(rig, [1, 2], database=between)
    for _ in range(20):
        await mine.run_once()
        rig.move(0.1)
    assert between.statements.count("promote") == 20 + 1
    await mine.run_once()
    assert between.statements.count("promote") == 20 + 1 + 2


async def test_an_idle_pass_is_one_statement(rig: Rig) -> None:
    """B10: idle is cheap."""
    await rig.submit(delay="1h")
    between = Between(rig.database)
    leader = promoter(rig, database=between)
    for passes in (1, 2, 3):
        await leader.run_once()
        assert between.statements == ["promote"] * passes
        rig.move(2)


@pytest.fixture
async def heard(connection: Conn) -> AsyncIterator[asyncio.Queue[str]]:
    queue: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener(READY, lambda _c, _pid, _channel, payload: queue.put_nowait(str(payload)))
    yield queue
    await connection.reset()


async def test_each_queue_is_notified_once_per_batch(rig: Rig, connection: Conn, heard: asyncio.Queue[str]) -> None:
    """B10: one notification for a thousand runs."""
    await rig.submit_many(50, delay=1, queue="mail")
    await rig.submit_many(50, delay=1, queue="default")
    rig.move(1)
    await promoter(rig).run_once()
    async with asyncio.timeout(LONG_S):
        assert {await heard.get(), await heard.get()} == {"mail", "default"}
    await connection.fetch("SELECT 1")
    assert heard.empty()
    (event,) = rig.of(Promoted)
    assert (event.count, sorted(event.queues), event.overdue) == (100, ["default", "mail"], False)


async def test_nothing_is_notified_when_no_run_is_due(rig: Rig, connection: Conn, heard: asyncio.Queue[str]) -> None:
    await promoter(rig).run_once()
    await connection.fetch("SELECT 1")
    assert heard.empty()
    assert rig.events == []


async def test_two_at_once_promote_each_run_once(rig: Rig) -> None:
    """B1, B2: two leaders by accident; no fire starts twice, and no run is left."""
    await rig.submit_many(300, delay=1)
    rig.move(1)
    both = [promoter(rig, limit=20), promoter(rig, limit=20)]

    async def drain(one: Promoter) -> None:
        while await one.run_once() == 0.0:
            pass

    await asyncio.gather(*(drain(one) for one in both))
    await promoter(rig, limit=1000).run_once()  # runs that each left to the other at the end
    assert await rig.states() == ["ready"] * 300
    assert sum(event.count for event in rig.of(Promoted)) == 300


async def test_a_locked_run_is_skipped_and_not_waited_for(rig: Rig, connection: Conn) -> None:
    """B8: one slow transaction does not delay the other due runs."""
    first, second = await rig.submit(delay=1), await rig.submit(delay=2)
    rig.move(3)
    async with connection.transaction():
        await connection.fetch("SELECT FROM sexton.runs WHERE job_id = $1 FOR UPDATE", first)
        async with asyncio.timeout(LONG_S):
            await promoter(rig).run_once()
        assert (await rig.state(first), await rig.state(second)) == ("waiting", "ready")
    await promoter(rig).run_once()
    assert await rig.state(first) == "ready"


async def test_a_cancelled_run_is_not_promoted(rig: Rig) -> None:
    """A5."""
    job_id = await rig.submit(delay=1)
    await rig.cancel(job_id)
    rig.move(1)
    await promoter(rig).run_once()
    assert await rig.state(job_id) is None
    assert rig.of(Promoted) == []


async def test_it_needs_no_memory(rig: Rig) -> None:
    """B2, rule "one clock reading per statement": a new promoter continues where the last one died; it also finds runs that
    were submitted with an earlier time."""
    later = await rig.submit(delay=2)
    rig.move(2)
    await promoter(rig).run_once()
    earlier = await rig.submit(run_at=NOW + timedelta(seconds=2.5))
    rig.move(1)
    await promoter(rig).run_once()
    assert await ready(rig) == [later, earlier]


class TestMark:
    """Under load it begins at its mark, and does not scan the rows that it has promoted (domain.marks)."""

    async def begun(self, rig: Rig, one: Promoter, *, overdue_s: float = 4) -> UUID:
        """It has looked from the beginning when an older run is committed."""
        async with rig.database.transaction() as slow:
            (older,) = await jobs.submit(slow, [submission("a", {}, delay=5 - overdue_s)], now=rig.clock.database_now())
            await rig.submit(delay=5)
            rig.move(5)
            await one.run_once()
        return older.id

    async def test_a_run_that_was_committed_late_is_found_by_the_next_look_from_the_beginning(self, rig: Rig) -> None:
        """Rule "one clock reading per statement": a mark is not a high-water mark."""
        one = promoter(rig)
        older = await self.begun(rig, one)
        newer = await rig.submit(delay=LOOK_AGAIN_S / 2)
        rig.move(LOOK_AGAIN_S / 2)
        await one.run_once()
        assert (await rig.state(newer), await rig.state(older)) == ("ready", "waiting"), "it does not begin at the mark"
        rig.move(LOOK_AGAIN_S)
        await one.run_once()
        assert await rig.state(older) == "ready"

    async def test_other_partitions_have_no_mark_yet(self, rig: Rig) -> None:
        """B2: a node that takes over a partition scans all of it, including runs that no helper would promote yet."""
        led: list[Collection[int]] = [range(64)]
        one = Promoter(rig.database, lambda: led[0], limit=100, clock=rig.clock, emit=rig.heard)
        older = await self.begun(rig, one, overdue_s=1)
        led[0] = [await partition_of(rig, older)]
        await one.run_once()
        assert await rig.state(older) == "ready"


async def test_it_goes_round_all_keys_of_limits_before_it_rests(rig: Rig) -> None:
    """C10, rule "look again every pass": a look covers 1,000 keys, and the first keys may stay full."""
    limited = [submission("a", {}, limit={"key": f"k{n:04}", "running": 1}) for n in range(1001)]
    async with rig.database.connection() as connection:
        await jobs.submit(connection, limited, now=rig.clock.database_now())
        await connection.fetch(
            "INSERT INTO sexton.slots (key, n, run_id) SELECT key, 1, gen_random_uuid() FROM sexton.limits WHERE key < 'k1000'"
        )
    one = promoter(rig)
    assert await one.run_once() == 0.0
    assert await ready(rig) == []
    assert await one.run_once() > 0.0
    assert len(await ready(rig)) == 1
