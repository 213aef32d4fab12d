"""Lists of jobs and executions: every filter and every pair of filters compared with a model, pages that lose and repeat
nothing, and plans that do not depend on the contents of the tables when they were made."""

from __future__ import annotations

import itertools
import json
import re
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.errors import NotFound
from sexton.operations import definition_change, one_time_jobs
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.versions import AtVersion
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.sql import statements
from sexton.store.uuid7 import RECURRING, floor, instant, is_recurring
from sexton.store.views import search
from sexton.store.views.search import ExecutionFilter, JobFilter
from sexton.store.work import jobs, retention, runs, schedules
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, bury, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from datetime import datetime

    from sexton.store.database import Postgres
    from tests.store.support import Conn

VALUES: dict[str, list[Any]] = {
    "status": ["pending", "running", "completed", "failed", "cancelled", "paused"],
    "name": ["invoice", "nobody"],
    "tag": ["red", "blue"],
    "tenant": ["default", "acme"],
    "queue": ["default", "mail"],
    "task": ["a", "b"],
    "submitted_from": [after(minutes=20)],
    "submitted_until": [after(minutes=40)],
}


class Meddled:
    """A connection on which a hook runs right after a given statement."""

    def __init__(self, connection: Conn, statement: str, then: Callable[[], Awaitable[None]]) -> None:
        self._connection, self._statement, self._then = connection, statement, then

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        rows = await self._connection.fetch(query, *args)
        if query == self._statement:
            await self._then()
        return rows

    async def execute(self, query: str) -> Any:
        return await self._connection.execute(query)


async def _all(connection: Conn, chosen: JobFilter, limit: int) -> list[UUID]:
    """Reads page after page, to the end."""
    ids: list[UUID] = []
    before = None
    while True:
        page = await search.find_jobs(connection, chosen, before=before, limit=limit)
        assert len(page.rows) <= limit
        ids += [job.id for job in page.rows]
        if page.next_before is None:
            return ids
        assert before is None or search._age(page.next_before) < search._age(before), "every page gets on"
        before = page.next_before


async def _some_of_everything(connection: Conn) -> list[jobs.JobView]:
    """Sixty jobs, a minute apart, in every state and with every attribute; newest first."""
    worker_id = await enlist(connection)
    rng = Random(3)
    ids = []
    for minute in range(60):
        moment = after(minutes=minute)
        fate = ("later", "runs", "done", "dies", "stops", "rests")[minute % 6]
        job_id = await submit(
            connection,
            task=rng.choice("ab"),
            queue=rng.choice(["default", "mail"]),
            tenant=rng.choice(["default", "acme"]),
            name=rng.choice([None, "invoice", "other"]),
            tags=rng.choice([None, ["red"], ["red", "blue", "red"]]),
            delay="1h" if fate in ("later", "rests") else None,
            now=moment,
        )
        ids.append(job_id)
        async with connection.transaction():
            if fate == "stops":
                await cancel_job(connection, TESTER, job_id, now=moment)
            elif fate == "rests":
                await one_time_jobs.pause(connection, TESTER, job_id, now=moment)
            elif fate != "later":
                (claimed,) = await claim(connection, worker_id, queues=["default", "mail"], tasks=["a", "b"], now=moment)
                if fate != "runs":
                    await finish(connection, claimed.lease, Succeeded() if fate == "done" else BROKEN, now=moment)
    return await jobs.show_many(connection, ids[::-1])


def _matches(job: jobs.JobView, chosen: JobFilter) -> bool:
    return (
        chosen.status in (None, job.status)
        and chosen.name in (None, job.name)
        and (chosen.tag is None or chosen.tag in (job.tags or ()))
        and chosen.tenant in (None, job.tenant)
        and chosen.queue in (None, job.queue)
        and chosen.task in (None, job.task)
        and (chosen.submitted_from is None or job.submitted_at >= chosen.submitted_from)
        and (chosen.submitted_until is None or job.submitted_at < chosen.submitted_until)
    )


