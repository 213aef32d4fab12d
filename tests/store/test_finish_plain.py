"""Plain reports: most runs end through the short statement of `finish_batch`. It keeps all promises of `finish_runs`."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from sexton.domain import run
from sexton.domain.job import submission
from sexton.domain.outcome import Cancelled, ErrorInfo, Released, Snoozed, Succeeded
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.store.work import jobs, runs
from tests.callers import TESTER

from .support import (
    BROKEN,
    FLAKY,
    NOW,
    after,
    blocked_task,
    claim,
    enlist,
    finish,
    plain,
    run_row,
    snapshot,
    status,
    submit_many,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.domain.run import Claimed, Lease, Report
    from sexton.store.database import Connection

    from .support import Conn

RNG = Random(1)
RESULT = msgspec.Raw(b'{"sent": true}')
STRIPE = {"key": "stripe", "running": 1}


def _report(lease: Lease, result: msgspec.Raw | None = None) -> Report:
    one = run.report(lease, Succeeded(), RNG, started_s=0.25, took_s=1.5, result=result)
    assert one.is_plain
    return one


async def _ended(connection: Connection, *reports: Report) -> set[UUID]:
    return {row.run_id for row in await runs.finish(connection, reports, now=after(seconds=3))}


async def _by_documents(connection: Connection, reports: Sequence[Report]) -> int:
    """The other way that a report goes."""
    query, arguments = runs.finish_statement(reports, now=after(seconds=3))
    return len(await connection.fetch(query, *arguments))


async def _taken(connection: Connection, count: int = 1, **options: Any) -> list[Claimed]:
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {}, **options) for _ in range(count)])
    claimed = await claim(connection, worker_id, limit=count)
    assert len(claimed) == count
    return claimed


@pytest.fixture(autouse=True)
def _any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise small batches with other reports are written as documents."""
    monkeypatch.setattr(runs, "FEW", 0)


