"""Retention: partitions ahead, old ones dropped unless they are needed, keys that expire."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.domain.job import Unique
from sexton.domain.outcome import Succeeded
from sexton.errors import Contention
from sexton.operations import replay
from sexton.store.work import dead_letters, jobs, retention
from tests.callers import TESTER
from tests.store.support import NOW, after, bury, claim, enlist, finish, run_row, status, submit

if TYPE_CHECKING:
    from uuid import UUID

    from sexton.store.database import Postgres
    from tests.store.support import Conn

FAR = datetime(2030, 1, 2, 23, 59, tzinfo=UTC)  # a Wednesday at the end of its day, later than all partitions of the template
PARTITIONS = """
SELECT child.relname FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
WHERE i.inhparent = ('sexton.' || $1)::regclass ORDER BY 1
"""


async def _partitions(connection: Conn, parent: str) -> list[str]:
    return [row["relname"] for row in await connection.fetch(PARTITIONS, parent)]


async def test_partitions_exist_at_least_fourteen_days_ahead(connection: Conn) -> None:
    """D5, rule "lock in id order": days of executions, weeks of jobs and endings, without a gap; the second call finds nothing
    missing."""
    made = await retention.make_partitions(connection, now=FAR)
    assert made > 0
    assert await retention.make_partitions(connection, now=FAR) == 0
    executions = await _partitions(connection, "executions")
    for days in range(-1, 16):
        assert f"executions_{FAR + timedelta(days=days):%Y%m%d}" in executions
    for parent in ("jobs", "endings"):
        weeks = await _partitions(connection, parent)
        for days in range(-1, 15):
            assert f"{parent}_{FAR + timedelta(days=days):%Gw%V}" in weeks


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"])
async def test_partitions_do_not_depend_on_the_time_zone_of_the_session(connection: Conn, zone: str) -> None:
    """B9, D5: a janitor in Kiribati and one in Samoa create the same ones."""
    await retention.make_partitions(connection, now=FAR)
    before = [await _partitions(connection, parent) for parent in ("jobs", "endings", "executions")]
    await connection.execute(f"SET timezone = '{zone}'")
    assert await retention.make_partitions(connection, now=FAR) == 0
    assert [await _partitions(connection, parent) for parent in ("jobs", "endings", "executions")] == before


async def test_partitions_touch_and_do_not_overlap(connection: Conn) -> None:
    """D5: over a year with 53 ISO weeks and both changes of the clock."""
    first, last = datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 31, tzinfo=UTC)
    await connection.execute("SET timezone = 'America/New_York'")
    await connection.execute("SELECT sexton.make_partitions($1, $2)", first, last)
    for n in range(int((last - first) / timedelta(hours=7))):
        moment = first + n * timedelta(hours=7)
        job_id = await submit(connection, now=moment)
        assert await status(connection, job_id) == "pending"


async def test_many_janitors_at_once_create_each_partition_once(database_url: str) -> None:
    """D5, B2."""
    connections = [await asyncpg.connect(database_url) for _ in range(5)]
    made = await asyncio.gather(*(retention.make_partitions(one, now=FAR) for one in connections))
    for one in connections:
        await one.close()
    assert sorted(made)[:4] == [0, 0, 0, 0]
    assert max(made) > 0


async def test_a_partition_is_created_during_submissions_and_reads(connection: Conn, rival: Conn) -> None:
    """D7, rule "lock in id order": without a lock that blocks readers or writers of the parent."""
    await rival.execute("SET lock_timeout = '200ms'")
    async with connection.transaction():
        await retention.make_partitions(connection, now=FAR)
        job_id = await submit(rival)
        assert await status(rival, job_id) == "pending"


async def test_a_partition_is_created_beside_an_open_submission(connection: Conn, rival: Conn) -> None:
    """D7, rule "lock in id order": and the other way round."""
    await rival.execute("SET lock_timeout = '200ms'")
    async with connection.transaction():
        await submit(connection)
        assert await retention.make_partitions(rival, now=FAR) > 0


# Dropping.


async def _ended(connection: Conn, worker_id: UUID, now: datetime) -> UUID:
    job_id = await submit(connection, now=now)
    (claimed,) = await claim(connection, worker_id, now=now)
    await finish(connection, claimed.lease, Succeeded(), now=now)
    return job_id


@pytest.mark.made_up_rows
async def test_old_history_is_dropped_by_the_day(connection: Conn, database: Postgres) -> None:
    """D5: executions that ended before the retention, and not one day more."""
    worker_id = await enlist(connection)
    for days in range(4):
        await _ended(connection, worker_id, after(days=days))
    kept_s = 86400.0
    dropped = await retention.drop_partitions(database, "executions", keep_s=kept_s, now=after(days=3))
    assert dropped[-1] == f"executions_{after(days=1):%Y%m%d}"
    rows = await connection.fetch("SELECT ended_at FROM sexton.executions ORDER BY 1")
    assert [row["ended_at"] for row in rows] == [after(days=2), after(days=3)]
    assert await retention.drop_partitions(database, "executions", keep_s=kept_s, now=after(days=3)) == []


async def test_a_day_is_kept_until_all_of_it_is_old_enough(connection: Conn, database: Postgres) -> None:
    """D5: to the second."""
    midnight = datetime(2026, 3, 5, tzinfo=UTC)
    day = f"executions_{NOW:%Y%m%d}"
    early = await retention.drop_partitions(database, "executions", keep_s=60, now=midnight + timedelta(seconds=59))
    assert day not in early
    late = await retention.drop_partitions(database, "executions", keep_s=60, now=midnight + timedelta(seconds=60))
    assert day in late


@pytest.mark.made_up_rows
async def test_finished_jobs_are_dropped_by_the_week(connection: Conn, database: Postgres) -> None:
    """D5: definition and ending together."""
    worker_id = await enlist(connection)
    old = await _ended(connection, worker_id, NOW)
    new = await _ended(connection, worker_id, after(days=7))
    for parent in ("jobs", "endings"):
        dropped = await retention.drop_partitions(database, parent, keep_s=0, now=after(days=7))
        assert dropped[-1] == f"{parent}_{NOW:%Gw%V}"
    rows = await connection.fetch("SELECT id FROM sexton.jobs")
    assert [row["id"] for row in rows] == [new]
    assert old not in {row["job_id"] for row in await connection.fetch("SELECT job_id FROM sexton.endings")}


async def test_a_week_that_a_live_run_needs_is_kept_and_so_are_all_after_it(connection: Conn, database: Postgres) -> None:
    """D5: a job submitted a year ahead still has its payload when it is due."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, payload={"n": 1}, delay=timedelta(days=365))
    await _ended(connection, worker_id, after(days=7))
    for parent in ("jobs", "endings"):
        assert f"{parent}_{NOW:%Gw%V}" not in await retention.drop_partitions(database, parent, keep_s=0, now=after(days=300))
        assert f"{parent}_{after(days=7):%Gw%V}" in await _partitions(connection, parent)
    assert await run_row(connection, job_id) is not None
    assert (await jobs.show(connection, job_id)).payload_json == '{"n": 1}'