def _filters() -> Iterator[dict[str, Any]]:
    yield {}
    for field, values in VALUES.items():
        yield from ({field: value} for value in values)
    for one, other in itertools.combinations(VALUES, 2):
        yield from ({one: left, other: right} for left, right in itertools.product(VALUES[one], VALUES[other]))
    yield {field: values[0] for field, values in VALUES.items()}


async def test_every_filter_and_every_pair_of_them_finds_the_same_as_the_model(connection: Conn) -> None:
    """A8: newest first, in pages of seven, none lost and none twice."""
    everything = await _some_of_everything(connection)
    assert {job.status for job in everything} == set(VALUES["status"])
    for fields in _filters():
        chosen = JobFilter(**fields)
        expected = [job.id for job in everything if _matches(job, chosen)]
        assert await _all(connection, chosen, 7) == expected, fields
    assert await _all(connection, JobFilter(), 60) == [job.id for job in everything]
    assert (await search.find_jobs(connection, JobFilter(), limit=60)).next_before is None


async def _schedule(connection: Conn, name: str, *, now: datetime, task: str = "a") -> UUID:
    document = {"task": task, "name": name, "schedule": {"cron": "0 9 * * *"}}
    (written,) = await schedules.submit(connection, [document], now=now)
    return written.id


async def test_schedules_are_listed_among_the_other_jobs_by_their_time(connection: Conn) -> None:
    """A13: newest first, though the ids of schedules are above all others; with any page size, none lost, none twice."""
    ids = []
    for minute in range(24):
        now, task = after(minutes=minute), "ab"[minute % 5 == 0]
        if minute % 3 == 0 or minute > 20:
            ids.append(await _schedule(connection, f"s{minute}", now=now, task=task))
        else:
            ids.append(await submit(connection, task=task, delay="1h", now=now))
    newest_first = [job.id for job in await jobs.show_many(connection, ids[::-1])]
    is_b = [job.task == "b" for job in await jobs.show_many(connection, newest_first)]
    for limit in (1, 2, 5, 24, 50):
        assert await _all(connection, JobFilter(), limit) == newest_first
        assert await _all(connection, JobFilter(task="b"), limit) == list(itertools.compress(newest_first, is_b))
        recurring = [job_id for job_id in newest_first if is_recurring(job_id)]
        assert await _all(connection, JobFilter(kind="recurring"), limit) == recurring
        assert await _all(connection, JobFilter(kind="once"), limit) == [one for one in newest_first if one not in recurring]
    last_release = await search.find_jobs(connection, JobFilter(), before=RECURRING, limit=50)
    assert [job.id for job in last_release.rows] == newest_first, "its cursor after the last schedule loses nothing"


