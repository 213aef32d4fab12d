"""Online: short locks with retries; indexes built during writes; backfills that continue after a kill; one migrator at a
time."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.errors import Contention, SchemaMismatch
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.migrations.migration_lock import migration_lock
from sexton.store.migrations.reports import Progressed, Report, Retrying, Waiting
from sexton.store.migrations.steps import Step
from tests.migration.shipping import CALM, HASTE, backfill_step, index_step, ships, sql_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COLUMN = sql_step("0100_colour", "ALTER TABLE sexton.runs ADD COLUMN colour text")
INDEX = index_step("0101_jobs_by_lane", "CREATE INDEX jobs_by_lane ON sexton.jobs (lane, id) WHERE lane < 2;")
PLAIN_INDEX = index_step("0102_runs_by_task", "CREATE INDEX runs_by_task ON sexton.runs (task);")
FILL_SQL = """
WITH batch AS MATERIALIZED (
  SELECT n FROM public.numbers WHERE n > coalesce($1::text::int, 0) ORDER BY n LIMIT $2
), changed AS (
  UPDATE public.numbers o SET seen = o.seen + 1 FROM batch b WHERE o.n = b.n
  RETURNING o.n, CASE WHEN o.n = 60 THEN pg_advisory_xact_lock(60) END AS waited
)
SELECT max(n)::text AS cursor, count(*) AS count FROM changed"""
FILL = backfill_step("0103_fill", FILL_SQL, batch=10, total="SELECT count(*) FROM public.numbers")
NUMBERS = "CREATE TABLE public.numbers AS SELECT n, 0 AS seen FROM generate_series(1, 100) AS n"


@asynccontextmanager
async def holding(url: str, *statements: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session with a transaction that is left open."""
    session = await asyncpg.connect(url, server_settings={"application_name": "careless"})
    await session.execute("; ".join(("BEGIN", *statements)))
    try:
        yield session
    finally:
        await session.close()


