"""The plans of the hot statements, pinned: on tables that were empty when they were planned, and with the same cached plans
beside 20,000 waiting and 20,000 ready runs (100,000 in the nightly run). Reads inside functions come from the server's
counters."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain import run
from sexton.domain.job import Submission, Unique, submission
from sexton.domain.outcome import Snoozed, Succeeded
from sexton.operations import replay
from sexton.operations.cancel import cancel as cancel_job
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import workers
from sexton.store.sharing import parked_runs
from sexton.store.sql import statements
from sexton.store.work import dead_letters, jobs, retention, runs
from tests.callers import TESTER
from tests.sizes import size
from tests.store.support import BROKEN, NOW, after, claim, enlist, submit_many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sexton.domain.run import Claimed
    from tests.store.support import Conn

pytestmark = [pytest.mark.made_up_rows, pytest.mark.timeout(180)]

MANY = size("BACKLOG", 20_000)
BACKLOG = f"""
INSERT INTO sexton.runs
  (id, job_id, fire_at, due_at, start_by, lane, partition, at_most_once, state, origin, queue, tenant, task)
SELECT id, id, due_at, due_at, CASE WHEN n % 10 = 0 THEN due_at + interval '1 day' END, 1 + n % 3, n % 64, false, $1, 'now',
  CASE WHEN n % 3 = 0 THEN 'mail' ELSE 'default' END, 't' || n % 100, 'a'