async def test_ids_that_differ_only_by_the_bit_of_schedules_are_returned_once_each(
    connection: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a page that examines few rows of one kind does not get ahead of the other."""
    monkeypatch.setattr(search, "CHUNK", 3)
    monkeypatch.setattr(search, "EXAMINED_LIMIT", 6)
    for minute in range(8):
        job_id = await submit(connection, task="a", queue="mail" if minute % 4 == 0 else "default", now=after(minutes=minute))
        schedule_id = await _schedule(connection, f"s{minute}", now=after(minutes=minute))
        twin = UUID(int=job_id.int | RECURRING.int)
        await connection.execute("UPDATE sexton.jobs_recurring SET id = $2 WHERE id = $1", schedule_id, twin)
    rows = await connection.fetch("SELECT id FROM sexton.jobs")
    expected = sorted((row["id"] for row in rows), key=lambda one: (one.int & ~RECURRING.int, one.int), reverse=True)
    for limit in (1, 2, 3, 20):
        assert await _all(connection, JobFilter(), limit) == expected
        found = await _all(connection, JobFilter(task="a", queue="default"), limit)
        assert found == [row for row in expected if row in set(found)]
        assert len(found) == 14


async def test_a_page_examines_a_bounded_number_of_jobs_and_returns_where_to_continue(
    connection: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8: a rare combination is found over several short pages; without the bound one page would scan everything."""
    monkeypatch.setattr(search, "CHUNK", 10)
    monkeypatch.setattr(search, "EXAMINED_LIMIT", 20)
    oldest = await submit(connection, task="a", queue="mail")
    await submit_many(connection, [submission("a", {})] * 50)
    first = await search.find_jobs(connection, JobFilter(task="a", queue="mail"), limit=5)
    assert (first.rows, first.next_before is None) == ([], False)
    assert await _all(connection, JobFilter(task="a", queue="mail"), 5) == [oldest]
    assert await _all(connection, JobFilter(task="a", queue="nobody"), 5) == []


async def test_a_walk_beside_submissions_and_cancellations_loses_and_repeats_nothing(connection: Conn, rival: Conn) -> None:
    """A8: jobs that existed at the start are returned exactly once, whatever changes during the walk."""
    before_all = await submit_many(connection, [submission("a", {}, delay="1h")] * 300)
    for chosen in (JobFilter(), JobFilter(tenant="default"), JobFilter(task="a"), JobFilter(queue="default")):
        seen: list[UUID] = []
        before = None
        for step in itertools.count(1):
            page = await search.find_jobs(connection, chosen, before=before, limit=20)
            seen += [job.id for job in page.rows]
            before = page.next_before
            if before is None:
                break
            await submit_many(rival, [submission("a", {}, delay="1h")] * 5, now=after(seconds=step))
            async with rival.transaction():
                await cancel_job(
                    rival, TESTER, (await submit_many(rival, [submission("a", {})], now=after(seconds=step)))[0], now=NOW
                )
        assert len(seen) == len(set(seen))
        assert set(before_all) <= set(seen)


async def test_a_job_that_changes_between_two_pages_is_filtered_by_its_state_when_shown(connection: Conn, rival: Conn) -> None:
    """A8: no page shows a job with another status than the filter's."""
    job_id = await submit(connection, delay="1h")
    async with connection.transaction():
        await one_time_jobs.pause(connection, TESTER, job_id, now=NOW)

    async def cancel() -> None:
        async with rival.transaction():
            await cancel_job(rival, TESTER, job_id, now=NOW)

    meddled = Meddled(connection, statements("sexton.store.views.search")["paused"], cancel)
    assert (await search.find_jobs(meddled, JobFilter(status="paused"), limit=5)).rows == []


async def test_the_bounds_of_submission_are_exact_though_ids_are_not(connection: Conn) -> None:
    """A8: the ids of a batch lie microseconds after its instant; the first bound is included, the second is not."""
    await submit_many(connection, [submission("a", {})] * 3000, now=NOW)
    await submit_many(connection, [submission("a", {})] * 2, now=after(milliseconds=1))
    for tag in (None, "default"):
        chosen = JobFilter(submitted_from=NOW, submitted_until=after(milliseconds=1), queue=tag)
        assert len(await _all(connection, chosen, 1000)) == 3000
        chosen = JobFilter(submitted_from=after(milliseconds=1), submitted_until=after(milliseconds=2), queue=tag)
        assert len(await _all(connection, chosen, 1000)) == 2
    assert await _all(connection, JobFilter(submitted_until=NOW), 10) == []


async def test_an_id_contains_its_instant(connection: Conn) -> None:
    """D5: Python and SQL agree on the time in a UUIDv7."""
    for microseconds in (0, 1, 244, 245, 499, 500, 998, 999):
        moment = after(microseconds=microseconds)
        made = await connection.fetchval("SELECT sexton.uuid7((extract(epoch FROM $1::timestamptz) * 1000000)::bigint)", moment)
        assert instant(made) == moment
        assert await connection.fetchval("SELECT sexton.uuid7_floor($1)", moment) == floor(moment)


async def test_tags_and_versions_are_deleted_with_their_jobs(connection: Conn, database: Postgres) -> None:
    """D5: nothing invisible keeps growing."""
    old = await submit(connection, tags=["red"])
    async with connection.transaction():
        await one_time_jobs.edit(connection, TESTER, AtVersion(old), definition_change.Changes(name="x"), now=NOW)
        await cancel_job(connection, TESTER, old, now=NOW)
    new = await submit(connection, tags=["red"], now=after(days=14))
    for parent in ("executions", "endings", "jobs"):
        await retention.drop_partitions(database, parent, keep_s=0, now=after(days=13))
    assert await _all(connection, JobFilter(tag="red"), 5) == [new]
    for table in ("job_tags", "job_versions"):
        assert await connection.fetchval(f"SELECT count(*) FROM sexton.{table} WHERE job_id = $1", old) == 0


# The job as it is shown


async def test_the_newest_try_is_shown_with_its_job(connection: Conn) -> None:
    """A8: none before the first, the running one without an id, the last one between two and at the end."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, delay="5s")
    assert (await jobs.show(connection, job_id)).last_execution is None

    await runs.promote(connection, Scan(ALL, 10), now=after(seconds=5))
    (claimed,) = await claim(connection, worker_id, now=after(seconds=5))
    await runs.tell(connection, worker_id, [{"run_id": str(job_id), "token": 1, "progress": {"pct": 5}, "output": "so far"}])
    running = (await jobs.show(connection, job_id)).last_execution
    assert running is not None
    assert (running.id, running.status, running.attempt, running.worker_id) == (None, "running", 1, worker_id)
    assert (running.started_at, running.ended_at, running.output) == (after(seconds=5), None, "so far")

    await finish(connection, claimed.lease, FLAKY, now=after(seconds=6))
    shown = await jobs.show(connection, job_id)
    assert shown.last_execution is not None
    assert (shown.status, shown.attempt, shown.last_execution.status) == ("pending", 1, "failed")
    assert shown.last_execution.error is not None

    await runs.promote(connection, Scan(ALL, 10), now=after(hours=1))
    (claimed,) = await claim(connection, worker_id, now=after(hours=1))
    await finish(connection, claimed.lease, Succeeded(), now=after(hours=1))
    shown = await jobs.show(connection, job_id)
    assert shown.last_execution is not None
    assert (shown.status, shown.attempt, shown.last_execution.status) == ("completed", 2, "succeeded")
    assert shown.last_execution.id == shown.execution_id


async def test_a_job_that_waits_is_never_shown_with_a_later_try(connection: Conn, rival: Conn) -> None:
    """A8: its next try runs and ends between the two statements that show it."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, retry=Retry.immediate())
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, FLAKY)

    async def again() -> None:
        (claimed,) = await claim(rival, worker_id)
        await finish(rival, claimed.lease, Succeeded())

    (shown,) = await jobs.show_many(Meddled(connection, statements("sexton.store.work.jobs")["show"], again), [job_id])
    assert shown.last_execution is not None
    assert (shown.status, shown.last_execution.status) == ("pending", "failed")
    assert (await jobs.show(connection, job_id)).status == "completed"