async def test_a_week_that_a_dead_letter_needs_is_kept(connection: Conn, database: Postgres) -> None:
    """D5, C7: a replay needs the definition."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    for parent in ("jobs", "endings"):
        assert f"{parent}_{NOW:%Gw%V}" not in await retention.drop_partitions(database, parent, keep_s=0, now=after(days=60))
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    assert len(await replay.replay(connection, TESTER, [letter.id], now=after(days=60))) == 1


async def test_a_replay_in_flight_keeps_its_week(connection: Conn, rival: Conn, database: Postgres) -> None:
    """D5, C7: the check sees either the letter or the run."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    async with rival.transaction():
        await replay.replay(rival, TESTER, [letter.id], now=after(days=60))
        assert f"jobs_{NOW:%Gw%V}" not in await retention.drop_partitions(database, "jobs", keep_s=0, now=after(days=60))
    assert f"jobs_{NOW:%Gw%V}" not in await retention.drop_partitions(database, "jobs", keep_s=0, now=after(days=60))


async def test_the_partition_of_recurring_jobs_is_never_dropped(connection: Conn, database: Postgres) -> None:
    """D5: their jobs are live."""
    await retention.drop_partitions(database, "jobs", keep_s=0, now=after(days=36500))
    assert await _partitions(connection, "jobs") == ["jobs_recurring"]