FROM (SELECT n, gen_random_uuid() AS id, $2::timestamptz + n * interval '1 ms' AS due_at FROM generate_series(1, {MANY}) n) s
"""
WORKER = UUID(int=1)

# name -> arguments and the index that it must use
HOT: dict[tuple[str, str], tuple[list[Any], str]] = {
    ("runs", "promote"): ([NOW, list(range(64)), 1000, 0.0, None], "runs_due"),
    ("runs", "expired"): ([NOW, 100], "runs_expiring"),
    ("runs", "abandoned"): ([NOW, 6.0, 100], "runs_leased"),
    ("runs", "overrunning"): ([NOW, 100], "runs_leased"),
    ("runs", "batch_facts"): ([f"{{{UUID(int=2)},{UUID(int=3)}}}"], "runs_pkey"),
    ("runs", "of_job"): ([UUID(int=2)], "run_fires_once"),
    ("workers", "beat"): (
        [NOW, WORKER, 0, False, 0, ["default", "mail"], 5.0, None, 0, ["secret a"], True, "127.0.0.1", 4711, 0],
        "runs_leased",
    ),
    ("workers", "survey"): ([NOW, 4.5, True, True, None, None, None], "runs_leased"),
    ("jobs", "show"): ([f"{{{UUID(int=2)}}}", UUID(int=2), UUID(int=2)], "run_fires_once"),
    ("edits", "lock_run"): ([UUID(int=2)], "run_fires_once"),
}


# Every promotion also looks, by partial indexes, at undecided runs of recurring jobs and at runs that wait for a limit; a
# heartbeat and a sweeper look at everything that might be due.
_PARTIAL = ("runs_due_beside", "runs_blocked", "runs_parked", "runs_parked_by_task", "runs_in_order")
MODULES = {
    "runs": "sexton.store.work.runs",
    "workers": "sexton.store.fleet.workers",
    "jobs": "sexton.store.work.jobs",
    "edits": "sexton.store.work.edits",
}
ALSO = {
    ("runs", "promote"): _PARTIAL,
    ("workers", "beat"): ("runs_ready", "runs_due", *_PARTIAL),
    ("workers", "survey"): ("runs_expiring", *_PARTIAL),
}


@pytest.fixture
async def as_service(database_url: str) -> AsyncIterator[Conn]:
    """A connection with the settings of `Postgres`, statements kept prepared."""
    connection = await asyncpg.connect(database_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "120s"})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    yield connection
    await connection.close()


async def _analyze(connection: Conn) -> None:
    for table in ("runs", "workers"):
        await connection.execute(f"VACUUM ANALYZE sexton.{table}")


async def _add_backlog(connection: Conn) -> None:
    await connection.execute(BACKLOG, "waiting", after(days=1), timeout=120)
    await connection.execute(BACKLOG, "ready", after(seconds=-200), timeout=120)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value).lower()
        case list():
            return "ARRAY[" + ", ".join(_literal(one) for one in value) + "]"
        case _:
            return f"'{value}'"


async def _prepare(connection: Conn, noun: str, name: str) -> None:
    await connection.execute(f"PREPARE hot_{noun}_{name} AS {statements(MODULES[noun])[name]}")


async def _plan(connection: Conn, noun: str, name: str, options: str = "") -> dict[str, Any]:
    arguments = ", ".join(map(_literal, HOT[noun, name][0]))
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON{options}) EXECUTE hot_{noun}_{name} ({arguments})")
    plan: dict[str, Any] = json.loads(text)[0]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _assert_good(plan: dict[str, Any], index: str, also: tuple[str, ...]) -> None:
    nodes = list(_nodes(plan["Plan"]))
    on_runs = [node for node in nodes if node.get("Relation Name") == "runs"]
    assert [node for node in on_runs if node["Node Type"] == "Seq Scan"] == []
    used = {str(node["Index Name"]) for node in nodes if "Index Name" in node}
    assert index in used
    # The primary key may be used too, to fetch the rows that were picked.
    run_indexes = {name for name in used if name.startswith("run")}
    assert run_indexes <= {index, "runs_pkey", *also}
    for node in on_runs:
        if node.get("Index Name") in ("runs_pkey", "run_fires_once", "runs_ready", "runs_due"):
            assert "Index Cond" in node, "a walk through a whole index is a sequential scan in disguise"


@pytest.mark.parametrize("backlog", [False, True], ids=["empty", "backlog"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["unknown", "analyzed"])
async def test_hot_statements_use_their_index(as_service: Conn, backlog: bool, analyzed: bool) -> None:
    """B8, B11: planned on empty tables, before and after the backlog came, with and without fresh statistics."""
    await _analyze(as_service)
    for noun, name in HOT:
        await _prepare(as_service, noun, name)
        await _plan(as_service, noun, name)
    if backlog:
        await _add_backlog(as_service)
    if analyzed:
        await _analyze(as_service)
        await as_service.execute("DISCARD PLANS")
    for (noun, name), (_, index) in HOT.items():
        plan = await _plan(as_service, noun, name)
        try:
            _assert_good(plan, index, ALSO.get((noun, name), ()))
        except AssertionError:
            pytest.fail(f"{noun}.{name} should go by {index}:\n{json.dumps(plan, indent=1)}")


@pytest.mark.parametrize("wanted", [1, 100])
async def test_a_claim_reads_only_what_it_takes(as_service: Conn, wanted: int) -> None:
    """B8, B11, C9: planned on empty tables; beside thousands of waiting and ready runs of 100 tenants in three lanes."""
    await _analyze(as_service)
    worker_id = await enlist(as_service)
    assert await claim(as_service, worker_id) == []
    await _add_backlog(as_service)
    before = await _rows_read(as_service)
    assert len(await claim(as_service, worker_id, limit=wanted, queues=("default", "mail"))) == wanted
    await _assert_reads_few(as_service, before, 60 + wanted * 12)


async def test_a_claim_does_not_join_two_lists(as_service: Conn) -> None:
    """B8: if pages seem expensive, as in a bloated table, plans whose costs differ by a hundredth count as equal. A nested loop
    over all picked runs took ten times as long as the rest of the claim."""
    worker_id = await enlist(as_service)
    took_s: dict[int, list[float]] = {4: [], 12: []}
    for page_cost in (*took_s, *took_s, *took_s):
        await submit_many(as_service, [submission("a", {})] * 1000)
        await as_service.execute(f"SET random_page_cost = {page_cost}")
        await as_service.execute("DISCARD PLANS")
        assert await claim(as_service, worker_id, limit=1) != []  # planned now
        began_s = time.perf_counter()
        assert len(await claim(as_service, worker_id, limit=999)) == 999
        took_s[page_cost].append(time.perf_counter() - began_s)
    assert min(took_s[12]) < 4 * min(took_s[4])


async def test_a_claim_reads_only_the_slots_of_its_own_keys(as_service: Conn) -> None:
    """C10: planned while there were few slots, a claim read those of all keys to find slots beyond a lowered limit."""
    worker_id = await enlist(as_service)
    await submit_many(as_service, [submission("a", {}, limit={"key": f"k{n}", "running": 5}) for n in range(30)])
    await parked_runs.release(as_service, now=NOW)
    assert len(await claim(as_service, worker_id, limit=10)) == 10
    await as_service.execute("VACUUM ANALYZE sexton.slots")
    assert len(await claim(as_service, worker_id, limit=10)) == 10  # planned now
    await as_service.execute("INSERT INTO sexton.slots SELECT 'other ' || n, 1 FROM generate_series(1, 2000) n")
    before = await _rows_read(as_service)
    assert len(await claim(as_service, worker_id, limit=10)) == 10
    await _assert_reads_few(as_service, before, 60 + 10 * 12)


async def test_the_cost_of_an_idle_promotion_does_not_grow_with_waiting_runs(as_service: Conn) -> None:
    """B10, B12: the B-tree is the timer; finding the earliest run is one probe."""
    await _analyze(as_service)
    await _prepare(as_service, "runs", "promote")
    await _add_backlog(as_service)
    plan = await _plan(as_service, "runs", "promote", ", ANALYZE, BUFFERS")
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 50


async def _rows_read(connection: Conn) -> dict[str, int]:
    """Rows and index entries read so far, by table, of the tables that grow."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    rows = await connection.fetch(
        """SELECT t.relname, t.seq_tup_read + coalesce(t.idx_tup_fetch, 0)
             + coalesce((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0)::bigint AS read
           FROM pg_stat_user_tables t WHERE t.schemaname = 'sexton' AND t.relname ~
             '^(runs|jobs|executions|endings|dead_letters|idempotency_keys|unique_keys|live_output|limits|slots)'"""
    )
    return {row["relname"]: row["read"] for row in rows}