async def test_a_replayed_job_still_shows_the_try_that_buried_it(connection: Conn) -> None:
    """A8, rule "a replay consumes its letter"."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    async with connection.transaction():
        shown = await one_time_jobs.retry(connection, TESTER, job_id, now=NOW)
    assert shown.last_execution is not None
    assert (shown.status, shown.attempt, shown.last_execution.status) == ("pending", 0, "failed")


async def test_many_are_shown_in_the_order_given_and_unknown_ones_left_out(connection: Conn) -> None:
    """A8: with everything that was submitted."""
    first = await submit(connection, timeout="7s", delivery="at_most_once", key="k", deadline="1h", trace="00-ab", tags=["x"])
    second = await submit(connection, timeout=0)
    shown = await jobs.show_many(connection, [second, uuid4(), first])
    assert [job.id for job in shown] == [second, first]
    assert (shown[0].timeout_s, shown[0].at_most_once, shown[0].policy_json) == (None, False, None)
    assert (shown[1].timeout_s, shown[1].at_most_once, shown[1].idempotency_key, shown[1].trace) == (7.0, True, "k", "00-ab")
    assert shown[1].policy_json is not None
    assert json.loads(shown[1].policy_json) == {"deadline_s": 3600.0}
    with pytest.raises(NotFound):
        await jobs.show(connection, uuid4())


# Executions.


async def test_executions_are_found_by_job_and_by_what_they_were(connection: Conn) -> None:
    """A9: newest first, in pages."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {}, tenant="acme" if n % 2 else "default") for n in range(6)])
    taken = sorted(await claim(connection, worker_id, limit=6), key=lambda one: one.lease.job_id)
    for seconds, claimed in enumerate(taken):
        outcome = BROKEN if seconds < 2 else Succeeded()
        await finish(connection, claimed.lease, outcome, now=after(seconds=seconds), started_s=seconds / 10, took_s=0.0)

    async def every(**fields: Any) -> list[UUID]:
        found: list[UUID] = []
        before = None
        while True:
            page = await search.find_executions(connection, ExecutionFilter(**fields), before=before, limit=2)
            found += [one.job_id for one in page.rows]
            before = page.next_before
            if before is None:
                return found

    assert await every() == ids[::-1]
    assert await every(job_id=ids[2]) == [ids[2]]
    assert await every(job_id=ids[2], status="failed") == []
    assert await every(status="failed") == [ids[1], ids[0]]
    assert await every(tenant="acme") == [ids[5], ids[3], ids[1]]
    assert await every(task="b") == []
    assert await every(queue="default", started_from=after(seconds=0.2), started_until=after(seconds=0.4)) == [ids[3], ids[2]]
    assert await every(job_id=uuid4()) == []

    (one,) = (await search.find_executions(connection, ExecutionFilter(job_id=ids[0]), limit=5)).rows
    assert one.id is not None
    assert await search.execution(connection, one.id) == one
    with pytest.raises(NotFound):
        await search.execution(connection, uuid4())


