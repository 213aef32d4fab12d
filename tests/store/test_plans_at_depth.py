"""Which index each hot statement uses, and how little it reads beside 100,000 live runs, or ten million (SEXTON_TEST_DEPTH).

The bounds are the same at any depth. Reads inside functions come from the server's counters, so they do not depend on how a
statement is written. Tests that find nothing come first, because rolled-back operations leave dead entries."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from sexton.domain import run
from sexton.domain.job import Unique, submission
from sexton.domain.outcome import Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.signed_lease import SignedLease
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import remote_workers, workers
from sexton.store.work import callbacks, dead_letters, failures, jobs, retention, run_payloads, runs, schedules
from tests.store import depth
from tests.store.depth import touched
from tests.store.support import BROKEN, NOW, after, claim, enlist

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.store.support import Conn

pytestmark = [pytest.mark.made_up_rows, pytest.mark.timeout(4 * 3600 if depth.IS_CACHED else 120)]

TOMORROW = NOW + timedelta(days=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deep_url(server_url: Callable[[str], str], rig_template: str) -> AsyncIterator[str]:
    if depth.IS_CACHED:
        async with depth.kept_server() as url:
            yield url
        return
    name = f"{rig_template}_deep"
    admin = await asyncpg.connect(server_url("postgres"))
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {rig_template} STRATEGY FILE_COPY")
    connection = await asyncpg.connect(server_url(name))
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await depth.fill(connection)
    await connection.close()
    yield server_url(name)
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def deep(deep_url: str) -> AsyncIterator[Conn]:
    """A connection with the settings of `Postgres`, statements kept prepared."""
    connection = await asyncpg.connect(deep_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "120s"})
    yield connection
    await connection.close()


def assert_bounded(read: depth.Touched, *, runs_by: set[str], entries: int, pages: int) -> None:
    """`runs` only by these indexes; no growing table is scanned; at most so many entries of one index and so many pages."""
    assert {name for name in read.entries if name.startswith(("run", "one_live"))} <= runs_by
    assert read.walked == {}, "walked without an index"
    assert {name: count for name, count in read.entries.items() if count > entries} == {}
    assert read.pages <= pages


PROMOTED_BY = {"runs_due", "runs_due_beside", "runs_blocked", "runs_parked", "runs_in_order", "runs_pkey"}
_NEEDED_BEFORE = retention._SQL["needed_before"]


async def test_a_claim_that_finds_nothing_reads_nothing(deep: Conn) -> None:
    """B10: an empty queue, beside others with runs."""

    async def work() -> None:
        assert await claim(deep, await enlist(deep), queues=("nobody's",)) == []

    assert_bounded(await touched(deep, work), runs_by={"runs_ready"}, entries=0, pages=80)


async def test_a_promotion_with_nothing_due_is_one_probe(deep: Conn) -> None:
    """B10, B12: the B-tree is the timer."""

    async def work() -> None:
        done = await runs.promote(deep, Scan(ALL, 1000), now=NOW)
        assert (done.promoted_count, done.to_decide) == (0, False)
        assert done.next_due_s is not None
        assert done.next_due_s > 80_000

    assert_bounded(await touched(deep, work), runs_by=PROMOTED_BY, entries=20, pages=150)


async def test_a_look_at_running_runs_is_a_few_pages_if_there_are_none(deep: Conn) -> None:
    """B10: all queries of an idle scheduler and an idle worker."""

    async def work() -> None:
        worker_id = await enlist(deep)
        survey = await workers.survey(deep, lease_s=4.5, now=NOW)
        assert survey[1:6] == (False,) * 5
        await workers.beat(
            deep, worker_id, running_count=0, draining=False, refused_count=0, queues=["nobody's"], overdue_s=5.0, now=NOW
        )

    looked_by = {"runs_leased", "runs_expiring", "runs_ready", *PROMOTED_BY}
    assert_bounded(await touched(deep, work), runs_by=looked_by, entries=5, pages=250)


async def test_retention_reads_what_has_expired(deep: Conn) -> None:
    """B11, D5: nothing has expired, of very many keys and a long history."""

    async def work() -> None:
        await retention.make_partitions(deep, now=NOW)
        await deep.fetch(_NEEDED_BEFORE, UUID(int=int(NOW.timestamp() * 1000) << 80))
        await retention.expire_keys(deep, now=NOW)
        await dead_letters.expire(deep, keep_s=86_400, now=NOW)
        await runs.forget_output(deep, now=NOW)
        await run_payloads.forget(deep, keep_s=86_400, now=NOW)
        await failures.forget(deep)

    # A unique key does not show whether it is idle: a fixed number is examined, however many there are.
    bound = retention.KEY_BATCH
    assert_bounded(await touched(deep, work), runs_by={"run_fires_once", "runs_pkey"}, entries=bound, pages=5 * bound)


@pytest.mark.parametrize("wanted", [1, 100, 250])
async def test_a_claim_reads_what_it_takes(deep: Conn, wanted: int) -> None:
    """B8, B11, C9: of 100 tenants in three lanes and two queues."""

    async def work() -> None:
        worker_id = await enlist(deep)
        assert len(await claim(deep, worker_id, limit=wanted, queues=("default", "mail"))) == wanted

    read = await touched(deep, work)
    assert_bounded(read, runs_by={"runs_ready", "runs_pkey"}, entries=60 + 8 * wanted, pages=1_500 + 60 * wanted)


async def test_a_report_reads_what_it_ends(deep: Conn) -> None:
    """B8, B11, C2: claimed and finished in every way, 100 at once."""

    async def work() -> None:
        claimed = await claim(deep, await enlist(deep), limit=100)
        outcomes: list[Any] = [Succeeded(), BROKEN, Snoozed(60), Snoozed(0)] * 25
        reports = [run.report(one.lease, outcome, Random(1), key="k") for one, outcome in zip(claimed, outcomes, strict=True)]
        assert len(await runs.finish(deep, reports, now=NOW)) == 100

    assert_bounded(await touched(deep, work), runs_by={"runs_ready", "runs_pkey"}, entries=2_000, pages=14_000)


@pytest.mark.parametrize("partitions", [ALL, range(8)])
async def test_a_promotion_reads_what_is_due(deep: Conn, partitions: Any) -> None:
    """B8, B12: 500 at once, with more behind them."""
    share = len(partitions) / len(ALL)

    async def work() -> None:
        done = await runs.promote(deep, Scan(partitions, 500), now=TOMORROW + timedelta(seconds=3))
        assert done.promoted_count == 500

    read = await touched(deep, work)
    assert_bounded(read, runs_by=PROMOTED_BY, entries=int(3_000 / share), pages=30_000)


async def test_a_submission_reads_what_it_finds(deep: Conn) -> None:
    """A10, B8, B11: with keys and unique ones, 100 at once."""

    async def work() -> None:
        batch = [submission("a", {"n": n}, key=f"k{n}", unique=Unique.of()) for n in range(100)]
        assert all(answer.created for answer in await jobs.submit(deep, batch, now=NOW))
        again = [submission("a", {"n": n}, key=f"again{n}", unique=Unique.of()) for n in range(100)]
        assert not any(answer.created for answer in await jobs.submit(deep, again, now=NOW))

    assert_bounded(
        await touched(deep, work), runs_by={"run_fires_once", "runs_pkey", "runs_counted"}, entries=2_000, pages=20_000
    )


async def test_a_heartbeat_and_a_sweep_read_the_running_runs(deep: Conn) -> None:
    """B10, C4: however many wait beside the 100 that run; their worker is declared dead, and they are found."""

    async def work() -> None:
        worker_id = await enlist(deep)
        await claim(deep, worker_id, limit=100)
        beaten = await workers.beat(
            deep, worker_id, running_count=1, draining=False, refused_count=0, queues=["default"], overdue_s=5.0, now=NOW
        )
        assert beaten is not None
        assert (len(beaten.held), beaten.is_ready, beaten.is_overdue) == (100, True, False)
        survey = await workers.survey(deep, lease_s=4.5, now=NOW)
        assert (survey.running, survey.abandoned, survey.overrunning, survey.expired) == (True, False, False, False)
        await workers.declare_lost(deep, {worker_id: 1}, now=NOW)
        assert (await workers.survey(deep, lease_s=4.5, now=after(seconds=5))).abandoned
        assert len(await runs.abandoned(deep, lease_s=4.5, limit=500, now=after(seconds=5))) == 100
        assert len(await runs.overrunning(deep, limit=500, now=after(hours=1))) == 100
        assert await runs.expired(deep, limit=500, now=NOW) == []

    swept_by = {"runs_leased", "runs_expiring", "runs_ready", "runs_pkey", "runs_due", *PROMOTED_BY}
    assert_bounded(await touched(deep, work), runs_by=swept_by, entries=2_500, pages=15_000)


async def test_the_planner_finds_due_schedules_by_its_index(deep: Conn) -> None:
    """B8, B11: nothing now; 100 of very many in a week."""

    async def work() -> None:
        assert (await schedules.recall(deep, partitions=ALL, limit=1000, now=NOW)).recalled_count == 0
        assert await schedules.to_plan(deep, Scan(ALL, 100), now=NOW) == []
        assert len(await schedules.to_plan(deep, Scan(ALL, 100), now=after(days=6.5))) == 100
        assert (await schedules.repair(deep, now=NOW)).forgotten == []

    read = await touched(deep, work)
    assert_bounded(read, runs_by={"runs_due_beside"}, entries=600, pages=1_500)
    assert read.entries["jobs_to_plan"] >= 100


async def test_statements_of_remote_workers_and_callbacks_use_an_index(deep: Conn) -> None:
    """B10, C6: joining, waiting, acquiring, heartbeats, handing over and ending, for one worker and one run."""
    worker_id = UUID(int=1)

    async def work() -> None:
        worker = remote_workers.RemoteWorker(worker_id, "far", ["default"], ["a"], 1, 1, 60.0, None)
        joined = await remote_workers.attend(deep, worker, now=NOW)
        assert joined.is_new
        await remote_workers.with_work(deep, ["default", "nobody's"])
        (taken,) = await claim(deep, worker_id, limit=1)
        lease = SignedLease(taken.lease.run_id, taken.lease.job_id, taken.lease.token)
        assert await remote_workers.beat(deep, worker_id, now=NOW) == 60.0
        assert [one.run_id for one in await remote_workers.held(deep, worker_id, now=NOW)] == [lease.run_id]
        assert await callbacks.hand_over(deep, worker_id, [(lease.run_id, lease.token)], now=NOW) == {lease.run_id}
        assert await callbacks.hear(deep, lease, output="here", now=NOW) is not None
        assert [told.lease.run_id for told in (await callbacks.leases(deep, [lease], now=NOW)).values()] == [lease.run_id]
        await callbacks.recorded(deep, lease)

    read = await touched(deep, work)
    # A claim checks whether its worker holds a suspect: it reads at most as many entries as that worker has runs.
    assert_bounded(read, runs_by={"runs_leased", "runs_ready", "runs_fair", "runs_pkey", *PROMOTED_BY}, entries=150, pages=700)