async def _assert_reads_few(connection: Conn, before: dict[str, int], limit: int) -> None:
    now = await _rows_read(connection)
    assert {table: read - before[table] for table, read in now.items() if read - before[table] > limit} == {}


async def test_finish_reads_only_what_it_ends(as_service: Conn) -> None:
    """B8, B11: the plans inside `finish_runs` were made on empty tables and are kept."""
    await _analyze(as_service)
    unknown = run.Report(UUID(int=3), 1, "again", "snoozed", UUID(int=4), delay_s=0.0, spends="nothing")
    await runs.finish(as_service, [unknown], now=NOW)
    worker_id = await enlist(as_service)
    ids = await submit_many(
        as_service, [submission("a", {}, priority="critical", key=f"k{n}") for n in range(40)], now=after(hours=-1)
    )
    claimed = await claim(as_service, worker_id, limit=40)
    assert [one.lease.job_id for one in claimed] == ids
    outcomes: list[Any] = [Succeeded(), BROKEN, Snoozed(60), Snoozed(0)] * 10
    reports = [
        run.report(one.lease, outcome, Random(1), key="k", output="x") for one, outcome in zip(claimed, outcomes, strict=True)
    ]
    await _add_backlog(as_service)
    before = await _rows_read(as_service)
    assert len(await runs.finish(as_service, reports, now=NOW)) == 40
    await _assert_reads_few(as_service, before, 40 * 12)


@pytest.mark.parametrize("count", [1, 40])
async def test_plain_reports_read_only_what_they_end(as_service: Conn, count: int) -> None:
    """B8, B11: the plans inside `finish_batch` were made on empty tables and are kept."""
    await _analyze(as_service)
    unknown = run.Report(UUID(int=3), 1, "end", "succeeded", UUID(int=4), "completed", 0.0, 0.0)
    assert await runs.finish(as_service, [unknown], now=NOW) == []
    worker_id = await enlist(as_service)
    await submit_many(as_service, [submission("a", {}, priority="critical")] * count, now=after(hours=-1))
    reports = [_success(one) for one in await claim(as_service, worker_id, limit=count)]
    await _add_backlog(as_service)
    before = await _rows_read(as_service)
    assert len(await runs.finish(as_service, [*reports, unknown], now=NOW)) == count
    await _assert_reads_few(as_service, before, 20 + count * 12)