async def test_running_runs_are_found_as_executions_without_an_id(connection: Conn) -> None:
    """A9: paged by run."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {}, tenant="acme" if n == 1 else "default") for n in range(5)])
    await claim(connection, worker_id, limit=4)
    first = await search.find_executions(connection, ExecutionFilter(status="running"), limit=3)
    assert [one.job_id for one in first.rows] == [ids[3], ids[2], ids[1]]
    assert {(one.id, one.status) for one in first.rows} == {(None, "running")}
    rest = await search.find_executions(connection, ExecutionFilter(status="running"), before=first.next_before, limit=3)
    assert ([one.job_id for one in rest.rows], rest.next_before) == ([ids[0]], None)
    by_tenant = await search.find_executions(connection, ExecutionFilter(status="running", tenant="acme"), limit=3)
    assert [one.job_id for one in by_tenant.rows] == [ids[1]]
    by_job = await search.find_executions(connection, ExecutionFilter(status="running", job_id=ids[4]), limit=3)
    assert by_job.rows == []


# Plans.

MANY = 40_000
FILL = f"""
WITH n AS MATERIALIZED (
  SELECT g, sexton.uuid7((extract(epoch FROM $1::timestamptz + g * interval '20 s') * 1000000)::bigint) AS id
  FROM generate_series(1, {MANY}) g
), defined AS (
  INSERT INTO sexton.jobs (id, task, tenant, queue, lane, payload, at_most_once, submitted_at)
  SELECT id, 'a', 'default', 'default', 2, '{{}}', false, $1 + g * interval '20 s' FROM n
), live AS (
  INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task)
  SELECT id, id, $1, $1, 2, 0, false, 'waiting', 'now', 'default', 'default', 'a' FROM n WHERE g % 2 = 0
), history AS (
  INSERT INTO sexton.executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane, origin,
                                 status, queue, tenant, task)
  SELECT id, id, id, $1, $1, $1, 1, 1, 0, 1, 2, 'now', 'succeeded', 'default', 'default', 'a' FROM n WHERE g % 2 = 1
)
INSERT INTO sexton.endings (job_id, execution_id, ended_at, status) SELECT id, id, $1, 'completed' FROM n WHERE g % 2 = 1
"""


@pytest.fixture
async def as_service(database_url: str) -> AsyncIterator[Conn]:
    """A connection with the settings of `Postgres`, statements kept prepared."""
    connection = await asyncpg.connect(database_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "120s"})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.execute("SELECT sexton.make_partitions($1, $2)", NOW, after(days=14))
    yield connection
    await connection.close()


async def _rows_read(connection: Conn) -> int:
    """Rows and index entries read so far from the tables that grow."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    read: int = await connection.fetchval(
        """SELECT sum(t.seq_tup_read + coalesce(t.idx_tup_fetch, 0)
             + coalesce((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0))::bigint
           FROM pg_stat_user_tables t
           WHERE t.schemaname = 'sexton' AND t.relname ~ '^(runs|job|executions|endings|dead_letters|live_output)'"""
    )
    return read


