"""A database with far more waiting, ready and past runs than any statement may read: 100,000 of each in the normal test run,
ten million with SEXTON_TEST_DEPTH=10000000, built once and kept in `.cache/`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.migrations import steps
from tests.store.support import NOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.store.support import Conn

DEPTH = int(os.environ.get("SEXTON_TEST_DEPTH", "100000"))
IS_CACHED = DEPTH > 1_000_000
CACHE = Path(__file__).parents[2] / ".cache" / "depth"
CHUNK = 250_000
FREE_BYTES = 2_500  # per unit of depth; 1,820 when measured

# Of every ten runs, eight are due from tomorrow on and two are ready. Each has a job and a past execution; a tenth has keys, a
# dead letter and a latest start; for every hundredth there is a schedule that is planned next week.
FILL = (
    """CREATE TEMP TABLE n AS
       SELECT n, n % 10 >= 8 AS is_ready, sexton.uuid7({micros} + n) AS id, 'deep' || n AS name,
         CASE WHEN n % 10 >= 8 THEN '{now}'::timestamptz - interval '1 hour' ELSE '{now}'::timestamptz + interval '1 day' END
           + n * interval '50 us' AS due_at,
         CASE WHEN n % 3 = 0 THEN 'mail' ELSE 'default' END AS queue, 't' || n % 100 AS tenant
       FROM generate_series({first}, {last}) n""",
    """INSERT INTO sexton.jobs (id, task, tenant, queue, lane, payload, timeout_s, at_most_once, submitted_at)
       SELECT id, 'a', tenant, queue, 1 + n % 3, '{{}}', 30, false, '{now}' FROM n""",
    """INSERT INTO sexton.runs (id, job_id, fire_at, due_at, start_by, timeout_s, lane, partition, at_most_once, state, origin,
                                queue, tenant, task)
       SELECT id, id, due_at, due_at, CASE WHEN n % 10 = 0 THEN due_at + interval '1 day' END, 30, 1 + n % 3,
         sexton.partition_of(id), false, CASE WHEN is_ready THEN 'ready' ELSE 'waiting' END, 'now', queue, tenant, 'a'
       FROM n""",
    """INSERT INTO sexton.executions (id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version,
                                      seq, attempt, lane, origin, status, queue, tenant, task)
       SELECT sexton.uuid7({micros} + n), id, id, '00000000-0000-0000-0000-000000000001', due_at, due_at, '{now}', '{now}', 1,
         1, 0, 1, 1 + n % 3, 'now', 'failed', queue, tenant, 'a' FROM n""",
    """INSERT INTO sexton.idempotency_keys (tenant, key, job_id, body, expires_at)
       SELECT tenant, name, id, '\\x00', '{now}'::timestamptz + interval '7 days' FROM n WHERE n % 10 = 0""",
    """INSERT INTO sexton.unique_keys (tenant, key, job_id)
       SELECT tenant, int8send(n), id FROM n WHERE n % 10 = 0""",
    """INSERT INTO sexton.dead_letters (id, job_id, run_id, fire_at, buried_at, replay_at, job_version, seq, attempts,
                                        lost_count, lane, permanent, origin, status, queue, tenant, task, reason, payload)
       SELECT id, id, id, due_at, '{now}', '{now}'::timestamptz + interval '1 day', 1, 0, 1, 0, 2, false, 'now', 'failed',
         queue, tenant, 'a', 'deep', '{{}}' FROM n WHERE n % 10 = 0""",
    """INSERT INTO sexton.jobs_recurring (id, task, tenant, queue, lane, name, payload, at_most_once, submitted_at, schedule,
                                          plan_at, plan_cursor_at)
       SELECT encode(set_byte(uuid_send(id), 0, get_byte(uuid_send(id), 0) | 128), 'hex')::uuid, 'a', tenant, queue, 2, name,
         '{{}}', false, '{now}', '{{"cron": "0 9 * * MON"}}', '{now}'::timestamptz + interval '6 days',
         '{now}'::timestamptz + interval '7 days' FROM n WHERE n % 100 = 0""",
    "DROP TABLE n",
)


@asynccontextmanager
async def kept_server() -> AsyncIterator[str]:
    """The URL of the kept database: created if it does not exist or one of its migration steps has changed, migrated if there
    are new ones."""
    filled, schema = CACHE / "filled", _schema()
    kept = json.loads(filled.read_text()) if filled.exists() else None
    if kept is None or not kept.items() <= schema.items():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        free = shutil.disk_usage(CACHE).free
        if free < DEPTH * FREE_BYTES:
            raise RuntimeError(f"a depth of {DEPTH:,} takes {DEPTH * FREE_BYTES:,} bytes of disk; {free:,} are free")
    settings = {"fsync": "off", "synchronous_commit": "off", "max_wal_size": "8GB", "autovacuum": "off"}
    with EmbeddedPostgres.start(CACHE / "postgres", settings=settings) as server:
        database = await Postgres.open(server.url())
        await migrations.migrate(database)
        await database.close()
        if not filled.exists():
            connection = await asyncpg.connect(server.url())
            await connection.execute("SELECT sexton.make_partitions($1, $1)", NOW)
            await fill(connection)
            await connection.close()
        else:
            await _clean(server.url())
        filled.write_text(json.dumps(schema))
        yield server.url()


async def _clean(url: str) -> None:
    """Dead entries that the last run rolled back are at the front of every index: they would count as read."""
    connection = await asyncpg.connect(url)
    for table in ("runs", "unique_keys", "idempotency_keys"):
        await connection.execute(f"VACUUM (INDEX_CLEANUP ON) sexton.{table}", timeout=3600)
    await connection.close()


async def fill(connection: Conn) -> None:
    micros = int(NOW.timestamp() * 1_000_000)
    for first in range(1, DEPTH + 1, CHUNK):
        last = min(first + CHUNK - 1, DEPTH)
        for statement in FILL:
            await connection.execute(statement.format(micros=micros, now=NOW, first=first, last=last), timeout=600)
        if IS_CACHED:
            sys.stderr.write(f"{last:,} of {DEPTH:,}\n")
    await connection.execute("VACUUM ANALYZE", timeout=3600)
    await connection.execute("CHECKPOINT", timeout=600)


class Touched(NamedTuple):
    """What an operation has read of the growing tables: index entries, rows of sequential scans by table, and pages."""

    entries: dict[str, int]
    walked: dict[str, int]
    pages: int


async def touched(connection: Conn, work: Callable[[], Awaitable[Any]]) -> Touched:
    """Runs it in a transaction that is rolled back; the server's counters keep what it read."""
    before = await _counters(connection)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await work()
    finally:
        await transaction.rollback()
    after = await _counters(connection)
    read = {key: value - before.get(key, 0) for key, value in after.items() if value > before.get(key, 0)}
    return Touched(
        {name: count for (kind, name), count in read.items() if kind == "index"},
        {name: count for (kind, name), count in read.items() if kind == "table"},
        sum(count for (kind, _), count in read.items() if kind == "pages"),
    )


_GROWS = "^(runs|jobs|executions|endings|dead_letters|idempotency_keys|unique_keys)"


async def _counters(connection: Conn) -> dict[tuple[str, str], int]:
    await connection.execute("SELECT pg_stat_force_next_flush()")
    rows = await connection.fetch(
        """SELECT 'index' AS kind, indexrelname AS name, idx_tup_read AS count FROM pg_stat_user_indexes
           WHERE schemaname = 'sexton' AND relname ~ $1
           UNION ALL
           SELECT 'table', relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'sexton' AND relname ~ $1
           UNION ALL
           SELECT 'pages', relname, coalesce(heap_blks_hit + heap_blks_read, 0) + coalesce(idx_blks_hit + idx_blks_read, 0)
           FROM pg_statio_user_tables WHERE schemaname = 'sexton' AND relname ~ $1""",
        _GROWS,
    )
    return {(row["kind"], row["name"]): row["count"] for row in rows}


def _schema() -> dict[str, str]:
    """Identifies the steps and the depth of the kept database."""
    made_of = {step.name: step.checksum for step in steps.known()}
    return made_of | {"fill": hashlib.sha256(repr((DEPTH, FILL)).encode()).hexdigest()}
