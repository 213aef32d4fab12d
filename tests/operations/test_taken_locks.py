"""Rule "no lock that others may take": a role with fewer rights takes every advisory lock of Sexton, and no service stops."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from sexton.domain import partition
from sexton.domain.schedule.document import ScheduleDocument
from sexton.operations.explain.locks import locked
from sexton.operations.recurring.declared_schedules import declare
from sexton.scheduler.leadership import Leadership
from sexton.scheduler.lock_watcher import LONG_S, REST_S, LockWatcher
from sexton.scheduler.overdue_check import OVERDUE_S
from sexton.scheduler.promoter import Promoter
from sexton.store.database import Postgres
from sexton.store.migrations.advisory_locks import LOCK
from sexton.store.migrations.migration_lock import Pace, migration_lock
from sexton.store.postgres.advisory_locks import PartitionLocks
from sexton.store.sharing import parked_runs
from sexton.store.views import diagnosis, evidence, locked_rows
from sexton.store.work import declared, schedules
from sexton.telemetry.events import AdvisoryLockTaken
from tests.callers import TESTER
from tests.rig import LONG_S as GIVE_UP_S
from tests.rig import Rig
from tests.store.support import blocked_task
from tests.timetable import Timetable

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

KEYS = [*((7307, key) for key in (*range(5), *range(100, 164))), *((7308, n) for n in partition.ALL)]
TAKE = f"""
SELECT pg_advisory_lock(k.class, k.number) FROM (VALUES {", ".join(str(key) for key in KEYS)}) AS k (class, number);
SELECT pg_advisory_lock(hashtextextended('sexton.release_parked', 0))"""  # of the release before
GRANTS = {
    "connects": "",
    "submits": "GRANT USAGE ON SCHEMA sexton TO {role}; GRANT EXECUTE ON FUNCTION sexton.submit TO {role}",
}


@pytest.fixture(params=GRANTS)
async def thief(request: pytest.FixtureRequest, connection: Conn, database_url: str) -> AsyncIterator[Conn]:
    """A session of a role with few rights, which holds all advisory locks of Sexton and does nothing else."""
    role = f"thief_{secrets.token_hex(4)}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; {GRANTS[request.param].format(role=role)}")
    parts = urlsplit(database_url)
    url = urlunsplit(parts._replace(netloc=f"{role}:x@{parts.netloc.rpartition('@')[2]}"))
    session = await asyncpg.connect(url, server_settings={"application_name": "reports"})
    await session.execute(TAKE)
    yield session
    await session.close()
    await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_fires_with_an_overlap_policy_start(rig: Rig, thief: Conn) -> None:
    table = Timetable(rig, takes_s=20 * 60)
    await table.write(recurrence={"overlap": {"policy": "queue"}})
    await table.until(45, step_s=300)
    assert len(table.starts) >= 2


async def test_two_promoters_still_decide_one_at_a_time(connection: Conn, rival: Conn, thief: Conn) -> None:
    """Rule "lock, then decide": the row decides, where the advisory lock cannot."""
    async with rival.transaction():
        assert await schedules.lock_partitions(rival, range(32)) == list(range(32))
        async with connection.transaction():
            assert await schedules.lock_partitions(connection, partition.ALL) == list(range(32, 64))


async def test_a_sync_of_the_release_before_is_respected(connection: Conn, rival: Conn) -> None:
    """It holds the advisory lock and no row: the two must not go on together."""
    async with rival.transaction():
        await rival.execute("SELECT pg_advisory_xact_lock(7307, 2)")
        await connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await declared.begin(connection)
    async with connection.transaction():
        await declared.begin(connection)


async def test_a_promoter_of_the_release_before_is_respected(connection: Conn, rival: Conn) -> None:
    """It takes the advisory lock and no row, and its role has the rights of a service."""
    async with rival.transaction():
        await rival.execute("SELECT pg_try_advisory_xact_lock(7307, 107)")
        async with connection.transaction():
            assert await schedules.lock_partitions(connection, partition.ALL) == [n for n in partition.ALL if n != 7]
    async with rival.transaction():
        await schedules.lock_partitions(rival, [7])
        assert await connection.fetchval("SELECT pg_try_advisory_xact_lock(7307, 107)") is False, "it respects this one, too"


async def test_partitions_are_made(connection: Conn, thief: Conn) -> None:
    make = "SELECT sexton.make_partitions('2031-01-01', '2031-01-02')"
    assert await asyncio.wait_for(connection.fetchval(make), GIVE_UP_S) > 0


async def test_a_maker_of_partitions_waits_for_another_and_finds_them_made(connection: Conn, rival: Conn) -> None:
    make = "SELECT sexton.make_partition('executions', '20310101', '2031-01-01', '2031-01-02')"
    async with rival.transaction():
        assert await rival.fetchval(make) is True
        late = await blocked_task(rival, connection, connection.fetchval(make))
    assert await late is False


async def test_declared_schedules_are_written(rig: Rig, thief: Conn) -> None:
    one = ScheduleDocument(task="a", name="n", schedule=msgspec.Raw(b'{"every": "1h"}'))
    done = await asyncio.wait_for(declare(rig.database, TESTER, [one], {}, now=rig.clock.database_now()), GIVE_UP_S)
    assert done.created == ["n"]


async def test_two_syncs_still_come_one_after_the_other(connection: Conn, rival: Conn, thief: Conn) -> None:
    async with rival.transaction():
        await declared.begin(rival)
        late = await blocked_task(rival, connection, declared.begin(connection))
    await late


async def test_parked_runs_are_released(rig: Rig, thief: Conn) -> None:
    await rig.submit(limit={"key": "stripe", "running": 1})
    assert await rig.states() == ["parked"]
    async with rig.database.connection() as connection:
        assert (await parked_runs.release(connection, now=rig.clock.database_now())).released_count == 1
    assert await rig.states() == ["ready"]


async def test_a_database_is_migrated(database_url: str, connection: Conn, thief: Conn) -> None:
    database = await Postgres.open(database_url)
    try:
        turn = migration_lock(database, tell=lambda _: None, pace=Pace(turn_s=1.0))
        async with asyncio.timeout(GIVE_UP_S), turn, connection.transaction():
            await connection.execute(LOCK)
    finally:
        await database.close()


async def test_without_leaders_what_is_due_is_promoted_two_seconds_later(rig: Rig, thief: Conn, database_url: str) -> None:
    """Rule "any node does overdue work": the thief holds the lock of each leader, so no node leads a partition."""
    locks = PartitionLocks(database_url)
    node = Leadership(rig.database, uuid4(), "node", locks, clock=rig.clock, emit=rig.heard)
    promoter = Promoter(rig.database, lambda: node.partitions, limit=100, clock=rig.clock, emit=rig.heard)
    await rig.submit(delay=1)
    try:
        await node.run_once()
        assert node.partitions == frozenset()
        await promoter.run_once()
        rig.move(1 + OVERDUE_S)
        await promoter.run_once()
    finally:
        await node.close()
    assert await rig.states() == ["ready"]
    assert OVERDUE_S <= 2.0


async def watch(rig: Rig, span_s: float) -> list[AdvisoryLockTaken]:
    watcher = LockWatcher(rig.database, lambda: (), clock=rig.clock, emit=rig.heard)
    for _ in range(int(span_s / REST_S)):
        await watcher.run_once()
        rig.move(REST_S)
    return rig.of(AdvisoryLockTaken)


async def test_the_session_that_holds_them_is_named(rig: Rig, thief: Conn) -> None:
    assert await watch(rig, LONG_S) == []
    told = await watch(rig, LONG_S + REST_S)
    pid = thief.get_server_pid()
    assert told
    assert all(event.session.startswith(f"session {pid} (reports, user thief_") for event in told)
    assert told[0].advice == f"the services go on without it; if it was forgotten, end it: SELECT pg_terminate_backend({pid})"
    assert told[0].held_s >= LONG_S
    assert 1 + told[0].more_count == len(KEYS) - 1, "(7307, 1) is not in use any more"
    assert len(told) == 1
    async with rig.database.connection() as connection:
        facts = await diagnosis.schema(connection)
    assert {key.holder.pid for key in facts.keys} == {pid}


async def test_a_service_whose_rights_were_revoked_does_not_denounce_itself(
    rig: Rig, connection: Conn, database_url: str
) -> None:
    """E7: neither its own locks, nor those of another node of its role, while PostgreSQL refuses it the tables."""
    role = f"service_{secrets.token_hex(4)}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA sexton TO {role}")
    await connection.execute(
        f"GRANT ALL ON ALL TABLES IN SCHEMA sexton TO {role}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO {role}"
    )
    parts = urlsplit(database_url)
    url = urlunsplit(parts._replace(netloc=f"{role}:x@{parts.netloc.rpartition('@')[2]}"))
    locks, database = PartitionLocks(url), await Postgres.open(url)
    try:
        assert await locks.hold(frozenset(partition.ALL)) == frozenset(partition.ALL)
        await connection.execute(f"REVOKE ALL ON sexton.runs FROM {role}")
        watcher = LockWatcher(database, lambda: partition.ALL, clock=rig.clock, emit=rig.heard)
        for _ in range(int(3 * LONG_S / REST_S)):
            await watcher.run_once()
            rig.move(REST_S)
        assert rig.of(AdvisoryLockTaken) == []
        async with database.connection() as own:
            assert await own.fetch("SELECT WHERE sexton.held_by_service(7308, 0)"), "it gives way to its own kind"
        (key, *_) = (await locked_rows.look(connection)).keys
        assert key.advice.startswith(f"the role {role} may not change sexton.runs"), "doctor of another role cannot know"
    finally:
        await locks.close()
        await database.close()
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_session_with_the_rights_of_a_service_is_named_after_a_while(rig: Rig, rival: Conn) -> None:
    """The services leave the work to it, and `why` says so."""
    table = Timetable(rig)
    job_id = await table.write(recurrence={"overlap": {"policy": "queue"}})
    number = partition.of(job_id)
    await rival.execute(f"SELECT pg_advisory_lock(7307, {100 + number})")
    async with rig.database.connection() as connection:
        assert (await locked_rows.look(connection)).keys == [], "a promoter holds it as well, for a moment"
        (key,) = (await locked_rows.look(connection, key_held_s=0)).keys
        assert (await evidence.gather(connection, job_id)).keys == []
    assert (key.partition, key.may_serve, key.holder.pid) == (number, True, rival.get_server_pid())
    assert key.words == f"the advisory lock (7307, {100 + number}) of partition {number}"
    assert key.advice.startswith("the services leave this work to that session")


async def test_why_names_the_session_that_keeps_a_partition(rig: Rig, rival: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await Timetable(rig).write(recurrence={"overlap": {"policy": "queue"}})
    await rival.execute(f"SELECT pg_advisory_lock(7307, {100 + partition.of(job_id)})")
    real: Any = locked_rows.look
    monkeypatch.setattr(locked_rows, "look", lambda connection, **_: real(connection, key_held_s=0))
    async with rig.database.connection() as connection:
        seen = await evidence.gather(connection, job_id, now=rig.clock.database_now())
    (link,) = locked(seen, None)
    assert not link.ok
    assert f"held by session {rival.get_server_pid()}" in link.detail