@pytest.mark.made_up_rows
async def test_a_search_reads_what_it_shows_whatever_the_tables_contained_when_it_was_planned(as_service: Conn) -> None:
    """A8, B8: planned on empty tables, and again when every job had the same tenant, queue and task, so that a plan by the
    primary key would have looked as good; then a value without rows, and a page that starts two weeks back."""
    single: list[dict[str, Any]] = [
        *({"status": status} for status in VALUES["status"]),
        *({field: "nobody"} for field in ("name", "tag", "tenant", "queue", "task")),
        *({field: "default"} for field in ("tenant", "queue")),
        {"task": "a"},
        {"submitted_from": after(days=3), "submitted_until": after(days=3, minutes=5)},
        {},
    ]

    async def look(before: UUID | None) -> None:
        for fields in single:
            await search.find_jobs(as_service, JobFilter(**fields), before=before, limit=20)
        for fields in ({}, {"job_id": uuid4()}, {"status": "running"}):
            await search.find_executions(as_service, ExecutionFilter(**fields), before=before, limit=20)

    await look(None)  # planned on empty tables
    await as_service.execute(FILL, NOW, timeout=120)
    for prepared in ("on empty tables", "with statistics"):
        if prepared == "with statistics":
            for table in ("jobs", "runs", "endings", "executions"):
                await as_service.execute(f"ANALYZE sexton.{table}")
            await as_service.execute("DISCARD PLANS")
        for before in (None, floor(after(days=5))):
            for fields in single:
                start = await _rows_read(as_service)
                found = await search.find_jobs(as_service, JobFilter(**fields), before=before, limit=20)
                read = await _rows_read(as_service) - start
                # Pending and completed ones are filtered from a chunk of a thousand.
                limit = 8_000 if fields.get("status") in ("pending", "completed") or "submitted_from" in fields else 400
                assert read < limit, f"{fields} planned {prepared}: read {read} for {len(found.rows)} rows"
            for fields in ({}, {"job_id": uuid4()}, {"status": "running"}):
                start = await _rows_read(as_service)
                await search.find_executions(as_service, ExecutionFilter(**fields), before=before, limit=20)
                read = await _rows_read(as_service) - start
                assert read < 200, f"executions {fields} planned {prepared}: read {read}"


@pytest.mark.made_up_rows
@pytest.mark.parametrize("kind", ["recurring", "once"])
async def test_the_newest_of_each_kind_come_from_the_primary_key(as_service: Conn, kind: str) -> None:
    """A8, B8: planned on empty tables; a page of both kinds is two walks down an index, without a sort."""
    shift = RECURRING.int if kind == "recurring" else 0
    lowest, highest = UUID(int=shift), UUID(int=shift + RECURRING.int - 1)
    await as_service.execute(f"PREPARE newest_jobs AS {statements('sexton.store.views.search')['newest']}")
    plan = await as_service.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE newest_jobs ('{lowest}', '{highest}', 20)")
    nodes = set(re.findall(r'"Node Type": "([^"]+)"', plan))
    assert nodes <= {"Limit", "Append", "Index Only Scan", "Index Scan", "Result"}, plan


@pytest.mark.made_up_rows
async def test_showing_a_job_between_two_tries_reads_its_own_history_only(as_service: Conn) -> None:
    """A8, B8: planned on empty tables; the newest try is found from the job, not by a scan of all of them."""
    worker_id = await enlist(as_service)
    job_id = await submit(as_service)
    (claimed,) = await claim(as_service, worker_id)
    await finish(as_service, claimed.lease, FLAKY)
    for filled in (False, True):
        if filled:
            await as_service.execute(FILL, NOW, timeout=120)
        start = await _rows_read(as_service)
        shown = await jobs.show(as_service, job_id)
        assert shown.last_execution is not None
        assert (shown.status, shown.last_execution.job_id, shown.last_execution.status) == ("pending", job_id, "failed")
        assert await _rows_read(as_service) - start < 20
