"""One table of live runs whose rows change state, compared with one table per state (docs/adr/017).

Both have the real columns and the indexes they need, and both do what a claim and a report do to a run and nothing else: jobs,
history and the choice of tenants are the same for both and left out. `one` is the layout of the product, `two` has one table
for ready runs and one for running ones, `bare` is `one` without the indexes that a plain run is not in."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

import asyncpg

from bench.server import Server
from sexton.store.database import _SERVER_SETTINGS

from .testbed import Conn, Meter, say, since, study_server, tell

RUNS = 100_000

_FILL = """
INSERT INTO study.{table}
  (id, job_id, fire_at, due_at, timeout_s, lane, partition, at_most_once, state, origin, queue, tenant, task)
SELECT s.id, s.id, s.at, s.at, 30, 2, s.n % 64, false, 'ready', 'now', 'default', 'default', 'note'
FROM (SELECT n, sexton.uuid7(1790000000000000 + n) AS id, clock_timestamp() - interval '1 hour' + n * interval '1 us' AS at
      FROM generate_series(1, {count}) n) s
"""
_PICK = """
WITH picked AS MATERIALIZED (
  SELECT id FROM study.{table} WHERE state = 'ready' AND queue = 'default' AND lane = 2
  ORDER BY queue, lane, tenant, due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)"""


class Layout(NamedTuple):
    name: str
    make: str
    ready: str  # the table of the ready runs
    claim: str  # $1 worker, $2 count; returns ids and tokens
    finish: str  # $1 ids, $2 their token, $3 worker; by the primary key, whatever the planner estimates


# The second table also needs the key that identifies a run among its siblings: overlap, cancel and the status of a job ask for
# all live runs of a job. Indexes that only waiting and ready runs need (expiry, parking, counting) stay with the first table.
_COPY = (
    "id, job_id, fire_at, due_at, deadline_at, job_version, seq, timeout_s, lease_s, lost_count, lane, partition, "
    "at_most_once, origin, queue, tenant, task, limit_key, overlap"
)
ONE = Layout(
    "one",
    "CREATE TABLE study.runs (LIKE sexton.runs INCLUDING ALL)",
    "runs",
    _PICK.format(table="runs")
    + """
UPDATE study.runs r SET state = 'running', worker_id = $1, token = r.token + 1, attempt = r.attempt + 1,
  claimed_at = clock_timestamp(), must_end_at = clock_timestamp() + make_interval(secs => r.timeout_s + 15)
WHERE r.id = ANY (ARRAY(SELECT id FROM picked)) RETURNING r.id, r.token""",
    "DELETE FROM study.runs r WHERE r.id = ANY ($1) AND r.token = $2 AND r.worker_id IS NOT DISTINCT FROM $3 RETURNING r.id",
)
# Not a possible layout: it shows the cost of the indexes that a plain run is never in, which is only the check of their
# predicates.
BARE = ONE._replace(
    name="bare",
    make="""CREATE TABLE study.runs (LIKE sexton.runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
              WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
            ALTER TABLE study.runs ADD PRIMARY KEY (id), ADD UNIQUE (job_id, fire_at, origin, seq);
            CREATE INDEX ON study.runs (queue, lane, tenant, due_at, id) WHERE state = 'ready';
            CREATE INDEX ON study.runs (worker_id) WHERE state = 'running'""",
)
TWO = Layout(
    "two",
    """CREATE TABLE study.ready (LIKE sexton.runs INCLUDING ALL);
       DROP INDEX study.ready_worker_id_idx;
       CREATE TABLE study.running (LIKE sexton.runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
         WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
       ALTER TABLE study.running ADD PRIMARY KEY (id), ADD UNIQUE (job_id, fire_at, origin, seq);
       CREATE INDEX ON study.running (worker_id);
       CREATE UNIQUE INDEX ON study.running (job_id) WHERE overlap = 1""",
    "ready",
    _PICK.format(table="ready")
    + f"""
, taken AS (
  DELETE FROM study.ready r WHERE r.id = ANY (ARRAY(SELECT id FROM picked)) RETURNING r.*
)
INSERT INTO study.running ({_COPY}, state, worker_id, token, attempt, claimed_at, must_end_at)
SELECT {_COPY}, 'running', $1, token + 1, attempt + 1, clock_timestamp(),
  clock_timestamp() + make_interval(secs => timeout_s + 15) FROM taken
RETURNING id, token""",
    "DELETE FROM study.running r WHERE r.id = ANY ($1) AND r.token = $2 AND r.worker_id IS NOT DISTINCT FROM $3 RETURNING r.id",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.layout", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 250])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    asyncio.run(_study(arguments.runs, arguments.batches, arguments.repeat))


async def _study(runs: int, batches: Sequence[int], repeat: int) -> None:
    async with study_server() as server:
        for repetition in range(repeat):
            for batch in batches:
                # in turn, so that neither has the warmer machine
                for layout in (ONE, TWO, BARE) if repetition % 2 == 0 else (BARE, TWO, ONE):
                    say(f"{layout.name}, batches of {batch}, {repetition + 1} of {repeat}")
                    await _drain(server, layout, runs, batch)


async def _drain(server: Server, layout: Layout, runs: int, batch: int) -> None:
    await server.monitor.execute("DROP SCHEMA IF EXISTS study CASCADE; CREATE SCHEMA study")
    await server.monitor.execute(layout.make)
    await server.monitor.execute(_FILL.format(table=layout.ready, count=runs))
    await server.monitor.execute(f"VACUUM ANALYZE study.{layout.ready}")
    await server.monitor.execute("CHECKPOINT")
    connection: Conn = await asyncpg.connect(server.url, server_settings=_SERVER_SETTINGS)
    worker = uuid4()
    claim, finish = await connection.prepare(layout.claim), await connection.prepare(layout.finish)
    meter = Meter(server, connection.get_server_pid())
    before, started, done = await meter.read(), time.perf_counter(), 0
    while claimed := await claim.fetch(worker, batch):
        ended = await finish.fetch([row["id"] for row in claimed], claimed[0]["token"], worker)
        done += len(ended)
    wall_s = time.perf_counter() - started
    await connection.execute("SELECT pg_stat_force_next_flush()")
    used = since(before, await meter.read())
    pages = await server.monitor.fetchval(
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
        "WHERE relnamespace = 'study'::regnamespace AND relkind = 'r'"
    )
    await connection.close()
    if done != runs:
        raise RuntimeError(f"{layout.name} ended {done:,} of {runs:,} runs")
    tell(
        layout=layout.name,
        batch=batch,
        runs=runs,
        runs_per_s=runs / wall_s,
        server_us_per_run=used.server_s / runs * 1e6,
        wal_bytes_per_run=used.wal_bytes / runs,
        dead_tuples_per_run=used.dead_tuples / runs,
        size_mib_after=pages / 2**20,
    )


if __name__ == "__main__":
    main()