@pytest.mark.parametrize(
    "other",
    [
        {"key": "k"},
        {"reason": "as told"},
        {"output": "said"},
        {"progress": msgspec.Raw(b"1")},
        {"error": ErrorInfo("ValueError", "but")},
        {"started_s": None},
        {"took_s": None},
        {"worker_id": None},
        {"status": "failed"},
        {"ending": "cancelled"},
        {"is_limited": True},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_only_what_the_short_statement_writes_is_plain(connection: Conn, other: dict[str, Any]) -> None:
    """A9: nothing that a report says is dropped on the way."""
    (claimed,) = await _taken(connection)
    assert not msgspec.structs.replace(_report(claimed.lease), **other).is_plain


@pytest.mark.parametrize(("plain_count", "has_other", "by_array"), [(1, False, 1), (24, True, 0), (25, True, 25)])
async def test_a_few_plain_reports_go_together_with_the_others(
    connection: Conn, monkeypatch: pytest.MonkeyPatch, plain_count: int, has_other: bool, by_array: int
) -> None:
    """Two statements for one batch cost more than they save."""
    monkeypatch.undo()
    claimed = await _taken(connection, plain_count + has_other)
    reports = [_report(one.lease) for one in claimed[:plain_count]]
    reports += [run.report(one.lease, FLAKY, RNG) for one in claimed[plain_count:]]
    plain_ones, others = runs._divided(reports)
    assert (len(plain_ones), len(others)) == (by_array, len(reports) - by_array)
    assert len(await _ended(connection, *reports)) == len(reports)


@pytest.mark.parametrize("result", [None, RESULT, msgspec.Raw(b"null")], ids=["nothing", "a result", "null"])
async def test_both_ways_write_the_same_rows(connection: Conn, result: msgspec.Raw | None) -> None:
    """A9, rule "one path in, one path out"."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {}, priority="high")] * 2)
    await connection.execute("UPDATE sexton.runs SET lane = lane - 1, aged = 1")  # as a queue that ages does
    one, other = await claim(connection, worker_id)
    assert await _ended(connection, _report(one.lease, result)) == {one.run_id}
    assert await _by_documents(connection, [_report(other.lease, result)]) == 1
    for table in ("executions", "endings"):
        rows = await connection.fetch(f"SELECT to_jsonb(t) AS row FROM sexton.{table} t")
        own = {"id", "job_id", "run_id", "execution_id"}
        first, second = [{k: v for k, v in plain(row["row"]).items() if k not in own} for row in rows]
        assert first == second, table
    for claimed in (one, other):
        (execution,) = await jobs.executions(connection, claimed.lease.job_id)
        assert (execution.started_at, execution.ended_at) == (after(seconds=0.25), after(seconds=1.75))
        assert await status(connection, claimed.lease.job_id) == "completed"
        assert await run_row(connection, claimed.lease.job_id) is None


async def test_each_result_goes_to_its_own_run(connection: Conn) -> None:
    """A9: in a batch where some have one."""
    claimed = await _taken(connection, 40)
    results = {one.run_id: msgspec.Raw(str(n).encode()) for n, one in enumerate(claimed) if n % 3}
    reports = [_report(one.lease, results.get(one.run_id)) for one in claimed]
    RNG.shuffle(reports)
    assert len(await _ended(connection, *reports)) == 40
    rows = await connection.fetch("SELECT run_id, result FROM sexton.executions")
    assert {row["run_id"]: row["result"] for row in rows if row["result"] is not None} == {
        run_id: bytes(result).decode() for run_id, result in results.items()
    }


@pytest.mark.parametrize("bad", [b"1, 2", b"1], [2", b"{broken", b'"\\u0000"', b""], ids=repr)
async def test_a_bad_result_reaches_no_other_run(connection: Conn, bad: bytes) -> None:
    """Rule "bisect bad batches": it fails the whole batch, and the batch without it goes through."""
    claimed = await _taken(connection, 3)
    reports = [_report(one.lease, RESULT) for one in claimed]
    before = await snapshot(connection)
    spoilt = msgspec.structs.replace(reports[1], result=msgspec.Raw(bad))
    for batch in ([reports[0], spoilt, reports[2]], [spoilt]):
        with pytest.raises((asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)):
            await runs.finish(connection, batch, now=NOW)
        assert await snapshot(connection) == before
    assert len(await _ended(connection, reports[0], reports[2])) == 2


@pytest.mark.parametrize("wrong", [{"token": 0}, {"token": 2}, {"worker_id": UUID(int=7)}, {"run_id": UUID(int=7)}], ids=str)
async def test_a_plain_report_under_another_fence_changes_nothing(connection: Conn, wrong: dict[str, Any]) -> None:
    """C4: worker and token both."""
    (claimed,) = await _taken(connection)
    before = await snapshot(connection)
    assert await _ended(connection, _report(msgspec.structs.replace(claimed.lease, **wrong))) == set()
    assert await snapshot(connection) == before


async def test_a_late_plain_report_cannot_close_the_next_attempt(connection: Conn) -> None:
    """C4: neither that of the same worker nor that of another; the others of its batch end."""
    worker_id, heir = await enlist(connection), await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 3)
    first = await claim(connection, worker_id)
    for one in first[:2]:
        await finish(connection, one.lease, Released("drain"))
    (again,) = await claim(connection, worker_id, limit=1)
    (taken_over,) = await claim(connection, heir, limit=1)
    before = {row["run_id"] for row in await connection.fetch("SELECT run_id FROM sexton.executions")}
    assert await _ended(connection, *[_report(one.lease) for one in first]) == {first[2].run_id}
    assert before == {one.run_id for one in first[:2]}
    assert await _ended(connection, *[_report(one.lease) for one in (again, taken_over)]) == before


async def test_a_run_twice_in_one_batch_ends_once(connection: Conn) -> None:
    """B1, A9: twice plain, and plain beside every other outcome, which then counts for nothing."""
    for other in (Succeeded(), Succeeded(reason="told"), BROKEN, FLAKY, Snoozed(5), Released("drain"), Cancelled()):
        (claimed,) = await _taken(connection)
        answers = await runs.finish(
            connection, [run.report(claimed.lease, other, RNG), _report(claimed.lease), _report(claimed.lease)], now=NOW
        )
        assert len(answers) == 1
        assert len(await jobs.executions(connection, claimed.lease.job_id)) == 1
        assert await status(connection, claimed.lease.job_id) == "completed"


async def test_plain_reports_and_others_are_written_together_or_not_at_all(connection: Conn) -> None:
    """Rule "one path in, one path out": plain ones of two workers, a retry, and one whose data is bad."""
    (one,), (two, again) = await _taken(connection), await _taken(connection, 2)
    reports = [_report(one.lease), run.report(again.lease, FLAKY, RNG), _report(two.lease)]
    before = await snapshot(connection)
    with pytest.raises(asyncpg.PostgresError):
        await runs.finish(connection, [*reports, msgspec.structs.replace(reports[1], output="\x00")], now=NOW)
    assert await snapshot(connection) == before
    finished = await runs.finish(connection, reports, now=NOW)
    assert {row.run_id: row.state for row in finished} == {one.run_id: None, two.run_id: None, again.run_id: "waiting"}
    rows = await connection.fetch("SELECT run_id, id FROM sexton.executions")
    assert {row["run_id"]: row["id"] for row in rows} == {row.run_id: row.execution_id for row in finished}


async def test_a_run_that_holds_a_slot_gives_it_back_whatever_its_report_knows(connection: Conn) -> None:
    """C10, rule "slots, not counts": the slot of its key and that of its tenant, and the next in line is released."""
    await connection.execute("INSERT INTO sexton.tenants (name, running_max, updated_at) VALUES ('acme', 1, now())")
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {}, limit=STRIPE), submission("a", {}, limit=STRIPE)])
    await submit_many(connection, [submission("a", {}, tenant="acme")] * 2)
    await connection.fetch("SELECT sexton.release_parked(ARRAY['stripe'], $1)", NOW)
    first = await claim(connection, worker_id)
    assert {(one.tenant, one.is_limited) for one in first} == {("default", True), ("acme", True)}
    assert await _ended(connection, *[_report(one.lease, RESULT) for one in first]) == {one.run_id for one in first}
    assert await connection.fetchval("SELECT count(*) FROM sexton.slots WHERE run_id IS NOT NULL") == 0
    assert await connection.fetchval("SELECT count(*) FROM sexton.executions WHERE result = $1", bytes(RESULT).decode()) == 2
    assert {one.tenant for one in await claim(connection, worker_id)} == {"default", "acme"}


async def test_a_run_that_holds_a_slot_leaves_the_other_reports_alone(connection: Conn) -> None:
    """Rule "one path in, one path out": as does one whose lease was lost."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {}, limit=STRIPE), submission("a", {}), submission("a", {})])
    await connection.fetch("SELECT sexton.release_parked(ARRAY['stripe'], $1)", NOW)
    limited, other, lost = sorted(await claim(connection, worker_id), key=lambda one: not one.is_limited)
    stale = _report(msgspec.structs.replace(lost.lease, token=7))
    assert await _ended(connection, _report(limited.lease), run.report(other.lease, FLAKY, RNG), stale) == {
        limited.run_id,
        other.run_id,
    }


async def test_what_succeeded_beside_a_cancel_has_succeeded(connection: Conn, rival: Conn) -> None:
    """A5: before it was reported, and while the report waits for the row."""
    before, meanwhile = await _taken(connection, 2)
    async with connection.transaction():
        await cancel_job(connection, TESTER, before.lease.job_id, now=NOW)
    assert await _ended(connection, _report(before.lease)) == {before.run_id}
    async with connection.transaction():
        await cancel_job(connection, TESTER, meanwhile.lease.job_id, now=NOW)
        ending = await blocked_task(connection, rival, _ended(rival, _report(meanwhile.lease)))
    assert await ending == {meanwhile.run_id}
    assert [await status(connection, one.lease.job_id) for one in (before, meanwhile)] == ["completed"] * 2


async def test_a_fire_of_a_recurring_job_ends_without_ending_the_job(connection: Conn) -> None:
    """A9"""
    (written,) = await recurring_jobs.submit(connection, TESTER, [{"task": "a", "schedule": {"every": 60}}], now=NOW)
    due = await connection.fetchval("SELECT id FROM sexton.runs ORDER BY due_at LIMIT 1")
    await connection.execute("UPDATE sexton.runs SET state = 'ready', due_at = $1 WHERE id = $2", NOW, due)
    (claimed,) = await claim(connection, await enlist(connection))
    assert await _ended(connection, _report(claimed.lease)) == {claimed.run_id}
    assert await connection.fetchval("SELECT count(*) FROM sexton.endings WHERE job_id = $1", written.id) == 0
    assert await connection.fetchval("SELECT status FROM sexton.executions WHERE run_id = $1", claimed.run_id) == "succeeded"


async def test_finishers_of_plain_and_other_reports_in_opposite_order_do_not_deadlock(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": both meet in the same order, whatever order the reports came in."""
    for _ in range(5):
        claimed = await _taken(connection, 500)
        reports = [run.report(one.lease, FLAKY, RNG) if n % 5 == 0 else _report(one.lease) for n, one in enumerate(claimed)]
        one, other = await asyncio.gather(_ended(connection, *reports), _ended(rival, *reports[::-1]))
        assert len(one) + len(other) == 500


async def test_while_a_plain_report_waits_no_other_with_a_greater_id_is_locked(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": also where all reports are plain, and came in the opposite order."""
    first, *rest = sorted(await _taken(connection, 30), key=lambda one: one.run_id.int)
    reports = [_report(one.lease) for one in (first, *rest)]
    async with connection.transaction():
        lock = "SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE NOWAIT"
        await connection.execute(lock, first.run_id)
        ending = await blocked_task(connection, rival, _ended(rival, *reports[::-1]))
        await connection.execute(lock, rest[-1].run_id)
    assert await ending == {one.run_id for one in (first, *rest)}


async def test_while_another_report_waits_no_plain_one_behind_it_is_locked(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": the runs of both statements are locked in one order."""
    first, *rest = sorted(await _taken(connection, 30), key=lambda one: one.run_id.int)
    reports = [run.report(first.lease, FLAKY, RNG), *(_report(one.lease) for one in rest)]
    async with connection.transaction():
        lock = "SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE NOWAIT"
        await connection.execute(lock, first.run_id)
        ending = await blocked_task(connection, rival, _ended(rival, *reports))
        await connection.execute(lock, rest[-1].run_id)
    assert await ending == {one.run_id for one in (first, *rest)}