async def test_plain_reports_compare_no_list_with_a_list(as_service: Conn) -> None:
    """B8: as in a claim; without statistics, and with those of a table where no worker holds a run."""
    worker_id = await enlist(as_service)

    async def took_s(page_cost: int) -> float:
        await submit_many(as_service, [submission("a", {})] * 2000)
        reports = [_success(one) for one in await claim(as_service, worker_id, limit=2000)]
        await as_service.execute(f"SET random_page_cost = {page_cost}")
        await as_service.execute("DISCARD PLANS")
        assert len(await runs.finish(as_service, reports[:1], now=NOW)) == 1  # planned now
        began_s = time.perf_counter()
        assert len(await runs.finish(as_service, reports[1:], now=NOW)) == 1999
        return time.perf_counter() - began_s

    for is_analyzed in (False, True):
        if is_analyzed:
            await submit_many(as_service, [submission("a", {}, delay="1h")] * 10)
            await _analyze(as_service)
        few_s = min([await took_s(4) for _ in range(2)])
        assert min([await took_s(200) for _ in range(2)]) < 5 * few_s


def _success(claimed: Claimed) -> run.Report:
    return run.report(claimed.lease, Succeeded(), Random(1), started_s=0.0, took_s=0.0)


async def test_submission_reads_only_what_it_finds(as_service: Conn) -> None:
    """B8, B11: neither for keys nor for unique jobs, replaced ones included."""
    await _analyze(as_service)

    def batch(series: str) -> list[Submission]:
        return [
            submission("a", {"n": n}, key=f"{series}{n}", unique=Unique.of(on_conflict="replace" if n % 2 else "keep"))
            for n in range(20)
        ]

    await jobs.submit(as_service, batch("first"), now=NOW)
    await jobs.submit(as_service, batch("second"), now=NOW)
    await _add_backlog(as_service)
    before = await _rows_read(as_service)
    answers = await jobs.submit(as_service, batch("third"), now=NOW)
    assert [answer.created for answer in answers] == [False, True] * 10
    await _assert_reads_few(as_service, before, 20 * 12)


async def test_cancel_replay_and_sweep_read_only_what_they_find(as_service: Conn) -> None:
    """B8, B11: the occasional operations of a service, planned on empty tables and run beside the backlog."""
    await _analyze(as_service)
    worker_id = await enlist(as_service)

    async def everything(moment: datetime) -> None:
        ids = await submit_many(as_service, [submission("a", {}, priority="critical", start_within="1s")] * 6, now=moment)
        async with as_service.transaction():
            await cancel_job(as_service, TESTER, ids[0], now=moment)
        claimed = await claim(as_service, worker_id, limit=4, now=moment)
        assert {one.lease.job_id for one in claimed} <= set(ids)
        await runs.finish(as_service, [run.report(one.lease, BROKEN, Random(1)) for one in claimed[:2]], now=moment)
        letters = await dead_letters.find(as_service, dead_letters.Filter())
        await replay.replay(as_service, TESTER, [letter.id for letter in letters], now=moment)
        beaten = await workers.beat(
            as_service, worker_id, running_count=0, draining=False, refused_count=0, queues=["default"], now=moment
        )
        assert beaten is not None
        assert len(beaten.held) == 2
        assert (await workers.survey(as_service, lease_s=6, now=moment)).running
        await runs.abandoned(as_service, lease_s=6, limit=100, now=moment)
        assert len(await runs.overrunning(as_service, limit=100, now=moment + timedelta(hours=1))) == 2
        await runs.expired(as_service, limit=100, now=moment)
        await runs.recorded_outcome(as_service, claimed[0])
        await workers.leave(as_service, worker_id)
        await workers.forget_workers(as_service, now=moment)
        await jobs.live_output(as_service, ids[1])
        await runs.forget_output(as_service, now=moment)
        await retention.expire_keys(as_service, now=moment)
        await runs.finish(as_service, [run.report(one.lease, Succeeded(), Random(1)) for one in claimed[2:]], now=moment)

    await everything(after(hours=-2))
    await as_service.execute("DELETE FROM sexton.runs; ")
    await _add_backlog(as_service)
    before = await _rows_read(as_service)
    await everything(after(hours=-1))
    await _assert_reads_few(as_service, before, 600)