async def test_a_locked_table_is_waited_for_briefly_and_often(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: the waiting request never blocks others for long, and the step is done once the lock is free."""
    ships(monkeypatch, [COLUMN])
    told: list[Report] = []
    is_free = asyncio.Event()

    def hear(report: Report) -> None:
        told.append(report)
        if len(told) >= 3:
            is_free.set()

    async with holding(database_url, "LOCK TABLE sexton.runs IN ACCESS SHARE MODE"):
        work = asyncio.create_task(migrations.migrate(database, tell=hear, pace=CALM))
        await is_free.wait()
        assert not work.done()
    assert await work == ["0100_colour"]
    retries = [report for report in told if isinstance(report, Retrying)]
    assert [report.tries for report in retries[:3]] == [1, 2, 3]
    assert "careless" in retries[-1].line
    assert retries[1].pause_s > retries[0].pause_s


async def test_others_get_their_locks_between_two_tries(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: without a limit, every session after the waiting ALTER TABLE would wait as long as the reader before it."""
    ships(monkeypatch, [COLUMN])
    async with holding(database_url, "LOCK TABLE sexton.runs IN ACCESS SHARE MODE"):
        work = asyncio.create_task(migrations.migrate(database, pace=CALM))
        reader = await asyncpg.connect(database_url)
        for _ in range(20):
            await reader.fetch("SELECT FROM sexton.runs")  # returns while the holder still has its lock
            await asyncio.sleep(0.05)
        await reader.close()
        assert not work.done()
    await work


async def test_the_last_try_fails_with_a_line_that_names_the_blocking_session(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: pid, application_name and duration; nothing is changed, and the migration can be run again."""
    ships(monkeypatch, [COLUMN])
    async with holding(database_url, "LOCK TABLE sexton.runs IN ACCESS SHARE MODE") as holder:
        with pytest.raises(Contention) as caught:
            await migrations.migrate(database, pace=HASTE)
        line = str(caught.value)
        assert "\n" not in line
        assert line.startswith("0100_colour: gave up after ")
        assert f"process {holder.get_server_pid()} (careless, idle in transaction, for " in line
        assert line.endswith("run again: sexton migrate")
    assert await migrations.migrate(database, pace=CALM) == ["0100_colour"]


async def test_a_step_that_would_hold_its_locks_too_long_is_rolled_back(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: a rewrite of a big table is not accepted as an instant change."""
    ships(monkeypatch, [sql_step("0100_slow", "ALTER TABLE sexton.runs ADD COLUMN colour text; SELECT pg_sleep(60)")])
    with pytest.raises(Contention, match=r"0100_slow: gave up .* \(not done within 0\.3 s, and rolled back\)"):
        await migrations.migrate(database, pace=HASTE)
    async with database.connection() as connection:
        assert await connection.fetch("SELECT FROM pg_attribute WHERE attname = 'colour'") == []


async def _partition_indexes(database: Postgres) -> list[bool]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            """SELECT i.indisvalid FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid
               WHERE p.inhparent = 'sexton.jobs_by_lane'::regclass"""
        )
        partitions = await connection.fetch("SELECT FROM pg_inherits WHERE inhparent = 'sexton.jobs'::regclass")
    assert len(rows) == len(partitions)
    return [row["indisvalid"] for row in rows]


async def test_an_index_of_a_partitioned_table_is_built_during_writes(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: an uncommitted writer delays only the index of its partition, and no other session."""
    ships(monkeypatch, [INDEX, PLAIN_INDEX])
    told: list[Report] = []
    assert await migrations.migrate(database, tell=told.append, pace=CALM) == ["0101_jobs_by_lane", "0102_runs_by_task"]
    assert all(await _partition_indexes(database))
    last = [report for report in told if isinstance(report, Progressed)][-1]
    assert (last.done, last.unit) == (last.total, "indexes")
    await migrations.require_current(database)
    async with database.transaction() as connection:  # a partition that is created later has it as well
        await connection.fetch("SELECT sexton.make_partitions($1, $1)", _in_a_year())
    assert all(await _partition_indexes(database))
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE indexname IN ('jobs_by_lane', 'runs_by_task') ORDER BY 1"
        )
    assert [row[0].partition(" USING")[0] for row in rows] == [
        "CREATE INDEX jobs_by_lane ON ONLY sexton.jobs",
        "CREATE INDEX runs_by_task ON sexton.runs",
    ]


def _in_a_year() -> object:
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(days=365)


async def test_an_index_is_built_while_a_writer_has_locked_the_table(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: a plain CREATE INDEX would wait for the writer, and all later writers for it."""
    ships(monkeypatch, [PLAIN_INDEX])
    async with holding(database_url, "LOCK TABLE sexton.runs IN ROW EXCLUSIVE MODE"):
        work = asyncio.create_task(migrations.migrate(database, pace=CALM))
        other = await asyncpg.connect(database_url)
        while not await other.fetchval("SELECT count(*) FROM pg_class WHERE relname = 'runs_by_task'"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await other.execute("SET lock_timeout = '1s'; DELETE FROM sexton.runs WHERE false")
        await other.close()
        assert not work.done()
    assert await work == ["0102_runs_by_task"]


@pytest.mark.parametrize("step", [INDEX, PLAIN_INDEX], ids=["partitioned", "plain"])
async def test_an_invalid_index_is_dropped_and_built_again(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """D7: the index of an interrupted build is not used by queries and must not be taken for a complete one."""
    from sexton.store.migrations.indexes import index_of

    index = index_of(step)
    on, name = index.table, index.name
    async with database.connection() as connection:
        if step is INDEX:
            on, name = "jobs_recurring", index.part("jobs_recurring")
            await connection.execute(index.create("ONLY sexton.jobs"))
        await connection.execute(index.create(f"sexton.{on}", name))
        await connection.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'sexton.{name}'::regclass")
        ((before,),) = await connection.fetch(f"SELECT 'sexton.{name}'::regclass::oid")
    ships(monkeypatch, [step])
    assert await migrations.migrate(database, pace=CALM) == [step.name]
    async with database.connection() as connection:
        ((after, is_valid, parent_is_valid),) = await connection.fetch(
            f"""SELECT i.indexrelid, i.indisvalid, p.indisvalid FROM pg_index i, pg_index p
                WHERE i.indexrelid = 'sexton.{name}'::regclass AND p.indexrelid = 'sexton.{index.name}'::regclass"""
        )
    assert (after != before, is_valid, parent_is_valid) == (True, True, True)


async def test_an_index_without_a_direct_connection_is_rejected_before_anything_is_done(
    pooled_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule "session state only on direct connections"."""
    ships(monkeypatch, [COLUMN, INDEX])
    pooled = await Postgres.open(pooled_url)
    with pytest.raises(SchemaMismatch, match="needs a direct connection; set SEXTON_DIRECT_URL"):
        await migrations.migrate(pooled, pace=HASTE)
    async with pooled.transaction() as connection:
        assert await connection.fetch("SELECT FROM pg_attribute WHERE attname = 'colour'") == []
    await pooled.close()


async def _numbers(database: Postgres) -> set[int]:
    async with database.connection() as connection:
        return {row[0] for row in await connection.fetch("SELECT DISTINCT seen FROM public.numbers")}


async def test_a_backfill_runs_in_batches_and_reports_its_progress(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7."""
    async with database.transaction() as connection:
        await connection.execute(NUMBERS)
    ships(monkeypatch, [FILL])
    told: list[Report] = []
    assert await migrations.migrate(database, tell=told.append, pace=CALM) == ["0103_fill"]
    assert [report.done for report in told if isinstance(report, Progressed)] == [*range(10, 101, 10), 100]
    assert told[0].line == "0103_fill: 10 of 100 rows"
    assert await _numbers(database) == {1}
    assert await migrations.migrate(database, pace=CALM) == []


async def test_a_batch_that_meets_a_locked_row_is_made_smaller(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: the rows before it are updated in the meantime."""
    async with database.transaction() as connection:
        await connection.execute(NUMBERS)
    ships(monkeypatch, [FILL])
    told: list[Report] = []
    enough = asyncio.Event()

    def hear(report: Report) -> None:
        told.append(report)
        if isinstance(report, Progressed) and report.done == 34:
            enough.set()

    async with holding(database_url, "SELECT FROM public.numbers WHERE n = 35 FOR UPDATE"):
        work = asyncio.create_task(migrations.migrate(database, tell=hear, pace=CALM))
        await enough.wait()
    await work
    assert await _numbers(database) == {1}


KILLED = """
import asyncio, sys
import pytest
from sexton.store import migrations
from sexton.store.database import Postgres
from tests.migration.shipping import CALM, ships
from tests.migration.test_online import FILL

async def main():
    ships(pytest.MonkeyPatch(), [FILL])
    await migrations.migrate(await Postgres.open(sys.argv[1]), pace=CALM)

asyncio.run(main())
"""


async def test_a_backfill_continues_after_kill_9_and_updates_no_row_twice(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: a real process, killed in the middle of a batch."""
    async with database.transaction() as connection:
        await connection.execute(NUMBERS)
    async with holding(database_url, "SELECT pg_advisory_xact_lock(60)"):  # the batch with row 60 waits for this lock
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, database_url)
        try:
            while await _done_count(database) < 50:
                assert killed.returncode is None
                await asyncio.sleep(0.05)
        finally:
            killed.send_signal(signal.SIGKILL)
            await killed.wait()
        assert await _numbers(database) == {0, 1}
        ships(monkeypatch, [FILL])
        with pytest.raises(SchemaMismatch, match="lacks 0103_fill; run: sexton migrate"):
            await migrations.require_current(database)
    assert await migrations.migrate(database, pace=CALM) == ["0103_fill"]
    assert await _numbers(database) == {1}
    await migrations.require_current(database)


async def _done_count(database: Postgres) -> int:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT done_count FROM sexton.schema_steps WHERE name = '0103_fill'")
    return rows[0][0] if rows else 0


async def test_many_migrators_share_a_plan_of_all_kinds_without_repeating_a_step(
    database: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: eight nodes of a rolling deploy."""
    async with database.transaction() as connection:
        await connection.execute(NUMBERS)
    ships(monkeypatch, [COLUMN, INDEX, FILL])
    nodes = [await Postgres.open(database_url, size=1) for _ in range(8)]
    applied = await asyncio.gather(*(migrations.migrate(node, pace=CALM) for node in nodes))
    for node in nodes:
        await node.close()
    assert sorted(applied, key=len) == [[]] * 7 + [["0100_colour", "0101_jobs_by_lane", "0103_fill"]]
    assert await _numbers(database) == {1}


async def test_a_second_migrator_waits_for_its_turn_and_logs_it(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: also between two transactions of the first."""
    ships(monkeypatch, [COLUMN])
    told: list[Report] = []
    heard = asyncio.Event()

    def hear(report: Report) -> None:
        told.append(report)
        heard.set()

    async with migration_lock(database, tell=hear, pace=CALM):
        work = asyncio.create_task(migrations.migrate(database, tell=hear, pace=CALM))
        await heard.wait()
        assert not work.done()
    assert await work == ["0100_colour"]
    assert told == [Waiting()]


async def test_a_migrator_that_lost_the_lock_stops(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: its connection broke; another may have the lock by now."""
    from sexton.errors import DatabaseUnavailable

    async with migration_lock(database, tell=lambda _: None, pace=CALM) as turn:
        await turn.check()
        async with database.connection() as connection:
            await connection.fetch(
                """SELECT pg_terminate_backend(pid) FROM pg_locks
                   WHERE locktype = 'advisory' AND classid = 7307 AND objid = 3
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
            )
        with pytest.raises(DatabaseUnavailable):
            await turn.check()


async def test_a_backfill_works_through_a_pooler(pooled_url: str, database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule "session state only on direct connections": three migrators on two server connections do not wait for each other."""
    async with database.transaction() as connection:
        await connection.execute(NUMBERS)
    ships(monkeypatch, [COLUMN, FILL])
    pooled = [await Postgres.open(pooled_url) for _ in range(3)]
    applied = await asyncio.gather(*(migrations.migrate(node, pace=CALM) for node in pooled))
    for node in pooled:
        await node.close()
    assert sorted(applied, key=len) == [[], [], ["0100_colour", "0103_fill"]]
    assert await _numbers(database) == {1}


async def test_the_lock_of_the_migration_holds_no_snapshot(database: Postgres) -> None:
    """CREATE INDEX CONCURRENTLY and VACUUM would wait for that snapshot as long as the migration lasts, and so for
    themselves."""
    async with migration_lock(database, tell=lambda _: None, pace=CALM) as turn:
        await turn.check()
        async with database.connection() as connection:
            ((pid,),) = await connection.fetch("SELECT pg_backend_pid()")
            assert await turn.blocker_of(pid) is None
            ((state, xmin),) = await connection.fetch(
                """SELECT a.state, a.backend_xmin::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                   WHERE l.locktype = 'advisory' AND l.classid = 7307 AND l.objid = 3 AND a.datname = current_database()"""
            )
    assert (state, xmin) == ("idle in transaction", None)