async def test_a_drop_does_not_wait_long_for_a_reader(connection: Conn, database: Postgres) -> None:
    """Rule "lock in id order": the janitor gives up after a second and tries again later."""
    async with connection.transaction():
        await connection.fetch("SELECT FROM sexton.executions")
        with pytest.raises(Contention):
            await retention.drop_partitions(database, "executions", keep_s=0, now=after(days=30))
    assert await retention.drop_partitions(database, "executions", keep_s=0, now=after(days=30))


# Keys.


async def test_expired_idempotency_keys_are_deleted(connection: Conn) -> None:
    """A10: when their time is over and not before."""
    await submit(connection, key="short", key_ttl="1h")
    await submit(connection, key="long")
    await retention.expire_keys(connection, now=after(minutes=60))
    assert await connection.fetchval("SELECT count(*) FROM sexton.idempotency_keys") == 2
    await retention.expire_keys(connection, now=after(minutes=61))
    rows = await connection.fetch("SELECT key FROM sexton.idempotency_keys")
    assert [row["key"] for row in rows] == ["long"]


async def test_a_key_that_is_being_used_is_not_expired(connection: Conn, rival: Conn) -> None:
    """A10: a submission that renews it holds it."""
    await submit(connection, key="k", key_ttl="1h")
    async with connection.transaction():
        job_id = await submit(connection, key="k", now=after(hours=2))
        await retention.expire_keys(rival, now=after(hours=2))
    assert await submit(connection, key="k", now=after(hours=2)) == job_id


async def test_a_unique_key_lives_as_long_as_its_job_or_its_period(connection: Conn) -> None:
    """A10: pending and running jobs keep theirs."""
    worker_id = await enlist(connection)
    await submit(connection, payload={"n": 1}, unique=True, delay="1h")
    await submit(connection, payload={"n": 2}, unique=Unique.of(period="1d"))
    await submit(connection, payload={"n": 3}, unique=True)

    async def count(now: datetime) -> int:
        await retention.expire_keys(connection, now=now)
        return int(await connection.fetchval("SELECT count(*) FROM sexton.unique_keys"))

    assert await count(after(days=9)) == 3
    for claimed in await claim(connection, worker_id):
        await finish(connection, claimed.lease, Succeeded())
    assert await count(after(hours=1)) == 2
    assert await count(after(days=2)) == 1


async def test_a_unique_key_that_is_being_taken_over_is_not_expired(connection: Conn, rival: Conn) -> None:
    """A10, rule "lock, then decide": its former job has ended, and the new job is not committed yet."""
    worker_id = await enlist(connection)
    await submit(connection, unique=True)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Succeeded())
    async with connection.transaction():
        again = await submit(connection, unique=True)
        await retention.expire_keys(rival, now=after(days=1))
    assert await submit(connection, unique=True) == again


async def test_unique_keys_are_examined_some_at_a_time_and_in_turn(connection: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """B11: however many there are; after the last one the first one follows."""
    monkeypatch.setattr(retention, "KEY_BATCH", 2)
    worker_id = await enlist(connection)
    for n in range(5):
        await submit(connection, payload={"n": n}, unique=Unique.of())
    for claimed in await claim(connection, worker_id):
        await finish(connection, claimed.lease, Succeeded())
    await submit(connection, payload={"n": 5}, unique=Unique.of())
    after_key, left = retention.FIRST, []
    for _ in range(4):
        after_key = (await retention.expire_keys(connection, after=after_key, now=NOW)).looked
        left.append(await connection.fetchval("SELECT count(*) FROM sexton.unique_keys"))
    assert left[-1] == 1, "that of the job that is pending"
    assert left[0] >= 4
    assert after_key == retention.FIRST
